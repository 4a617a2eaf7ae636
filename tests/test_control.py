"""The positive control: what ablation finds of heads set by hand is what they were set to."""

from __future__ import annotations

import copy
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis.ablation import evaluate, plain, single_heads
from analysis.anatomy import output_projection
from analysis.capture import capture, encode, pad
from analysis.control import HEAD_DIM, HEADS, LAYERS, ONES, Control, control, sentences
from analysis.experiment import Options, prepare, sweep
from analysis.importance import importance
from analysis.outcome import interactions, judge
from analysis.probe import Probe
from analysis.suffix import states
from analysis.tasks import set_up

NOTHING = np.zeros((1, LAYERS, HEADS), dtype=bool)
SINGLE = np.concatenate([NOTHING, single_heads(LAYERS, HEADS)])
ROUNDING = 1e-6  # of logits below 1


@pytest.fixture(scope="module")
def made():
    return control()


def found(one, **options):
    """Return the experiment on a control, its predictions and its changes, by the ordinary machinery."""
    experiment = prepare(
        Options("control", "classification", model="control", **options), one.model, one.data
    )
    predictions = sweep(experiment)
    return experiment, predictions, judge(experiment, predictions)


def logits(one, masks):
    """Return [variant, example, class]."""
    problem = set_up("classification", one.model, one.data)
    return evaluate(problem.model, problem.inputs, problem.read, masks)


def measured(one):
    """Return what ablation says of each head [layer, head]; the truth is not looked at."""
    _, _, changes = found(one)
    said = logits(one, SINGLE)
    moved = np.abs(said[1:] - said[0]).max(axis=(1, 2))
    names = []
    for head in range(LAYERS * HEADS):
        if moved[head] <= ROUNDING:
            assert changes.delta[head] == 0
            names.append("idle")
        elif changes.delta[head] == 0:
            names.append("twin")
        else:
            assert changes.delta[head] < 0
            assert changes.q[head] < 0.05
            assert not changes.noise[head]
            names.append("useful")
    return np.array(names).reshape(LAYERS, HEADS)


def reordered(one, order):
    """Return the control with the heads of each layer in another order, their weights and the truth alike."""
    network = copy.deepcopy(one.model.network)
    rows = np.arange(HEADS * HEAD_DIM).reshape(HEADS, HEAD_DIM)[order].ravel()
    for number, layer in enumerate(network.bert.encoder.layer):
        own = layer.attention.self
        for matrix in (own.query, own.key, own.value):
            matrix.weight.copy_(matrix.weight[rows].clone())
        joined = output_projection(network, number)
        joined.weight.copy_(joined.weight[:, rows].clone())
    return replace(one, model=replace(one.model, network=network), truth=one.truth[:, order])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_whole_model_is_right_on_every_example(seed):
    one = control(seed)
    assert isinstance(one, Control)
    assert len(set(one.data.texts)) == len(one.data) == 300
    assert (np.bincount(one.data.gold) > 40).all()
    np.testing.assert_array_equal(logits(one, NOTHING)[0].argmax(-1), one.data.gold)
    assert not any("[UNK]" in capture(one.model, text).queries.labels for text in one.data.texts[:50])


def denied(one):
    """Return [example] whether an opinion is denied, and whether one is stated, by the texts alone."""
    negated = np.array([" was not " in text or " was never " in text for text in one.data.texts])
    opinion = one.data.gold != one.data.labels.index("neutral")
    return negated & opinion, ~negated & opinion


def test_only_the_place_of_a_word_tells_what_is_denied(made):
    stated = [text for text, one in zip(made.data.texts, denied(made)[1], strict=True) if one]
    moved = []
    for text in stated:
        negator = "not" if " not " in text else "never"
        moved.append(text.replace(f" have {negator} ", " have ").replace(" was ", f" was {negator} "))
        assert sorted(re.findall(r"\w+", moved[-1])) == sorted(re.findall(r"\w+", text))
    gold = np.arange(len(stated)) % 3  # which is not looked at
    before, after = (
        logits(replace(made, data=replace(made.data, texts=tuple(texts), gold=gold)), NOTHING)[0].argmax(-1)
        for texts in (stated, moved)
    )
    assert len(stated) == 120
    np.testing.assert_array_equal(np.unique(before), [0, 2])
    np.testing.assert_array_equal(after, 2 - before)


def test_the_seed_draws_the_texts_and_nothing_else():
    assert sentences(3).texts == sentences(3).texts
    assert sentences(3).texts != sentences(4).texts
    one, other = control(3).model.network.state_dict(), control(4).model.network.state_dict()
    assert all(torch.equal(weights, other[name]) for name, weights in one.items())


@pytest.mark.parametrize("seed", [0, 1])
def test_ablation_finds_what_the_heads_were_set_to(seed):
    one = control(seed)
    np.testing.assert_array_equal(measured(one), one.truth)
    assert {name: int((one.truth == name).sum()) for name in ("useful", "twin", "idle")} == {
        "useful": 2,
        "twin": 2,
        "idle": 4,
    }


def test_what_is_found_follows_the_weights(made):
    other = reordered(made, [2, 0, 3, 1])
    assert (other.truth != made.truth).any()
    np.testing.assert_array_equal(measured(other), other.truth)


def test_a_useful_head_is_a_twin_once_another_does_its_work(made):
    network = copy.deepcopy(made.model.network)
    reader, idle = slice(0, HEAD_DIM), slice(3 * HEAD_DIM, 4 * HEAD_DIM)  # of layer 1
    own = network.bert.encoder.layer[1].attention.self
    for matrix in (own.query, own.key, own.value):
        matrix.weight[idle] = matrix.weight[reader]
    joined = output_projection(network, 1)
    joined.weight[:, idle] = joined.weight[:, reader]
    expected = made.truth.copy()
    expected[1, [0, 3]] = "twin"
    np.testing.assert_array_equal(
        measured(replace(made, model=replace(made.model, network=network))), expected
    )


