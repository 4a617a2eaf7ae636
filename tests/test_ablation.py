"""Heads switched off for many variants at once: as one pass each, to rounding, whatever the batch and the order."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis import ablation
from analysis.ablation import (
    all_but_one,
    count_units,
    evaluate,
    mean_contexts,
    one_set,
    pairs_of,
    plain,
    single_heads,
    units,
)
from analysis.anatomy import output_projection
from analysis.capture import encode
from analysis.maps import Head
from analysis.messages import OptionError
from analysis.models import open_model
from analysis.probe import Probe, run
from tests import tiny

KINDS = ("headless", "classification", "masked")
FORMS = [(family, kind) for family in tiny.FAMILIES for kind in KINDS]
TEXTS = [  # of 4 to 33 tokens: ModernBERT's window of 8 reaches 4 tokens to each side
    "the cat sat on the mat and the dog was too tired because it didn't cross the street.",
    "a good film",
    "cat",
    "unbelievable dog, bird and mat!",
    "is this film good?",
    ("the animal was tired", "it sat on a mat"),
]
REPLACEMENTS = ("zero", "mean", "uniform")
CLOSE = 1e-5


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder for tiny models."""
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture(scope="module", params=FORMS, ids=["-".join(form) for form in FORMS])
def model(request, root):
    """A tiny model of each family: without a head, as a classifier, as a masked language model."""
    return opened(root, *request.param)


@pytest.fixture(scope="module", params=tiny.FAMILIES)
def encoder(request, root):
    """A tiny model of each family, without a head."""
    return opened(root, request.param, "headless")


def opened(root, family, kind):
    """Return a tiny model."""
    folder = root / f"{family}-{kind}"
    return open_model(str(folder if folder.exists() else tiny.save_tiny(folder, family, kind)))


def inputs_of(model, texts=TEXTS):
    """Return the encoded texts."""
    return [encode(model, text).inputs for text in texts]


def shape_of(model):
    """Return (layers, heads) of a model."""
    return model.geometry.layers, model.geometry.heads


