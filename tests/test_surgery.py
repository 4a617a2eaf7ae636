"""Heads removed for good: masked = removed = saved and reopened = zeroed, in every family, and nothing else is touched."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from analysis.ablation import evaluate, mean_contexts, plain
from analysis.capture import capture_batch, capture_outputs
from analysis.importance import importance
from analysis.maps import read_heads
from analysis.messages import ModelError, OptionError
from analysis.models import open_model
from analysis.probe import Probe, removed, run
from analysis.saving import save_model, smaller
from analysis.surgery import sizes, without, zeroed
from tests import tiny
from tests.test_ablation import TEXTS, inputs_of, protocols, read
from tests.test_importance import problem_of

FAMILIES = [family for family in tiny.FAMILIES if family != "albert"]
KINDS = ("headless", "classification", "masked")
FORMS = [(family, kind) for family in FAMILIES for kind in KINDS]
SHAPE = tiny.LAYERS, tiny.HEADS
LENGTHS = [24, 11, 3]  # ModernBERT's window of 8 reaches 4 tokens to each side
CLOSE = 1e-6


def mask_of(heads):
    """Return the mask of a list such as ``5.8,3.2``."""
    mask = np.zeros(SHAPE, dtype=bool)
    for head in read_heads(heads):
        mask[head.layer, head.index] = True
    return mask


MASKS = {
    "one head": mask_of("1.2"),
    "uneven heads": mask_of("0.0,0.3,2.1"),
    "all but one of a layer": mask_of("1.0,1.1,1.3"),
    "a whole layer": mask_of("1.0,1.1,1.2,1.3"),
    "everything but one": ~mask_of("2.3"),
}
UNEVEN = mask_of("0.1,0.2,1.0,1.1,1.2,1.3,2.0")  # with a layer that has none left


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Return a function that opens a tiny model, saved once and shared: nothing may change it."""
    root, models = tmp_path_factory.mktemp("tiny"), {}

    def open_tiny(family, kind="headless"):
        if (family, kind) not in models:
            models[family, kind] = open_model(
                str(tiny.save_tiny(root / f"{family}-{kind}", family, kind, seed=2))
            )
        return models[family, kind]

    return open_tiny


def said(network, mask=None):
    """Return what a network says of the real tokens of a padded batch, with the heads of ``mask`` switched off."""
    inputs = tiny.batch_of(network, LENGTHS)
    gates = None if mask is None else torch.from_numpy(~mask[None]).float()
    with torch.no_grad():
        found = run(network, inputs, Probe(gates=gates))[0]
    return found[inputs["attention_mask"].bool()] if found.ndim == 3 else found


def assert_same(found, expected):
    torch.testing.assert_close(found, expected, atol=CLOSE, rtol=0)


def state_of(network):
    """Return all that a network holds: its parameters, and what its config says."""
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}, network.config.to_dict()


def assert_untouched(network, before):
    weights, config = before
    now = network.state_dict()
    assert now.keys() == weights.keys()
    assert all(torch.equal(now[name], tensor) for name, tensor in weights.items())
    assert network.config.to_dict() == config
    assert not removed(network).any()


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("form", FORMS, ids="-".join)
def test_masked_is_removed_is_reopened_is_zeroed(opened, tmp_path, form, name):
    model, mask = opened(*form), MASKS[name]
    before = state_of(model.network)
    whole, masked = said(model.network), said(model.network, mask)
    assert (masked - whole).abs().max() > 1e-2
    small = smaller(model, mask)
    assert_same(said(small.network), masked)
    assert type(small.network) is type(model.network)
    np.testing.assert_array_equal(small.gone, mask)
    save_model(small, tmp_path / "small", whole=model)
    again = open_model(str(tmp_path / "small"))
    assert_same(said(again.network), masked)
    assert (again.readout, again.geometry) == (model.readout, small.geometry)
    assert f"{mask.sum()} of {mask.size} heads were removed" in str(again.notes[0])
    save_model(model, tmp_path / "full", full_shape=mask)
    plainly = getattr(transformers, type(model.network).__name__).from_pretrained(tmp_path / "full").eval()
    assert "headroom" not in plainly.config._attn_implementation
    inputs = tiny.batch_of(model.network, LENGTHS)
    with torch.no_grad():
        found = plainly(**inputs)[0]
    assert_same(found[inputs["attention_mask"].bool()] if found.ndim == 3 else found, masked)
    assert_untouched(model.network, before)