def test_each_useful_head_costs_the_examples_that_need_it(made):
    _, predictions, changes = found(made)
    right = predictions["accuracy"][1:].reshape(LAYERS, HEADS, -1) == made.data.gold
    for layer, head in np.argwhere(made.truth == "useful"):
        np.testing.assert_array_equal(right[layer, head], ~denied(made)[0])
    np.testing.assert_allclose(changes.delta.reshape(LAYERS, HEADS)[made.truth == "useful"], -0.4)
    assert changes.score == 1


def test_twins_are_found_together(made):
    twins = [f"{layer}.{head}" for layer, head in np.argwhere(made.truth == "twin")]
    _, predictions, changes = found(made, protocol="set", heads=",".join(twins))
    assert changes.q[0] < 0.05
    assert changes.delta[0] == pytest.approx(-0.4)
    np.testing.assert_array_equal(predictions["accuracy"][1] == made.data.gold, ~denied(made)[1])


def test_pairs_tell_twins_from_a_circuit(made):
    heads = [f"{layer}.{head}" for layer, head in np.argwhere(made.truth != "idle")]
    pairs, predictions, changes = found(made, protocol="pairs", heads=",".join(heads))
    assert (changes.delta < 0).all()
    table = interactions(pairs, predictions).set_index("heads")
    assert table.loc["1.1,1.2", "beyond"] == pytest.approx(-0.4)
    assert table.loc["0.0,1.0", "beyond"] == pytest.approx(0.4)
    assert (table.loc[["1.1,1.2", "0.0,1.0"], "q"] < 0.05).all()
    assert (table.drop(["1.1,1.2", "0.0,1.0"])["beyond"].abs() < 1e-9).all()


def test_idle_heads_are_idle_together(made):
    said = logits(made, np.concatenate([NOTHING, (made.truth == "idle")[None]]))
    np.testing.assert_allclose(said[1], said[0], atol=ROUNDING)


def test_idle_heads_look_as_busy_as_the_others(made):
    maps = [capture(made.model, text).weights for text in made.data.texts[:40]]
    sharpest = np.mean([weights.max(axis=-1).mean(axis=-1) for weights in maps], axis=0)
    assert (sharpest > 0.95).all()
    joined = [output_projection(made.model.network, layer).weight.numpy() for layer in range(LAYERS)]
    writes = np.stack(joined).reshape(LAYERS, -1, HEADS, HEAD_DIM).any(axis=(1, 3))
    assert writes[made.truth != "idle"].all()
    assert sorted(writes[made.truth == "idle"]) == [False, False, True, True]


def test_the_sweep_equals_the_plain_loop_and_columns_set_to_zero(made):
    problem = set_up("classification", made.model, made.data.take(np.arange(60)))
    masks = np.concatenate([SINGLE, (made.truth == "twin")[None]])
    said = evaluate(problem.model, problem.inputs, problem.read, masks)
    np.testing.assert_allclose(said, plain(problem.model, problem.inputs, problem.read, masks), atol=1e-5)
    batch = pad(made.model, problem.inputs)
    for mask, of_variant in zip(masks, said, strict=True):
        network = copy.deepcopy(made.model.network)
        for layer, head in np.argwhere(mask).tolist():
            output_projection(network, layer).weight[:, head * HEAD_DIM : (head + 1) * HEAD_DIM] = 0
        with torch.no_grad():
            np.testing.assert_allclose(of_variant, network(**batch).logits.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    "options", [{"replacement": "mean"}, {"replacement": "uniform"}, {"precision": "draft"}]
)
def test_other_ways_to_switch_off_find_the_same(made, options):
    _, _, changes = found(made, **options)
    assert changes.score == 1
    needed = (made.truth == "useful").ravel()
    assert (changes.delta[needed] < -0.3).all()
    assert (changes.q[needed] < 0.05).all()
    np.testing.assert_array_equal(changes.delta[~needed], 0)


def test_the_gradient_sees_the_twins_that_ablation_misses(made):
    scores = importance(set_up("classification", made.model, made.data)).absolute
    assert scores[made.truth == "idle"].max() < 1e-6
    assert scores[made.truth != "idle"].min() > 1e-3


def test_the_states_are_slots_of_ones(made):
    batch = pad(made.model, [encode(made.model, made.data.texts[0]).inputs])
    given = states(made.model.network, batch, Probe(), [0, 1]).inputs
    for layer, ones in ((0, ONES - 1), (1, ONES)):
        state = given[layer][0]
        np.testing.assert_allclose(state.sum(-1), ones, atol=1e-3)
        np.testing.assert_allclose(torch.minimum(state.abs(), (state - 1).abs()), 0, atol=0.05)


def test_any_text_can_be_looked_at(made):
    maps = capture(made.model, "some text")
    assert maps.weights.shape == (LAYERS, HEADS, 4, 4)
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-5)
    assert len(capture(made.model, "the film was not good. " * 20).queries) == made.model.geometry.max_tokens
    assert capture(made.model, "the film was good", "the play was bad").weights.shape[-1] == 11


def test_every_head_says_what_it_does(made):
    assert made.truth.shape == (made.model.geometry.layers, made.model.geometry.heads)
    assert [len(layer) for layer in made.does] == [HEADS] * LAYERS
    for sentence in (str(message) for layer in made.does for message in layer):
        assert sentence.endswith(".")
        assert "{" not in sentence
    assert "L1·H2" in str(made.does[1][1])
    assert "L1·H1" in str(made.does[1][2])
