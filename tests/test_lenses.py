"""The lenses against plain references: rollout as a loop, what is carried as real vectors, scores as weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import analysis.capture
from analysis.capture import attend, capture, toy_tokens
from analysis.lenses import carried, head_vectors, lengths, norm_weighted, products, rollout, scores
from analysis.maps import AttentionMaps, Head, block, in_units, with_specials, without_queries
from analysis.messages import OptionError, TextError
from analysis.models import open_model
from analysis.toy import make_toy
from tests import tiny
from tests.test_maps import random_maps, tokens_of
from tests.test_probe import hooks_of

TEXT = "The cat didn't cross the street because it was unbelievable, too tired."
PAIR = ("The cat sat on a mat.", "Is a dog too tired?")
TEXTS = [(TEXT, None), PAIR]
BIASED = "modernbert with biases"
WORDS = [["[C]"], ["un", "##bel", "##ief"], ["ran"], ["too", "##o"], ["[S]"]]


@pytest.fixture(scope="module")
def sources(tmp_path_factory, bundled):
    """A tiny model of each family, the toy with biases that are not 0, and the bundled model."""
    root = tmp_path_factory.mktemp("lenses")
    opened = {
        family: open_model(str(tiny.save_tiny(root / family, family, initializer_range=0.15)))
        for family in tiny.FAMILIES
    }
    opened[BIASED] = open_model(
        str(tiny.save_tiny(root / "biased", "modernbert", attention_bias=True, initializer_range=0.15))
    )
    toy = make_toy(d_model=24, num_heads=3, seed=5)
    with torch.no_grad():
        for matrix in (toy.module.query, toy.module.key, toy.module.value, toy.module.output):
            matrix.bias.copy_(torch.linspace(-1, 1, 24))
    return {**opened, "toy": toy, "bundled": bundled}


NETWORKS = [*tiny.FAMILIES, BIASED]
ALL = [*NETWORKS, "toy", "bundled"]


def softmax(values, attendable=None):
    """Return the softmax of each row over the keys that may be attended, in float64."""
    values = values.astype(np.float64)
    if attendable is not None:
        values = np.where(attendable, values, -np.inf)
    grown = np.exp(values - values.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


def heads_of(maps):
    """Return every head of the maps."""
    return [Head(layer, index) for layer in range(maps.layers) for index in range(maps.heads)]


# Rollout


def plain_rollout(weights):
    """Return [layer, query, key] by the definition, a cell at a time."""
    layers, heads, n, _ = weights.shape
    flow = np.zeros((layers, n, n))
    for layer in range(layers):
        below = flow[layer - 1] if layer else np.eye(n)
        for i in range(n):
            row = [sum(weights[layer, h, i, j] + (i == j) for h in range(heads)) / heads for j in range(n)]
            for k in range(n):
                flow[layer, i, k] = sum(row[j] / sum(row) * below[j, k] for j in range(n))
    return flow


def maps_of(weights, **values):
    """Return maps with the given weights [layer, head, n, n] over n words."""
    tokens = tokens_of([[f"w{i}"] for i in range(np.shape(weights)[-1])])
    return AttentionMaps(tokens, tokens, np.asarray(weights, dtype=np.float32), "test", **values)


def test_rollout_equals_a_plain_loop():
    maps = random_maps(WORDS, layers=3, heads=2, seed=4)
    flow = rollout(maps)
    assert flow.weights.shape == (3, 1, len(maps.queries), len(maps.keys))
    assert flow.weights.dtype == np.float32
    np.testing.assert_allclose(flow.weights[:, 0], plain_rollout(maps.weights), atol=1e-6)
    assert np.abs(flow.weights[2, 0] - maps.weights[2].mean(0)).max() > 0.1


def test_rollout_by_hand():
    first, second = [[0.5, 0.5], [1, 0]], [[0, 1], [0.5, 0.5]]
    flow = rollout(maps_of([[first], [second]])).weights[:, 0]
    np.testing.assert_allclose(flow[0], [[0.75, 0.25], [0.5, 0.5]], atol=1e-7)
    np.testing.assert_allclose(flow[1], [[0.625, 0.375], [0.5625, 0.4375]], atol=1e-7)
    both = rollout(maps_of([[first, second]])).weights[0, 0]  # two heads of one layer: their mean
    np.testing.assert_allclose(both, [[0.625, 0.375], [0.375, 0.625]], atol=1e-7)


def test_rollout_of_heads_that_look_at_themselves_is_the_identity():
    same = np.broadcast_to(np.eye(5), (4, 3, 5, 5))
    np.testing.assert_array_equal(rollout(maps_of(same)).weights, np.broadcast_to(np.eye(5), (4, 1, 5, 5)))


@pytest.mark.parametrize("n", [1, 2, 7])
def test_rollout_of_even_attention(n):
    """A' = (J/n + I) / 2, and its power: half of what is left of the token itself passes by each layer."""
    flow = rollout(maps_of(np.full((6, 2, n, n), 1 / n))).weights[:, 0]
    for layer in range(6):
        left = 2.0 ** -(layer + 1)
        np.testing.assert_allclose(flow[layer], (1 - left) / n + left * np.eye(n), atol=1e-6)


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 8), st.integers(1, 4))
def test_rows_of_rollout_sum_to_1(seed, n, layers, heads):
    maps = random_maps([[f"w{i}"] for i in range(n)], seed=seed, layers=layers, heads=heads)
    flow = rollout(maps).weights
    np.testing.assert_allclose(flow.sum(-1), 1, atol=1e-6)
    assert (flow >= 0).all()
    least = 2.0 ** -np.arange(1, layers + 1)[:, None] * (1 - 1e-5)
    assert (np.diagonal(flow[:, 0], axis1=1, axis2=2) >= least).all()  # I: half passes by each layer


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("text", "pair"), TEXTS, ids=["one", "pair"])
def test_rollout_of_what_is_captured(sources, name, text, pair):
    maps = capture(sources[name], text, pair)
    flow = rollout(maps)
    assert (flow.source, flow.notes, flow.attendable) == (maps.source, maps.notes, None)
    assert flow.queries is maps.queries
    assert flow.heads == 1
    np.testing.assert_allclose(flow.weights.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(in_units(flow, "words").weights.sum(-1), 1, atol=1e-5)


def test_rollout_reaches_over_a_local_window(sources):
    maps = capture(sources["modernbert"], TEXT)
    assert maps.attendable is not None
    assert maps.weights[1, :, 0, -1].max() == 0
    assert rollout(maps).weights[1, 0, 0, -1] > 0


def test_rollout_of_a_view_or_of_two_texts_is_refused(sources):
    pair, toy = capture(sources["bert"], *PAIR), sources["toy"]
    twice = capture(sources["bert"], "a cat", "a cat")
    refused = [
        attend(toy, toy_tokens("a cat sat"), toy_tokens("the dog")),
        attend(toy, toy_tokens("a cat"), toy_tokens("the dog")),
        block(pair, "AB"),
        block(pair, "AA"),
        block(twice, "AB"),
        with_specials(block(twice, "AB"), "renormalise"),
        with_specials(pair, "hide"),
        without_queries(pair, pair.queries.special),
        pair.at(Head(1, 2)),
    ]
    for maps in refused:
        n, m = len(maps.queries), len(maps.keys)
        with pytest.raises(OptionError, match=f"maps of {n} x {m} tokens .* needs whole ones"):
            rollout(maps)


# What is carried


def passes(network, inputs):
    """Return of each layer (x, W_V and b_V, W_O and b_O, what W_O gave), by hooks on the modules of its values."""
    ends = ("self.value", "attention.value", "v_lin", "Wqkv"), ("attention.output.dense", "attention.dense", "out_lin", "attn.Wo")  # fmt: skip
    calls, hooks = ([], []), []
    for side, names in enumerate(ends):
        for name, module in network.named_modules():
            if name.endswith(names):
                hooks.append(
                    module.register_forward_hook(
                        lambda module, args, out, side=side: calls[side].append((module, args[0], out))
                    )
                )
    with torch.no_grad():
        network(**inputs)
    for hook in hooks:
        hook.remove()
    width = network.config.hidden_size
    found = []
    for (values, x, _), (output, _, out) in zip(*calls, strict=True):
        weight, bias = values.weight[-width:], 0 if values.bias is None else values.bias[-width:]
        found.append((x[0], weight, bias, output.weight, 0 if output.bias is None else output.bias, out[0]))
    return found


def toy_passes(toy, text):
    """Return the same of the toy."""
    states = analysis.capture.embed(toy, list(toy_tokens(text).labels))
    out, _ = toy.module(states)
    value, output = toy.module.value, toy.module.output
    return [(states[0], value.weight, value.bias, output.weight, output.bias, out[0])]


def vectors(x, weight, bias, output, heads):
    """Return f(x) = (x W_V + b_V) W_O of each head: [head, key, model] in float64, every vector really built."""
    x, weight, output = x.double(), weight.double(), output.double()
    bias = torch.zeros(len(weight)) if isinstance(bias, int) else bias
    width = len(weight) // heads
    parts = [slice(h * width, (h + 1) * width) for h in range(heads)]
    return torch.stack([(x @ weight[p].T + bias[p].double()) @ output[:, p].T for p in parts])


@pytest.mark.parametrize("name", [*NETWORKS, "toy"])
def test_lengths_are_those_of_vectors_that_add_up_to_the_output_of_attention(sources, name):
    source = sources[name]
    maps, found = capture(source, TEXT), lengths(source, TEXT)
    if name == "toy":
        layers = toy_passes(source, TEXT)
    else:
        layers = passes(source.network, source.tokenizer(TEXT, return_tensors="pt"))
    assert found.shape == (maps.layers, maps.heads, len(maps.keys))
    assert found.dtype == np.float32
    assert len(layers) == maps.layers
    for layer, (x, weight, bias, output, bias_out, out) in enumerate(layers):
        built = vectors(x, weight, bias, output, maps.heads)
        alpha = torch.tensor(maps.weights[layer]).double()
        together = torch.einsum("hqk,hkm->qm", alpha, built) + bias_out
        torch.testing.assert_close(together, out.double(), atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(found[layer], built.norm(dim=-1).numpy(), rtol=1e-5, atol=1e-6)
        each = torch.einsum("hqk,hkm->hqkm", alpha, built).norm(dim=-1).numpy()
        np.testing.assert_allclose(carried(maps, found)[layer], each, rtol=1e-4, atol=1e-6)
        spread = found[layer].max(-1) / found[layer].min(-1)
        assert (spread > 1.1).any(), "all tokens are as long: this test would see nothing"


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("text", "pair"), TEXTS, ids=["one", "pair"])
def test_shares_of_what_is_carried(sources, name, text, pair):
    maps, long = capture(sources[name], text, pair), lengths(sources[name], text, pair)
    shares = norm_weighted(maps, long)
    assert (shares.source, shares.notes, shares.queries) == (maps.source, maps.notes, maps.queries)
    assert shares.attendable is maps.attendable
    assert shares.weights.dtype == np.float32
    np.testing.assert_allclose(shares.weights.sum(-1), 1, atol=1e-5)
    parts = carried(maps, long)
    np.testing.assert_allclose(shares.weights * parts.sum(-1, keepdims=True), parts, rtol=1e-4, atol=1e-6)
    assert np.abs(shares.weights - maps.weights).max() > 0.02
    words = in_units(shares, "words")
    np.testing.assert_allclose(words.weights.sum(-1), 1, atol=1e-5)
    assert name == "toy" or pair is not None or len(words.keys) < len(maps.keys)


def test_carried_by_hand():
    maps = maps_of([[[[0.5, 0.5], [1, 0]]]])
    long = np.array([[[3, 1]]], dtype=np.float32)
    np.testing.assert_allclose(carried(maps, long)[0, 0], [[1.5, 0.5], [3, 0]])
    np.testing.assert_allclose(norm_weighted(maps, long).weights[0, 0], [[0.75, 0.25], [1, 0]])


def test_tokens_of_equal_length_leave_the_weights_as_they_are():
    maps = random_maps(WORDS)
    shares = norm_weighted(maps, np.full((2, 3, len(maps.keys)), 7, dtype=np.float32))
    np.testing.assert_allclose(shares.weights, maps.weights, atol=1e-6)


def test_a_row_that_carries_nothing_stays_0():
    maps = maps_of([[[[0.5, 0.5], [1, 0]]]])
    before = maps.weights.copy()
    shares = norm_weighted(maps, np.array([[[0, 2]]], dtype=np.float32)).weights[0, 0]
    np.testing.assert_array_equal(shares, [[0, 1], [0, 0]])
    np.testing.assert_array_equal(maps.weights, before)


def test_lengths_of_other_tokens_are_refused():
    maps = random_maps(WORDS)
    long = np.ones((2, 3, len(maps.keys)), dtype=np.float32)
    for view in (in_units(maps, "words"), with_specials(maps, "hide"), maps.at(Head(1, 1))):
        for lens in (carried, norm_weighted):
            with pytest.raises(OptionError, match=f"lengths for 2 x 3 x {len(maps.keys)} .* as captured"):
                lens(view, long)


def test_the_bundled_model_carries_little_from_special_tokens(bundled):
    """The finding of Kobayashi et al. 2020, section 4: what attention rests on is short."""
    maps = capture(bundled, TEXT)
    shares = norm_weighted(maps, lengths(bundled, TEXT))
    resting, taken = (m.weights[..., maps.keys.special].sum(-1).mean() for m in (maps, shares))
    assert resting > 0.4
    assert taken < 0.75 * resting


# Why


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("text", "pair"), TEXTS, ids=["one", "pair"])
def test_the_softmax_of_the_scores_is_what_is_captured(sources, name, text, pair):
    source = sources[name]
    maps = capture(source, text, pair)
    for head in heads_of(maps)[:: 5 if name == "bundled" else 1]:
        found = head_vectors(source, text, pair, head)
        assert found.queries.dtype == found.keys.dtype == scores(found).dtype == np.float32
        np.testing.assert_allclose(
            softmax(scores(found), found.attendable), maps.weights[head.layer, head.index], atol=1e-5
        )
        expected = None if maps.attendable is None else maps.attendable[head.layer]
        if found.attendable is None:
            assert expected is None or expected.all()
        else:
            np.testing.assert_array_equal(found.attendable, expected)
            assert not expected.all()