@pytest.mark.parametrize("family", FAMILIES)
def test_two_rounds_are_one_also_across_a_file(opened, tmp_path, family):
    model = opened(family)
    first, second = mask_of("0.1,1.0,1.2"), mask_of("0.0,0.2,1.2,1.3,2.2")  # L1·H2 is gone by then
    both = first | second
    masked = said(model.network, both)
    one = smaller(model, first)
    before = one.network.config.pruned_heads.copy()
    two = smaller(one, second)
    assert_same(said(two.network), masked)
    assert one.network.config.pruned_heads == before
    assert_same(said(one.network), said(model.network, first))
    save_model(one, tmp_path / "one")
    again = smaller(open_model(str(tmp_path / "one")), second)
    save_model(again, tmp_path / "two")
    for found in (again, open_model(str(tmp_path / "two"))):
        assert_same(said(found.network), masked)
        np.testing.assert_array_equal(found.gone, both)
    config = json.loads((tmp_path / "two" / "config.json").read_text())
    assert config["pruned_heads"] == {"0": [0, 1, 2], "1": [0, 2, 3], "2": [2]}
    assert_same(said(without(two.network, np.ones(SHAPE, dtype=bool))), said(model.network, both | True))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_smaller_network_brought_back_to_full_shape_opens_anywhere(opened, tmp_path, family):
    model = opened(family)
    off = mask_of("2.3")
    save_model(smaller(model, UNEVEN), tmp_path / "full", full_shape=off)
    found = transformers.AutoModel.from_pretrained(tmp_path / "full", attn_implementation="headroom").eval()
    assert_same(said(found), said(model.network, UNEVEN | off))
    assert sizes(found) == sizes(model.network)
    assert not open_model(str(tmp_path / "full")).gone.any()


def test_layers_that_share_weights_are_refused_with_the_reason():
    network = tiny.tiny_network("albert")
    for make in (without, zeroed):
        with pytest.raises(ModelError, match="AlbertModel uses one and the same layer several times"):
            make(network, np.zeros((4, 4), dtype=bool))


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (2, 4), (3, 12)])
def test_a_mask_of_another_shape_is_refused(shape):
    network = tiny.tiny_network("bert")
    for make in (without, zeroed):
        with pytest.raises(OptionError, match=f"of {shape[0]} x {shape[1]} layers x heads.* has 3 x 4"):
            make(network, np.zeros(shape, dtype=bool))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("replacement", ["zero", "mean", "uniform"])
def test_further_heads_are_ablated_as_in_the_whole(opened, family, replacement):
    model = opened(family)
    small, whole = smaller(model, UNEVEN), replace(model, network=zeroed(model.network, UNEVEN))
    inputs = inputs_of(model)
    means = mean_contexts(small, inputs)
    expected = mean_contexts(model, inputs)
    np.testing.assert_allclose(means[0, ~UNEVEN[0]], expected[0, ~UNEVEN[0]], atol=CLOSE)
    assert not means[UNEVEN].any()
    options = {"replacement": replacement, "means": means}
    for masks in protocols(model).values():
        found = evaluate(small, inputs, read, masks, **options)
        np.testing.assert_allclose(found, plain(small, inputs, read, masks, **options), atol=1e-5)
        np.testing.assert_allclose(found, evaluate(whole, inputs, read, masks, **options), atol=1e-5)


@pytest.mark.parametrize("form", FORMS, ids="-".join)
def test_the_heads_that_are_left_look_as_in_the_masked_whole(opened, form):
    model = opened(*form)
    small = smaller(model, UNEVEN)
    masked = capture_outputs(model, TEXTS, UNEVEN).maps
    for found, expected in zip(capture_batch(small, TEXTS), masked, strict=True):
        np.testing.assert_allclose(found.weights[~UNEVEN], expected.weights[~UNEVEN], atol=2e-6)
        assert np.isnan(found.weights[UNEVEN]).all()
        assert np.isfinite(found.weights[~UNEVEN]).all()
    off = mask_of("2.1")
    found, expected = capture_outputs(small, TEXTS, off), capture_outputs(model, TEXTS, UNEVEN | off)
    real = found.inputs["attention_mask"].bool()
    for one, other in zip(found.outputs.values(), expected.outputs.values(), strict=True):
        each = real if one.ndim == 3 else slice(None)
        torch.testing.assert_close(one[each], other[each], atol=5e-6, rtol=0)