def read(outputs, padded, which):
    """Return the logits, those of the first word of masked language models, or else normalised mean states."""
    assert len(which) == len(padded["input_ids"]) == len(outputs[0])
    if "logits" in outputs:
        return outputs.logits if outputs.logits.ndim == 2 else outputs.logits[:, 1]
    mask = padded["attention_mask"][..., None].float()
    mean = (outputs.last_hidden_state * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(mean, dim=-1)


def means_of(model):
    """Return some mean contexts that are far from those of the texts."""
    layers, heads = shape_of(model)
    random = np.random.default_rng(3)
    return random.normal(size=(layers, heads, model.geometry.head_dim)).astype(np.float32)


def protocols(model):
    """Return by name the masks of each way to switch heads off."""
    layers, heads = shape_of(model)
    random = np.random.default_rng(1)
    whole_layer = np.zeros((1, layers, heads), dtype=bool)
    whole_layer[0, 1] = True
    return {
        "single": single_heads(layers, heads),
        "all but one": all_but_one(layers, heads),
        "pairs": pairs_of([Head(0, 0), Head(1, 2), Head(2, 3)], (layers, heads)),
        "one set": one_set([Head(0, 3), Head(2, 1)], (layers, heads)),
        "with a common part": single_heads(layers, heads)[::3] | one_set([Head(0, 0)], (layers, heads)),
        "any": random.random((5, layers, heads)) < 0.4,
        "a whole layer, everything, nothing": np.concatenate(
            [whole_layer, np.ones_like(whole_layer), np.zeros_like(whole_layer)]
        ),
    }


@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_it_equals_one_pass_for_each_variant(model, replacement):
    inputs = inputs_of(model)
    options = {"replacement": replacement, "means": means_of(model)}
    whole = plain(model, inputs, read, np.zeros((1, *shape_of(model)), dtype=bool))
    for name, masks in protocols(model).items():
        said = evaluate(model, inputs, read, masks, tokens=300, **options)
        expected = plain(model, inputs, read, masks, tokens=10_000, **options)
        assert said.dtype == np.float32
        assert said.shape == expected.shape == (len(masks), len(inputs), whole.shape[-1])
        assert np.isfinite(said).all(), name
        np.testing.assert_allclose(said, expected, atol=CLOSE * max(1, np.abs(expected).max()), rtol=0)
        off = masks.any(axis=(1, 2))
        changes = np.abs(said - whole).max(axis=(1, 2))
        assert (changes[off] > 1e-4).all(), f"{name}: a head that is off changes nothing"
        assert (changes[~off] <= CLOSE * max(1, np.abs(whole).max())).all(), name


@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_neither_batches_nor_order_nor_stacking_change_anything(encoder, replacement):
    inputs = inputs_of(encoder)
    masks = protocols(encoder)["any"]
    options = {"replacement": replacement, "means": means_of(encoder)}
    alone = plain(encoder, inputs, read, masks, tokens=1, **options)
    longest = max(len(row["input_ids"]) for row in inputs)
    for rows in (1, 4, 16):  # of a stacked batch
        together = evaluate(encoder, inputs, read, masks, tokens=rows * longest, **options)
        np.testing.assert_allclose(together, alone, atol=CLOSE, rtol=0)
    order = np.random.default_rng(0).permutation(len(inputs))
    turned = evaluate(encoder, [inputs[i] for i in order], read, masks[::-1], tokens=200, **options)
    np.testing.assert_allclose(turned[::-1], alone[:, order], atol=CLOSE, rtol=0)
    for number in range(len(masks)):
        one = evaluate(encoder, inputs, read, masks[number : number + 1], **options)
        np.testing.assert_allclose(one[0], alone[number], atol=CLOSE, rtol=0)


def test_a_head_off_is_its_columns_of_the_output_projection_zeroed(model):
    inputs = inputs_of(model)
    layers, heads = shape_of(model)
    width = model.geometry.head_dim
    shared = model.network.config.model_type == "albert"  # its layers share one W_O: the head is off in each
    nothing = np.zeros((1, layers, heads), dtype=bool)
    for layer, head in [(0, 0), (layers - 1, heads - 1), (1, 2)]:
        mask = nothing.copy()
        mask[0, slice(None) if shared else layer, head] = True
        zeroed = tiny.twin(model.network, "headroom")
        output_projection(zeroed, layer).weight[:, head * width : (head + 1) * width] = 0
        expected = plain(replace(model, network=zeroed), inputs, read, nothing)
        said = evaluate(model, inputs, read, np.concatenate([mask, nothing]))[:1]
        assert_near(said, expected)


def test_a_head_off_is_its_rows_of_the_values_and_their_bias_zeroed(model):
    inputs = inputs_of(model)
    layers, heads = shape_of(model)
    width = model.geometry.head_dim
    nothing = np.zeros((1, layers, heads), dtype=bool)
    for head in (0, heads - 1):
        mask = nothing.copy()
        mask[0, :, head] = True
        zeroed = tiny.twin(model.network, "headroom")
        for name, parameter in zeroed.named_parameters():
            parts = name.split(".")
            if parts[-2] in ("value", "v_lin", "Wqkv"):
                start = (2 * heads if parts[-2] == "Wqkv" else 0) + head  # values come third
                parameter[start * width : (start + 1) * width] = 0
        expected = plain(replace(model, network=zeroed), inputs, read, nothing)
        assert_near(evaluate(model, inputs, read, np.concatenate([mask, nothing]))[:1], expected)


def assert_near(said, expected):
    """Equal to 1e-6 of the size of what is said."""
    np.testing.assert_allclose(said, expected, atol=2e-6 * max(1, np.abs(expected).max()), rtol=0)


def test_scaling_after_the_projection_is_something_else(encoder):
    inputs = inputs_of(encoder)
    layers, heads = shape_of(encoder)
    mask = np.zeros((1, layers, heads), dtype=bool)
    mask[0, :, 0] = True
    sliced = tiny.twin(encoder.network, "headroom")
    scale = (torch.arange(tiny.WIDTH) >= encoder.geometry.head_dim).float()
    for projection in {output_projection(sliced, layer) for layer in range(layers)}:
        projection.register_forward_hook(lambda _, __, out: out * scale)
    wrong = plain(replace(encoder, network=sliced), inputs, read, np.zeros_like(mask))
    assert np.abs(evaluate(encoder, inputs, read, mask) - wrong).max() > 1e-2


def test_in_albert_a_head_off_in_layer_3_is_off_in_that_call_only(root):
    model = opened(root, "albert", "headless")
    inputs = inputs_of(model)[:1]
    masks = np.concatenate([one_set([Head(layer, 1)], (4, 4)) for layer in range(4)])
    said = evaluate(model, inputs, read, masks)
    kept: list[list[torch.Tensor]] = []
    hook = output_projection(model.network, 3).register_forward_hook(
        lambda _, args, __: kept[-1].append(args[0])
    )
    for gates in (torch.ones(1, 4, 4), torch.from_numpy(~masks[3:]).float()):
        kept.append([])
        batch = {name: torch.tensor([row]) for name, row in inputs[0].items()}
        out = run(model.network, batch, Probe(gates=gates))
    hook.remove()
    assert [torch.equal(a, b) for a, b in zip(*kept, strict=True)] == [True, True, True, False]
    np.testing.assert_allclose(said[3], read(out, batch, [0]).numpy(), atol=CLOSE)
    assert all(np.abs(said[i] - said[j]).max() > 1e-3 for i in range(4) for j in range(i))


def test_threads_with_different_masks_on_one_model_do_not_mix(root):
    model = opened(root, "bert", "headless")
    inputs = inputs_of(model)
    every = [masks for masks in protocols(model).values() if len(masks) > 1]
    alone = [evaluate(model, inputs, read, masks, tokens=100) for masks in every]
    failures: list[int] = []

    def repeat(which):
        torch.set_num_threads(1)
        for _ in range(5):
            if not np.array_equal(evaluate(model, inputs, read, every[which], tokens=100), alone[which]):
                failures.append(which)

    threads = [threading.Thread(target=repeat, args=(which,)) for which in range(len(every))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_an_exception_while_reading_leaves_the_model_as_it_was(encoder):
    inputs = inputs_of(encoder)
    masks = single_heads(*shape_of(encoder))
    expected = evaluate(encoder, inputs, read, masks)
    state = {name: tensor.clone() for name, tensor in encoder.network.state_dict().items()}
    modules = {name: (id(module), len(module._forward_hooks)) for name, module in named(encoder)}
    config = encoder.network.config.to_dict()
    calls = []

    def fail(outputs, padded, which):
        calls.append(which)
        if len(calls) == 3:
            raise RuntimeError("the reader broke")
        return read(outputs, padded, which)

    with pytest.raises(RuntimeError, match="the reader broke"):
        evaluate(encoder, inputs, fail, masks)
    assert {name: (id(module), len(module._forward_hooks)) for name, module in named(encoder)} == modules
    assert encoder.network.config.to_dict() == config
    assert all(torch.equal(encoder.network.state_dict()[name], tensor) for name, tensor in state.items())
    assert not encoder.network.training
    np.testing.assert_array_equal(evaluate(encoder, inputs, read, masks), expected)


def named(model):
    """Return the names and modules of a model's network."""
    return list(model.network.named_modules())


def test_units_come_in_an_order_that_stays_and_can_be_taken_up_again(encoder):
    inputs = inputs_of(encoder)
    masks = np.concatenate([single_heads(*shape_of(encoder)), np.zeros((1, *shape_of(encoder)), dtype=bool)])
    everything = list(units(encoder, inputs, read, masks, tokens=60))
    assert len(everything) == count_units(inputs, masks, tokens=60) > 10
    covered = np.zeros((len(masks), len(inputs)), dtype=int)
    for unit in everything:
        covered[np.ix_(unit.variants, unit.inputs)] += 1
        assert unit.values.shape[:2] == (len(unit.variants), len(unit.inputs))
        assert len({int(masks[v].any(axis=1).argmax()) for v in unit.variants}) == 1
    assert (covered == 1).all()
    for skip in (1, 5, len(everything)):
        rest = list(units(encoder, inputs, read, masks, tokens=60, skip=skip))
        assert len(rest) == len(everything) - skip
        for ours, theirs in zip(rest, everything[skip:], strict=True):
            np.testing.assert_array_equal(ours.variants, theirs.variants)
            assert ours.inputs == theirs.inputs
            np.testing.assert_array_equal(ours.values, theirs.values)


def test_progress_counts_units_and_can_end_the_evaluation(encoder):
    inputs, masks = inputs_of(encoder), single_heads(*shape_of(encoder))
    seen: list[int] = []
    evaluate(encoder, inputs, read, masks, tokens=60, on_progress=seen.append)
    assert seen == list(range(1, count_units(inputs, masks, tokens=60) + 1))

    def stop(number):
        if number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(encoder, inputs, read, masks, tokens=60, on_progress=stop)


def test_nothing_asked_for_gives_nothing(root):
    model = opened(root, "bert", "headless")
    assert evaluate(model, inputs_of(model), read, np.zeros((0, 3, 4), dtype=bool)).shape == (0, 6, 0)
    assert evaluate(model, [], read, single_heads(3, 4)).shape == (12, 0, 0)
    assert plain(model, [], read, single_heads(3, 4)).shape == (12, 0, 0)
    assert plain(model, inputs_of(model), read, np.zeros((0, 3, 4), dtype=bool)).shape == (0, 6, 0)


@pytest.mark.parametrize("way", [evaluate, plain])
def test_masks_and_means_of_another_shape_are_refused(root, way):
    model = opened(root, "bert", "headless")
    inputs = inputs_of(model)
    with pytest.raises(OptionError, match=r"2 x 4 layers x heads, but the model has 3 x 4|Give booleans"):
        way(model, inputs, read, single_heads(2, 4))
    for means in (None, np.zeros((3, 4, 5), dtype=np.float32)):
        with pytest.raises(OptionError, match=r"means of the shape \(3, 4, 8\)"):
            way(model, inputs, read, single_heads(3, 4), replacement="mean", means=means)


def test_the_mean_contexts_are_those_of_all_real_tokens(encoder):
    inputs = inputs_of(encoder)
    expected = []
    for row in inputs:
        batch = {name: torch.tensor([ids]) for name, ids in row.items()}
        with torch.no_grad():
            run(encoder.network, batch, Probe(on_contexts=lambda _, context, __: expected.append(context[0])))
    layers = encoder.geometry.layers
    means = np.stack([torch.cat(expected[layer::layers]).mean(0).numpy() for layer in range(layers)])
    for tokens in (1, 2000):
        np.testing.assert_allclose(mean_contexts(encoder, inputs, tokens=tokens), means, atol=CLOSE)
    with pytest.raises(OptionError, match="no texts"):
        mean_contexts(encoder, [])


def test_masks_of_single_heads_and_of_all_but_one():
    single, rest = single_heads(3, 4), all_but_one(3, 4)
    assert single.shape == rest.shape == (12, 3, 4)
    for number in range(12):
        layer, head = divmod(number, 4)
        assert single[number].sum() == 1
        assert single[number, layer, head]
        assert rest[number].sum() == 3
        assert rest[number, layer].sum() == 3
        assert not rest[number, layer, head]


def test_masks_of_sets_and_pairs():
    heads = [Head(0, 1), Head(2, 3), Head(1, 0)]
    assert np.argwhere(one_set(heads, (3, 4))[0]).tolist() == [[0, 1], [1, 0], [2, 3]]
    assert one_set([], (3, 4)).shape == (1, 3, 4)
    pairs = pairs_of(heads, (3, 4))
    assert [np.argwhere(pair).tolist() for pair in pairs] == [
        [[0, 1], [2, 3]],
        [[0, 1], [1, 0]],
        [[1, 0], [2, 3]],
    ]
    assert pairs_of(heads[:1], (3, 4)).shape == (0, 3, 4)


@pytest.mark.parametrize("make", [one_set, pairs_of])
def test_heads_out_of_range_or_twice_are_refused(make):
    for head in (Head(3, 0), Head(0, 4), Head(-1, 0), Head(0, -1)):
        with pytest.raises(OptionError, match=f"There is no head {head} in 3 layers x 4 heads"):
            make([Head(0, 0), head], (3, 4))
    with pytest.raises(OptionError, match="Head L1·H2 is given twice"):
        make([Head(1, 2), Head(0, 0), Head(1, 2)], (3, 4))


def test_the_bundled_model_does_no_more_work_than_the_bound(bundled):
    """Of 72 passes' work 40 are left: what leads to the first touched attention, and its q, k and v, run once.

    Counted are the rows of tokens that each layer's matrices see. Switching a head of layer l off redoes W_O and
    the two wider matrices of layer l, 9/12 of its parameters, and all of the layers above it.
    """
    inputs = [encode(bundled, f"A {word} is eating.").inputs for word in ("man", "cat", "dog", "horse")]
    tokens = sum(len(row["input_ids"]) for row in inputs)
    rows = {}
    hooks = []
    for number, layer in enumerate(bundled.network.encoder.layer):
        self_attention = layer.attention.self
        parts = {
            "query": self_attention.query, "key": self_attention.key, "value": self_attention.value,
            "output": layer.attention.output.dense, "up": layer.intermediate.dense, "down": layer.output.dense,
        }  # fmt: skip
        for name, module in parts.items():

            def count(module, args, _, at=(number, name)):
                rows.setdefault(at, []).append((args[0][..., 0].numel(), module.weight.numel()))

            hooks.append(module.register_forward_hook(count))
    said = evaluate(bundled, inputs, read, single_heads(6, 12))
    for hook in hooks:
        hook.remove()
    work = sum(n * size for calls in rows.values() for n, size in calls)
    of_one_pass = sum(tokens * calls[0][1] for calls in rows.values())
    assert work / of_one_pass == pytest.approx(1 + 12 * (15 + 6 * 9 / 12) / 6)  # 40 of 72
    for (number, name), calls in rows.items():
        again = 12 * (number if name in ("query", "key", "value") else number + 1)
        assert sum(n for n, _ in calls) == tokens * (1 + again)
    expected = plain(bundled, inputs, read, single_heads(6, 12))
    np.testing.assert_allclose(said, expected, atol=1e-6)


def test_real_classifier(sst2):
    texts = [
        "a gripping, funny film",
        "dull",
        "it never quite comes together, for all its charm and its money.",
    ]
    inputs = [encode(sst2, text).inputs for text in texts]
    masks = single_heads(*shape_of(sst2))[::7]
    for replacement in REPLACEMENTS:
        options = {"replacement": replacement, "means": mean_contexts(sst2, inputs)}
        said = evaluate(sst2, inputs, read, masks, **options)
        np.testing.assert_allclose(said, plain(sst2, inputs, read, masks, tokens=1, **options), atol=CLOSE)


def test_a_draft_is_close_and_leaves_the_model_in_float32(bundled):
    inputs = [encode(bundled, text).inputs for text in TEXTS]
    masks = single_heads(6, 12)[::5]
    exact = evaluate(bundled, inputs, read, masks)
    draft = evaluate(bundled, inputs, read, masks, dtype=torch.bfloat16)
    assert draft.dtype == np.float32
    assert 0 < np.abs(draft - exact).max() < 5e-3
    assert all(parameter.dtype == torch.float32 for parameter in bundled.network.parameters())
    np.testing.assert_array_equal(evaluate(bundled, inputs, read, masks), exact)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_draft_of_each_family(root, family):
    for kind in KINDS:
        model = opened(root, family, kind)
        inputs = inputs_of(model)
        masks = protocols(model)["any"]
        exact = evaluate(model, inputs, read, masks)
        draft = evaluate(model, inputs, read, masks, dtype=torch.bfloat16)
        assert 0 < np.abs(draft - exact).max() < 0.2 * np.abs(exact).max()


def test_stacks_hold_the_budget(encoder, monkeypatch):
    inputs, masks = inputs_of(encoder), single_heads(*shape_of(encoder))
    sizes = []

    def note(outputs, padded, which):
        sizes.append(padded["input_ids"].numel())
        return read(outputs, padded, which)

    longest = max(len(row["input_ids"]) for row in inputs)
    evaluate(encoder, inputs, note, masks, tokens=100)
    assert max(sizes) <= max(100, longest)
    monkeypatch.setattr(ablation, "STACK", 1)
    sizes.clear()
    evaluate(encoder, inputs, note, masks, tokens=100)
    assert max(sizes) <= 100