@pytest.mark.parametrize("name", ALL)
def test_the_products_sum_to_the_score(sources, name):
    maps = capture(sources[name], TEXT)
    for head in (Head(0, 1), Head(maps.layers - 1, maps.heads - 1)):
        found = head_vectors(sources[name], TEXT, None, head)
        n, width = found.queries.shape
        table = scores(found)
        assert table.shape == (n, n) == maps.weights.shape[2:]
        for query in range(0, n, 3):
            for key in range(n):
                parts = products(found, query, key)
                assert parts.shape == (width,)
                assert parts.dtype == np.float32
                assert parts.sum() == pytest.approx(table[query, key], rel=1e-4, abs=1e-5)
        by_hand = found.queries[1, 2] * found.keys[0, 2] / np.sqrt(width)
        assert products(found, 1, 0)[2] == pytest.approx(by_hand, rel=1e-5)


def test_scores_outside_the_window_of_modernbert_are_no_weights(sources):
    found = head_vectors(sources["modernbert"], TEXT, None, Head(1, 0))
    n = len(found.queries)
    np.testing.assert_array_equal(
        found.attendable, np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 4
    )
    weights = capture(sources["modernbert"], TEXT).weights[1, 0]
    assert np.abs(softmax(scores(found)) - weights).max() > 0.05, "the window would not matter here"
    assert head_vectors(sources["modernbert"], TEXT, None, Head(0, 0)).attendable is None


