"""Masked, crossed, unscaled, reordered, measured, and in context: the equalities and trends of the teaching pages."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.cost import Cost, cost, costs, growth
from analysis.messages import OptionError, TextError
from analysis.models import open_model
from analysis.planted import eight_heads
from analysis.senses import ALIKE, TEXTS, WORD, senses
from analysis.six_words import sentence
from analysis.toy import embed, make_toy, softmax
from analysis.variations import WIDTHS, causal, cross, reorder, scaling, softmax_gradient
from tests import tiny

WORDS = st.lists(st.sampled_from(["fish", "eat", "ikan", "makan", "the", "big"]), min_size=1, max_size=6)


@pytest.mark.parametrize("module", [eight_heads(), make_toy().module.double()], ids=["planted", "random"])
def test_the_causal_mask_is_a_triangle_before_the_softmax(module):
    x = sentence().states
    found = causal(module, x)
    future = np.triu(np.ones((6, 6), dtype=bool), 1)
    np.testing.assert_array_equal(found.allowed, ~future)
    assert (found.weights[:, future] == 0).all()
    np.testing.assert_array_equal(found.weights[:, 0], np.eye(6)[[0] * 8])
    assert np.isneginf(found.masked[:, future]).all()
    np.testing.assert_array_equal(found.masked[:, ~future], found.scores[:, ~future])
    np.testing.assert_allclose(found.weights, softmax(found.masked), atol=1e-12)
    open_weights = module(x)[1][0].numpy()  # what is left of them, brought back to 1
    left = np.where(future, 0, open_weights)
    np.testing.assert_allclose(found.weights, left / left.sum(-1, keepdims=True), atol=1e-12)


def test_crossed_maps_are_n_by_m():
    toy = make_toy()
    maps = cross(toy, "ikan makan", "the big fish eats")
    assert maps.weights.shape == (1, 8, 2, 4)
    assert maps.queries.labels == ("ikan", "makan")
    assert maps.keys.labels == ("the", "big", "fish", "eats")
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-6)
    with torch.no_grad():
        expected = toy.module(embed(toy, list(maps.queries.labels)), embed(toy, list(maps.keys.labels)))[1]
    np.testing.assert_array_equal(maps.weights[0], expected[0].numpy())
    with pytest.raises(TextError, match="no text to read"):
        cross(toy, "ikan", " ")


def test_without_the_scale_the_softmax_saturates():
    found = scaling()
    assert found.widths.tolist() == list(WIDTHS) == [4, 8, 16, 32, 64, 128, 256, 512]
    assert found.most == math.log2(found.keys) == 4
    np.testing.assert_allclose(found.plain.deviation, np.sqrt(found.widths), rtol=0.1)
    np.testing.assert_allclose(found.scaled.deviation, 1, atol=0.1)
    np.testing.assert_allclose(found.plain.deviation, found.scaled.deviation * np.sqrt(found.widths))
    assert (np.diff(found.plain.entropy) < 0).all()
    assert found.plain.entropy[-1] < 0.5
    np.testing.assert_allclose(found.scaled.entropy, found.scaled.entropy.mean(), atol=0.1)
    assert found.scaled.entropy.min() > 3
    assert (np.diff(found.plain.gradient[2:]) < 0).all()
    assert found.plain.gradient[-1] < found.plain.gradient[0] / 50
    np.testing.assert_allclose(found.scaled.gradient, found.scaled.gradient.mean(), rtol=0.05)


@settings(max_examples=25)
@given(scores=arrays(np.float64, st.integers(1, 6), elements=st.floats(-20, 20)))
def test_the_gradient_is_that_of_autograd(scores):
    jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), torch.from_numpy(scores))
    found = float(softmax_gradient(softmax(scores)))
    # of a difference of squares near 1 the last 1e-16 are lost, and the root of that is 1e-8
    assert found == pytest.approx(float(jacobian.norm()), abs=3e-8)
    assert found <= math.sqrt(0.5) + 1e-12


@settings(max_examples=30)
@given(words=WORDS, seed=st.integers(0, 99), data=st.data())
def test_moving_words_moves_rows_and_nothing_else(words, seed, data):
    order = data.draw(st.permutations(range(len(words))))
    found = reorder(make_toy(d_model=16, num_heads=2, seed=seed), words, order)
    assert found.plain.same
    assert found.moved == tuple(words[i] for i in order)
    np.testing.assert_allclose(found.plain.moved_output, found.plain.output[list(order)], atol=1e-12)
    moved = [words[i] for i in order] != words
    assert found.positioned.same == (list(order) == list(range(len(words))))
    if moved:
        assert found.positioned.difference > 1e-3


@pytest.mark.parametrize("words", [["fish", "eat"], ["ikan", "makan"]])
def test_two_words_exchanged(words):
    found = reorder(make_toy(), words, [1, 0])
    assert found.moved == tuple(reversed(words))
    assert found.plain.same
    assert found.plain.difference <= 1e-12
    np.testing.assert_allclose(found.plain.moved_output, found.plain.output[::-1], atol=1e-12)
    np.testing.assert_allclose(found.plain.moved_weights, found.plain.weights[:, ::-1, ::-1], atol=1e-12)
    assert not found.positioned.same
    assert found.positioned.difference > 0.1


@pytest.mark.parametrize("order", [[0, 0], [0], [0, 2], []])
def test_an_order_that_is_none_is_refused(order):
    with pytest.raises(OptionError, match="every place from 0 to 1 once"):
        reorder(make_toy(), ["fish", "eat"], order)
    with pytest.raises(OptionError, match="take 1 at least"):
        reorder(make_toy(), [], [])


def test_maps_grow_with_the_square_of_the_length():
    found = list(costs((16, 32, 64), heads=2, head_dim=8))
    lengths = [one.tokens for one in found]
    assert lengths == [16, 32, 64]
    assert [one.map_bytes for one in found] == [4 * 2 * n**2 for n in lengths]
    assert [one.state_bytes for one in found] == [4 * 4 * 2 * 8 * n for n in lengths]
    assert all(one.seconds > 0 and one.fused_seconds > 0 for one in found)
    assert growth(lengths, [one.map_bytes for one in found]) == pytest.approx(2)
    assert growth(lengths, [one.state_bytes for one in found]) == pytest.approx(1)
    assert isinstance(cost(8, repeats=1), Cost)


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(TextError, match=r"more than the .* allowed"):
        cost(100_000)
    with pytest.raises(OptionError, match="take 1 at least"):
        cost(0)
    with pytest.raises(OptionError, match="needs two lengths at least, not 1"):
        growth([4, 4], [1.0, 2.0])


def test_one_word_in_two_senses(bundled):
    found = senses(bundled)
    assert found.word == WORD == "bank"
    assert found.places[0] == found.places[1]
    assert found.embedding == found.positioned == pytest.approx(1, abs=1e-12)
    assert found.layers.shape == (bundled.geometry.layers,)
    assert (found.layers < 0.95).all()
    assert found.layers[-1] < 0.8
    alike = senses(bundled, texts=ALIKE)
    assert (alike.layers > found.layers).all()
    assert found.vectors.shape == (2, bundled.geometry.layers + 2, bundled.geometry.width)


def test_another_position_makes_another_vector_before_any_layer(bundled):
    found = senses(bundled, texts=(TEXTS[0], "The Bank opened an account."))
    assert found.places == (5, 2)
    assert found.embedding == pytest.approx(1, abs=1e-12)
    assert found.positioned < 0.99


def test_the_vectors_are_those_of_the_model(bundled):
    found = senses(bundled)
    inputs = bundled.tokenizer(list(TEXTS), padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = bundled.network(**inputs, output_hidden_states=True).hidden_states
    for row in range(2):
        expected = np.stack([state[row, found.places[row]].numpy() for state in hidden])
        np.testing.assert_allclose(found.vectors[row, 1:], expected, atol=1e-5)


def test_a_word_of_several_pieces_is_averaged(bundled):
    found = senses(bundled, "bisa", ("Bisa ular itu berbahaya.", "Saya bisa berenang."))
    assert found.embedding == pytest.approx(1)
    ids = bundled.tokenizer("bisa", add_special_tokens=False)["input_ids"]
    assert len(ids) > 1
    expected = bundled.network.get_input_embeddings().weight[ids].double().mean(0)
    np.testing.assert_allclose(found.vectors[0, 0], expected.numpy())


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_family_has_its_states(family, tmp_path):
    model = open_model(str(tiny.save_tiny(tmp_path, family)))
    before = {name: value.clone() for name, value in model.network.state_dict().items()}
    found = senses(model)
    assert found.embedding == pytest.approx(1)
    assert found.layers.shape == (model.geometry.layers,)
    assert (found.layers < 1 - 1e-6).all()
    assert all(torch.equal(value, before[name]) for name, value in model.network.state_dict().items())


@pytest.mark.parametrize("word", ["river", "  "])
def test_a_word_that_one_text_lacks_is_named(bundled, word):
    with pytest.raises(TextError, match="There is no word"):
        senses(bundled, word, (TEXTS[0], TEXTS[1]))
