"""What people reported of tools that switch heads off: exact in every family, alone and beside each other."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis import significance
from analysis.ablation import evaluate, one_set, single_heads
from analysis.anatomy import layers_of, output_projection
from analysis.capture import encode
from analysis.datasets import Data
from analysis.experiment import Options, prepare, sweep
from analysis.importance import gradients, importance
from analysis.maps import Head
from analysis.messages import HeadroomError
from analysis.models import open_model
from analysis.outcome import judge, result
from analysis.probe import Probe, run
from analysis.tasks import set_up
from tests import tiny

TEXTS = ("the cat sat on the mat", "a dog", "the bird and the dog sat", "it is good", "dog sat", "is this film bad",
         "you love this", "run and walk", "the street was bad", "a bird", "because it was too tired",
         "i cross the street", "un", "cat and dog", "walk on", "love a good film")  # fmt: skip
PAIRS = tuple(zip(TEXTS, TEXTS[5:] + TEXTS[:5], strict=True))
GRADES = np.arange(16) * 7 % 11 / 2.0
LABELS = np.arange(16) // 3 % 2
DATA = {
    "similarity": Data("pairs", PAIRS, GRADES),
    "classification": Data("texts", TEXTS, LABELS, ("0", "1")),
    "masked": Data("texts", TEXTS),
    "fidelity": Data("texts", TEXTS),
}
KIND = {
    "similarity": "headless",
    "classification": "classification",
    "masked": "masked",
    "fidelity": "headless",
}
APART = ["bert", "distilbert", "albert", "modernbert"]  # families whose layers differ in kind
REPLACEMENTS = ("zero", "mean", "uniform")


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Return a function that opens a tiny model, each once."""
    root, there = tmp_path_factory.mktemp("tiny"), {}

    def open_once(family, kind="headless"):
        if (family, kind) not in there:
            there[family, kind] = open_model(str(tiny.save_tiny(root / f"{family}-{kind}", family, kind)))
        return there[family, kind]

    return open_once


@pytest.fixture(autouse=True)
def _few_replicates(monkeypatch):
    monkeypatch.setattr(significance, "REPLICATES", 200)


def shape_of(model):
    """Return (layers, heads) of a model."""
    return model.geometry.layers, model.geometry.heads


def written(mask):
    """Return the heads of a mask as an option names them."""
    return ",".join(f"{layer}.{head}" for layer, head in np.argwhere(mask))


def logits(outputs, _padded, _which):
    """Return what a classifier says."""
    return outputs.logits


# What switching off means


