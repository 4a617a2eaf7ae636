"""Aligned tokens, differences over their union, and the change of every head."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from analysis.capture import capture, toy_tokens
from analysis.compare import align, changes, difference, divergence, on_union
from analysis.maps import AttentionMaps, Head, in_units, with_specials
from analysis.models import open_model
from analysis.toy import make_toy
from tests import tiny

WORDS = st.lists(st.sampled_from(["a", "b", "c", "A", "the", "not"]), min_size=1, max_size=8).map(" ".join)


def maps_of(text, weights):
    tokens = toy_tokens(text)
    return AttentionMaps(tokens, tokens, np.asarray(weights, dtype=np.float32)[None, None], "by hand")


def test_a_word_put_in_stands_alone():
    found = align(toy_tokens("She did say so"), toy_tokens("She did not say so"))
    assert found.labels == ("She", "did", "not", "say", "so")
    assert found.first.tolist() == [0, 1, -1, 2, 3]
    assert found.second.tolist() == [0, 1, 2, 3, 4]
    assert found.shared.tolist() == [0, 1, 3, 4]


def test_a_word_exchanged_stands_on_both_sides():
    found = align(toy_tokens("a red car"), toy_tokens("A blue car"))
    assert found.labels == ("a", "red", "blue", "car")
    assert found.first.tolist() == [0, 1, -1, 2]
    assert found.second.tolist() == [0, -1, 1, 2]


@given(WORDS, WORDS)
def test_every_token_stands_once_and_in_order(one, two):
    found = align(toy_tokens(one), toy_tokens(two))
    for places, text in ((found.first, one), (found.second, two)):
        assert places[places >= 0].tolist() == list(range(len(text.split())))
    assert ((found.first >= 0) | (found.second >= 0)).all()
    for place in found.shared:
        a, b = one.split()[found.first[place]], two.split()[found.second[place]]
        assert a.casefold() == b.casefold()


def test_the_difference_by_hand():
    first = maps_of("x y", [[0.5, 0.5], [0.0, 1.0]])
    second = maps_of("x not y", [[0.25, 0.75, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.0, 0.0, 1.0]])
    alignment = align(first.queries, second.queries)
    found = difference(first, second, alignment)[0, 0]
    np.testing.assert_allclose(found[0], [-0.25, 0.75, -0.5])
    assert np.isnan(found[1]).all()  # the first has no such query
    np.testing.assert_allclose(found[2], [0, 0, 0])
    wanted = jensenshannon([0.5, 0, 0.5], [0.25, 0.75, 0], base=2) ** 2
    assert changes(first, second, alignment)[0, 0] == pytest.approx(wanted / 2, abs=1e-6)


def test_the_ends_of_the_change():
    one, other = [[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]
    first, second = maps_of("x y", one), maps_of("x y", other)
    alignment = align(first.queries, second.queries)
    assert changes(first, first, alignment)[0, 0] == 0
    assert changes(first, second, alignment)[0, 0] == 1
    nothing = maps_of("p q", one)
    assert np.isnan(changes(first, nothing, align(first.queries, nothing.queries))[0, 0])


@given(
    st.integers(2, 6).flatmap(lambda n: st.tuples(*[st.lists(st.floats(0, 1), min_size=n, max_size=n)] * 2))
)
def test_the_divergence_is_that_of_scipy_and_symmetric(rows):
    one, two = (np.array(row) + 1e-3 for row in rows)
    one, two = one / one.sum(), two / two.sum()
    found = divergence(one[None], two[None])[0]
    assert found == pytest.approx(jensenshannon(one, two, base=2) ** 2, abs=1e-9)
    assert found == divergence(two[None], one[None])[0]
    assert 0 <= found <= 1


def test_a_minimal_pair_under_the_bundled_model(bundled):
    first, second = (
        in_units(capture(bundled, text), "words")
        for text in ("She did say that he was wrong.", "She did not say that he was wrong.")
    )
    alignment = align(first.queries, second.queries)
    assert [alignment.labels[i] for i in np.flatnonzero(alignment.first < 0)] == ["not"]
    found = changes(first, second, alignment)
    assert found.shape == (6, 12)
    assert ((found > 0) & (found < 1)).all()
    same = changes(first, first, align(first.queries, first.queries))
    assert same.max() == 0
    one = difference(first.at(Head(3, 1)), second.at(Head(3, 1)), alignment)
    rows = one[0, 0][alignment.shared]
    np.testing.assert_allclose(rows.sum(-1), 0, atol=1e-5)  # both rows sum to 1


@pytest.mark.parametrize("family", ["roberta", "modernbert"])
def test_special_tokens_meet_by_what_they_are_for(bundled, tmp_path, family):
    other = open_model(str(tiny.save_tiny(tmp_path / family, family)))
    ours, theirs = (in_units(capture(model, "the cat sat"), "words") for model in (bundled, other))
    alignment = align(ours.queries, theirs.queries)
    assert len(alignment.shared) == len(ours.queries) == len(theirs.queries)


def test_a_real_model_beside_the_toy(bundled):
    ours, toys = (in_units(capture(source, "The cat sat."), "words") for source in (bundled, make_toy()))
    alignment = align(ours.queries, toys.queries)
    assert alignment.labels == ("[CLS]", "The", "cat", "sat", ".", "[SEP]")
    assert alignment.second.tolist() == [-1, 0, 1, 2, 3, -1]
    on = on_union(toys, alignment.second)
    assert np.isnan(on[:, :, 0]).all()
    assert (on[:, :, 1:5, 0] == 0).all()
    plain = with_specials(ours, "renormalise")
    assert len(align(plain.queries, toys.queries).shared) == 4