@pytest.mark.parametrize("task", ["similarity", "classification", "masked"])
@pytest.mark.parametrize("family", FAMILIES)
def test_importance_is_that_of_the_masked_whole(tmp_path, family, task):
    problem = problem_of(tmp_path, task, family)
    small = replace(problem, model=smaller(problem.model, UNEVEN))
    found, expected = importance(small), importance(problem, off=UNEVEN)
    np.testing.assert_allclose(found.each[:, ~UNEVEN], expected.each[:, ~UNEVEN], atol=2e-6, rtol=1e-4)
    assert found.absolute[~UNEVEN].min() > 0
    assert not found.each[:, UNEVEN].any()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_types_and_ties_are_kept(tmp_path, family, dtype):
    network = tiny.tiny_network(family, "masked").to(dtype)
    small = without(network, UNEVEN)
    assert {parameter.dtype for parameter in small.parameters()} == {dtype}
    assert not small.training
    assert not any(parameter.requires_grad for parameter in small.parameters())
    tied = [small]
    if dtype == torch.float32:
        folder = tiny.save_tiny(tmp_path / "m", family, "masked")
        save_model(smaller(open_model(str(folder)), UNEVEN), tmp_path / "small")
        tied.append(open_model(str(tmp_path / "small")).network)
    for one in tied:
        assert one.get_output_embeddings().weight is one.get_input_embeddings().weight
        assert all(module.in_features == module.weight.shape[1] for module in one.modules()
                   if isinstance(module, torch.nn.Linear))  # fmt: skip


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "distilbert"])
def test_a_checkpoint_that_transformers_4_pruned_opens_as_it_was(opened, tmp_path, family):
    model = opened(family)
    folder = tmp_path / "v4"
    tiny.save_tiny(folder, family, seed=2)
    gone, width = {"0": [1, 2], "2": [3]}, model.geometry.head_dim
    weights = load_file(folder / "model.safetensors")
    for layer, heads in gone.items():
        rows = [head * width + i for head in range(tiny.HEADS) if head not in heads for i in range(width)]
        for name in [name for name in weights if f"layer.{layer}.attention." in name]:
            if any(part in name for part in (".query.", ".key.", ".value.", ".q_lin.", ".k_lin.", ".v_lin.")):
                weights[name] = weights[name][rows].contiguous()
            elif name.endswith(("attention.output.dense.weight", "out_lin.weight")):
                weights[name] = weights[name][:, rows].contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {"pruned_heads": gone, "transformers_version": "4.40.0"}
    path.write_text(json.dumps(config))
    found = open_model(str(folder))
    assert_same(said(found.network), said(model.network, mask_of("0.1,0.2,2.3")))
    assert "3 of 12 heads were removed" in str(found.notes[0])


def test_sizes_are_those_counted_by_hand():
    network = tiny.tiny_network(
        "bert"
    )  # 3 layers x 4 heads of 8, feed-forward 48, 64 words, 64 places, 2 types
    layer = 4 * (32 * 32 + 32) + 64 + 32 * 48 + 48 + 48 * 32 + 32 + 64
    around = (64 + 64 + 2) * 32 + 64 + 32 * 32 + 32  # embeddings and their norm, the pooler
    whole = sizes(network, 10)
    assert (whole.parameters, whole.bytes, whole.tokens) == (around + 3 * layer, 4 * (around + 3 * layer), 10)
    assert whole.products == 3 * (10 * (4 * 32 * 32 + 2 * 32 * 48) + 2 * 10 * 10 * 32)
    head = (
        3 * (8 * 32 + 8) + 8 * 32
    )  # what one head has: rows of three matrices, their biases, columns of W_O
    for mask in MASKS.values():
        small, count = sizes(without(network, mask), 10), int(mask.sum())
        assert small.parameters == whole.parameters - count * head
        assert small.products == whole.products - count * (10 * 4 * 8 * 32 + 2 * 10 * 10 * 8)
        assert sizes(zeroed(network, mask), 10) == whole, "what is only masked is not smaller"
    assert sizes(network).products > whole.products


@pytest.mark.parametrize("family", FAMILIES)
def test_a_smaller_network_shares_no_memory_with_the_whole(family):
    network = tiny.tiny_network(family)
    before = state_of(network)
    for small in (
        without(network, UNEVEN),
        without(network, np.zeros(SHAPE, dtype=bool)),
        zeroed(network, UNEVEN),
    ):
        assert not {p.data_ptr() for p in small.parameters() if p.numel()} & {
            p.data_ptr() for p in network.parameters()
        }
        for parameter in small.parameters():
            parameter.fill_(torch.nan)
    assert_untouched(network, before)
    copy.deepcopy(without(network, UNEVEN))