# What is refused, and what is left as it was


@pytest.mark.parametrize("name", ["bert", "toy"])
@pytest.mark.parametrize("head", [Head(9, 0), Head(0, 9), Head(-1, 0), Head(0, -1)], ids=str)
def test_a_head_that_is_not_there_is_refused_as_by_the_maps(sources, name, head):
    with pytest.raises(OptionError) as expected:
        capture(sources[name], TEXT).at(head)
    with pytest.raises(OptionError) as caught:
        head_vectors(sources[name], TEXT, None, head)
    assert str(caught.value) == str(expected.value)
    assert "There is no head" in str(caught.value)


@pytest.mark.parametrize("name", ["bert", "toy"])
def test_what_cannot_be_captured_has_no_lenses(sources, name, monkeypatch):
    for text, pair in [(" ", None), ("a cat", ""), ("", "a cat")]:
        with pytest.raises(TextError) as expected:
            capture(sources[name], text, pair)
        for lens in (lambda *t: lengths(sources[name], *t), lambda *t: head_vectors(sources[name], *t, Head(0, 0))):  # fmt: skip
            with pytest.raises(TextError) as caught:
                lens(text, pair)
            assert str(caught.value) == str(expected.value)
    monkeypatch.setattr(analysis.capture, "MOST_BYTES", 100)
    with pytest.raises(TextError, match="Shorten the text"):
        head_vectors(sources[name], TEXT, None, Head(0, 0))
    with pytest.raises(TextError, match="Shorten the text"):
        lengths(sources[name], TEXT)


def test_the_bundled_model_is_never_changed(bundled):
    network = bundled.network
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    config, hooks, before = network.config.to_dict(), hooks_of(network), capture(bundled, TEXT)
    norm_weighted(before, lengths(bundled, TEXT))
    rollout(before)
    scores(head_vectors(bundled, *PAIR, Head(3, 1)))
    after = network.state_dict()
    assert after.keys() == state.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in state.items())
    assert all(not parameter.requires_grad for parameter in network.parameters())
    assert network.config.to_dict() == config
    assert hooks_of(network) == hooks
    assert not network.training
    np.testing.assert_array_equal(capture(bundled, TEXT).weights, before.weights)
