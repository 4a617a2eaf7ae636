"""The sentence of six words: eight heads set by hand, the blocks they write, and the output as a sum over them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.capture import capture
from analysis.maps import Head
from analysis.messages import OptionError
from analysis.planted import ROLES, eight_heads, one_head, split_again
from analysis.six_words import SENTENCES, blocks, maps_of, mix, readouts, sentence, without
from analysis.statistics import row_entropy
from analysis.toy import make_toy

CAT = 1  # the place of the subject
HEADS = len(ROLES)


def look(role, query):
    """Return where one of the eight heads looks from one query."""
    return readouts(maps_of(eight_heads(), sentence()), query)[list(ROLES).index(role)]


@pytest.mark.parametrize("language", list(SENTENCES))
def test_one_head_looks_nearly_everywhere(language):
    maps = maps_of(one_head(), sentence(language))
    rows = [readouts(maps, query)[0] for query in range(6)]
    assert all(2.53 <= round(row.bits, 2) <= 2.58 for row in rows)
    assert all(round(row.most, 2) == 2.58 for row in rows)
    cat = rows[CAT]
    assert cat.query_label == cat.key_label == ("cat" if language == "en" else "kucing")
    assert (cat.key, round(cat.weight, 2), round(cat.bits, 2)) == (CAT, 0.22, 2.54)
    assert maps.weights[0, 0, CAT].argsort()[-2] == 4  # the object comes next: one row mixes the two
    assert "by hand" in str(maps.notes[0])


def test_the_position_head():
    cat = look("position", CAT)
    assert (cat.key, round(cat.weight, 2)) == (CAT, 0.47)
    assert abs(cat.bits - 2.0) < 0.01
    weights = maps_of(eight_heads(), sentence()).weights[0, 0]
    for query in range(6):
        ratios = weights[query] / weights[query, query]
        np.testing.assert_allclose(ratios, np.exp(-0.86 * np.abs(np.arange(6) - query)), rtol=1e-5)


@pytest.mark.parametrize(("role", "key"), [("subject", 1), ("object", 4), ("first", 0), ("punctuation", 5)])
def test_a_head_that_looks_for_one_token_finds_it_from_everywhere(role, key):
    for query in range(6):
        found = look(role, query)
        assert found.key == key
        assert found.weight == pytest.approx(math.exp(3) / (math.exp(3) + 5), abs=1e-6)
        assert found.bits < 1.2


def test_the_heads_for_the_same_word_and_for_the_next():
    weights = dict(zip(ROLES, maps_of(eight_heads(), sentence()).weights[0], strict=True))
    assert weights["same"][0, [0, 3]] == pytest.approx([weights["same"][3, 0]] * 2)  # "The" and "the"
    assert weights["same"][0, 0] > 0.4
    assert (weights["same"].argmax(-1)[[1, 2, 4, 5]] == [1, 2, 4, 5]).all()
    assert weights["next"].argmax(-1).tolist() == [1, 2, 3, 4, 5, 5]
    np.testing.assert_allclose(weights["broad"], maps_of(one_head(), sentence()).weights[0, 0], atol=1e-6)


def test_both_languages_are_built_alike():
    one, other = (maps_of(eight_heads(), sentence(language)) for language in SENTENCES)
    np.testing.assert_array_equal(one.weights, other.weights)
    assert len(one.queries) == len(other.queries) == 6
    assert one.queries.labels != other.queries.labels
    assert one.weights.shape == (1, HEADS, 6, 6)
    np.testing.assert_allclose(one.weights.sum(-1), 1, atol=1e-6)
    with pytest.raises(OptionError, match=r"no sentence in fr\. Choose one of: en, id"):
        sentence("fr")


def test_readouts_of_a_real_model(bundled):
    maps = capture(bundled, "The cat chased the mouse.")
    bits, _ = row_entropy(maps)
    for layer in (0, bundled.geometry.layers - 1):
        found = readouts(maps, 2, layer=layer)
        assert [row.head for row in found] == [Head(layer, head) for head in range(bundled.geometry.heads)]
        for row in found:
            assert row.weight == maps.weights[layer, row.head.index, 2].max()
            assert row.bits == pytest.approx(bits[layer, row.head.index, 2])
            assert row.most == pytest.approx(math.log2(len(maps.keys)))
            assert row.key_label == maps.keys.labels[row.key]
    assert readouts(maps.at(Head(3, 5)), 2)[0].head == Head(3, 5)
    for query, layer in ((len(maps.queries), 0), (-1, 0), (0, bundled.geometry.layers)):
        with pytest.raises(OptionError, match=f"no query {query} in layer {layer}"):
            readouts(maps, query, layer=layer)


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_the_blocks_are_as_wide_as_the_states_however_many_heads(heads):
    module = split_again(eight_heads(), heads)
    assert sum(p.numel() for name, p in module.named_parameters() if name.endswith("weight")) == 16_384
    for name, value in eight_heads().state_dict().items():
        assert torch.equal(module.state_dict()[name], value)
    found = blocks(module, sentence().states)
    width = 64 // heads
    assert found.concat.shape == (6, 64)
    assert found.context.shape == (heads, 6, width)
    assert found.bounds == tuple((start, start + width) for start in range(0, 64, width))
    for (start, stop), context in zip(found.bounds, found.context, strict=True):
        np.testing.assert_array_equal(found.concat[:, start:stop], context)
    maps = maps_of(module, sentence())
    assert maps.heads == heads
    if heads == 4:
        assert found.bounds[:2] == ((0, 16), (16, 32))
    with pytest.raises(OptionError, match="64 cannot be split over 5 heads"):
        split_again(module, 5)


def test_the_output_is_a_sum_over_heads():
    module, x = eight_heads(), sentence().states
    found = mix(module, x)
    assert found.difference < 1e-14
    np.testing.assert_allclose(found.parts.sum(0) + found.bias, found.output, atol=1e-14)
    np.testing.assert_array_equal(found.output, module(x)[0][0].numpy())
    assert found.blocks.shape == (HEADS, 8, 64)
    assert found.blocks.size == 4096
    for head in range(HEADS):
        rows = module.output.weight.numpy().T[8 * head : 8 * head + 8]
        np.testing.assert_array_equal(found.blocks[head], rows)
        np.testing.assert_allclose(found.parts[head], found.context[head] @ rows, atol=1e-14)
    np.testing.assert_allclose(found.lengths, np.linalg.norm(found.parts, axis=-1))
    np.testing.assert_allclose(found.shares.sum(0) + found.bias_share, 1)
    assert (found.lengths > 0.1).all()
    assert np.abs(found.bias).max() > 0


@settings(max_examples=25)
@given(seed=st.integers(0, 99), heads=st.sampled_from([1, 2, 4, 8]), data=st.data())
def test_heads_are_taken_out_of_the_sum_one_by_one(seed, heads, data):
    module = make_toy(d_model=16, num_heads=heads, seed=seed).module.double()
    torch.nn.init.normal_(module.output.bias, generator=torch.Generator().manual_seed(seed))
    x = torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    off = np.array(data.draw(st.lists(st.booleans(), min_size=heads, max_size=heads)))
    whole, found = mix(module, x), without(module, x, off)
    assert whole.difference < 1e-12
    assert found.difference < 1e-12
    np.testing.assert_allclose(found.output, whole.parts[~off].sum(0) + whole.bias, atol=1e-12)
    if not off.any():
        np.testing.assert_allclose(found.cosine, 1)
        np.testing.assert_allclose(found.length, 1)
    elif off.all():
        np.testing.assert_allclose(found.output, np.tile(whole.bias, (5, 1)))
    else:
        assert (found.cosine < 1 - 1e-9).any()
    assert (np.abs(found.cosine) <= 1 + 1e-12).all()


def test_nothing_left_has_no_direction():
    module = make_toy(d_model=16, num_heads=2).module
    found = without(module, torch.ones(1, 3, 16), np.array([True, True]))
    np.testing.assert_array_equal(found.output, np.zeros((3, 16)))
    np.testing.assert_array_equal(found.cosine, 0)
    np.testing.assert_array_equal(found.length, 0)
    with pytest.raises(OptionError, match="There are 3 switches for 2 heads"):
        without(module, torch.ones(1, 3, 16), np.zeros(3, dtype=bool))