def test_in_albert_a_head_that_is_off_in_one_layer_is_on_in_all_others(tmp_path):
    model = open_model(str(tiny.save_tiny(tmp_path / "albert", "albert", num_hidden_layers=6)))
    inputs = encode(model, TEXTS[0]).inputs
    batch = {name: torch.tensor([row]) for name, row in inputs.items()}
    seen: list[torch.Tensor] = []  # of each call of the shared layer, what W_O reads
    hook = output_projection(model.network, 0).register_forward_hook(lambda _, args, __: seen.append(args[0]))
    off = one_set([Head(3, 1)], (6, 4))
    for gates in (None, torch.from_numpy(~off).float()):
        last = run(model.network, batch, Probe(gates=gates)).last_hidden_state
    hook.remove()
    whole, gated = (torch.stack(part)[:, 0].unflatten(-1, (4, -1)) for part in (seen[:6], seen[6:]))
    assert torch.equal(gated[:3], whole[:3])
    assert (gated[3, :, 1] == 0).all()
    assert torch.equal(gated[3][:, [0, 2, 3]], whole[3][:, [0, 2, 3]])
    assert (gated[4:, :, 1].abs().amax((1, 2)) > 1e-2).all()
    said = evaluate(model, [inputs], lambda out, _, __: out[0][:, 0], np.concatenate([off, ~off & False]))
    np.testing.assert_allclose(said[0], last[:, 0], atol=1e-5)
    assert np.abs(said[0] - said[1]).max() > 1e-3


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_off_is_zeroed_columns_of_the_output_and_zeroed_values_to_a_millionth(opened, family):
    """Against transformers' own attention, in double precision, which leaves no room for what is nearly right."""
    model = opened(family, "classification")
    double = replace(model, network=copy.deepcopy(model.network).double())
    inputs = [encode(model, text).inputs for text in TEXTS[:4]]
    (layers, heads), width = shape_of(model), model.geometry.head_dim
    nothing = np.zeros((1, layers, heads), dtype=bool)
    mask = nothing.copy()
    mask[0, slice(None) if family == "albert" else 1, 2] = True
    said, whole = evaluate(double, inputs, logits, np.concatenate([mask, nothing]))
    ours = slice(2 * width, 3 * width)
    found = {}
    for way in ("columns", "values", "after"):
        other = tiny.twin(model.network, "eager").double()
        projection = output_projection(other, 1)
        if way == "columns":
            projection.weight[:, ours] = 0
        elif way == "values":
            for name, parameter in layers_of(other)[1].named_parameters():
                if name.split(".")[-2] in ("value", "v_lin"):
                    parameter[ours] = 0
                elif name.split(".")[-2] == "Wqkv":
                    parameter[2 * model.geometry.width :][ours] = 0
        else:
            scale = torch.ones(model.geometry.width, dtype=torch.float64)
            scale[ours] = 0
            projection.register_forward_hook(lambda _, __, out, scale=scale: out * scale)
        batches = [{name: torch.tensor([row]) for name, row in one.items()} for one in inputs]
        found[way] = np.concatenate([other(**batch).logits.numpy() for batch in batches])
    np.testing.assert_allclose(said, found["columns"], atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(said, found["values"], atol=1e-6, rtol=1e-6)
    assert np.abs(said - found["after"]).max() > 1e-3
    assert np.abs(said - whole).max() > 1e-3


@pytest.mark.parametrize("family", APART)
def test_the_score_that_is_reported_is_that_of_the_network_without_the_head(opened, family):
    model = opened(family)
    layers, width = model.geometry.layers, model.geometry.head_dim
    named = ",".join(f"{layer}.1" for layer in (range(layers) if family == "albert" else [2]))
    options = Options("pairs", "similarity", protocol="set", heads=named)
    made = prepare(options, model, DATA["similarity"])
    predictions = sweep(made)
    zeroed = tiny.twin(model.network, "headroom")
    output_projection(zeroed, 2).weight[:, width : 2 * width] = 0
    without = sweep(prepare(options, replace(model, network=zeroed), DATA["similarity"]))
    np.testing.assert_allclose(predictions["spearman"][1], without["spearman"][0], atol=1e-5)
    assert np.abs(predictions["spearman"][1] - predictions["spearman"][0]).max() > 1e-4
    table, metric = result(made, judge(made, predictions)), made.problem.metrics[0]
    assert table["score"].tolist() == metric.score(predictions["spearman"][1:], GRADES).tolist()
    assert table["delta"][0] != 0


# Nothing left


@pytest.mark.parametrize("replacement", REPLACEMENTS)
@pytest.mark.parametrize("task", DATA)
def test_a_whole_layer_and_everything_off_has_a_finite_score(opened, task, replacement):
    model = opened("bert", KIND[task])
    everything = np.ones(shape_of(model), dtype=bool)
    layer = everything & (np.arange(3) == 1)[:, None]
    for mask in (layer, everything):
        options = Options("data", task, protocol="set", heads=written(mask), replacement=replacement)
        made = prepare(options, model, DATA[task])
        predictions = sweep(made)
        assert all(np.isfinite(table).all() for table in predictions.values())
        found = judge(made, predictions)
        assert np.isfinite([found.score, found.scores[0], found.low[0], found.high[0]]).all()
        assert found.low[0] <= found.high[0]


def test_where_all_pairs_become_alike_the_score_is_undefined_and_not_that_of_rounding(opened):
    """Without attention ModernBERT knows no order of words: every pair here is then twice the same words."""
    turned = tuple((text, " ".join(reversed(text.split()))) for text in TEXTS if len(text.split()) > 2)
    data = Data("turned", turned, np.arange(len(turned)) / 3.0)
    model = opened("modernbert")
    options = Options("turned", "similarity", protocol="set", heads=written(np.ones(shape_of(model))))
    made = prepare(options, model, data)
    predictions = sweep(made)
    assert 0 < np.ptp(predictions["spearman"][1]) < 1e-6
    for metric in (0, 1):
        found = judge(made, predictions, metric)
        assert np.isfinite(found.score)
        assert np.isnan([found.scores[0], found.delta[0], found.low[0], found.high[0], found.p[0]]).all()
        assert found.undefined[0] == found.replicates
    same = prepare(options, model, Data("same", tuple((text, text) for text, _ in turned), data.gold))
    alike = sweep(same)
    with pytest.raises(HeadroomError, match=r"predicts (1.00000|0.99999)\d+ for all 11"):
        judge(same, alike)


# Importance


@pytest.mark.parametrize("family", APART)
def test_importance_is_equal_for_1_4_and_16_examples_at_a_time_and_the_second_time(opened, family):
    problem = set_up("similarity", opened(family), DATA["similarity"])
    first, again = importance(problem), importance(problem)
    np.testing.assert_array_equal(first.each, again.each)
    assert (first.absolute > 1e-6).all()
    for size in (1, 4, 16):
        parts = [gradients(problem, list(range(i, i + size))) for i in range(0, 16, size)]
        np.testing.assert_allclose(np.concatenate(parts), first.each, rtol=1e-3, atol=2e-6)


# Sessions beside each other


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert"])
def test_work_beside_each_other_on_one_model_is_bit_equal_to_work_alone(opened, family):
    model = opened(family)
    problem = set_up("similarity", model, DATA["similarity"])
    masks = single_heads(*shape_of(model))

    def broken(*_):
        raise ZeroDivisionError

    def off(masks, read=problem.read):
        return lambda: evaluate(problem.model, problem.inputs, read, masks, tokens=200)

    work = [off(masks), off(masks[::-3]), lambda: importance(problem).each]
    alone = [one() for one in work]
    together, failed, start = [[] for _ in range(4)], [], threading.Barrier(4)

    def repeat(number):
        torch.set_num_threads(1)
        start.wait()
        for _ in range(3):
            try:
                together[number].append(work[number]())
            except ZeroDivisionError:
                failed.append(number)

    work.append(off(masks, broken))
    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [3] * 3
    for expected, several in zip(alone, together[:3], strict=True):
        assert len(several) == 3
        assert all(np.array_equal(one, expected) for one in several)


@pytest.mark.parametrize("family", ["albert", "modernbert"])
def test_a_model_that_is_dropped_after_its_heads_were_off_is_gone(tmp_path, family):
    model = open_model(str(tiny.save_tiny(tmp_path / family, family)))
    problem = set_up("similarity", model, DATA["similarity"].take(range(4)))
    for dtype in (torch.float32, torch.bfloat16):
        evaluate(problem.model, problem.inputs, problem.read, single_heads(*shape_of(model))[:3], dtype=dtype)
    importance(problem)
    gone = weakref.ref(model.network)
    del model, problem
    gc.collect()
    assert gone() is None
