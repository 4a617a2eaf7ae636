"""The views of a map keep what it means: rows sum to 1, blocks reassemble, no strong link is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.maps import AttentionMaps, Head, block, in_units, pool, strongest, with_specials
from analysis.messages import OptionError
from analysis.tokens import Tokens


def tokens_of(words, segments=None):
    """Return tokens for words that are given as their pieces; ``[X]`` is special and in no sentence."""
    pieces = [(piece, w) for w, word in enumerate(words) for piece in word]
    special = np.array([piece.startswith("[") for piece, _ in pieces], dtype=bool)
    sides = segments if segments is not None else [0] * len(words)
    segment = np.array(
        [-1 if s else sides[w] for (_, w), s in zip(pieces, special, strict=True)], dtype=np.int64
    )
    texts, spans = ["", ""], []
    for i, (piece, w) in enumerate(pieces):
        side = segment[i]
        if side < 0:
            spans.append((0, 0))
            continue
        blank = " " if texts[side] and (i == 0 or pieces[i - 1][1] != w) else ""
        texts[side] += blank + piece
        spans.append((len(texts[side]) - len(piece), len(texts[side])))
    return Tokens(
        ids=np.arange(len(pieces)),
        labels=tuple(piece for piece, _ in pieces),
        spans=np.array(spans, dtype=np.int64).reshape(-1, 2),
        special=special,
        segment=segment,
        word=np.array([w for _, w in pieces], dtype=np.int64),
        texts=tuple(texts),
    )


def random_maps(words, *, segments=None, seed=0, window=None, layers=2, heads=3):
    """Return maps of random rows that sum to 1; with a window, only nearby keys may be attended."""
    tokens = tokens_of(words, segments)
    n = len(tokens)
    weights = (
        np.random.default_rng(seed).dirichlet(np.full(n, 0.3), size=(layers, heads, n)).astype(np.float32)
    )
    attendable = None
    if window is not None:
        near = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= window
        attendable = np.stack([near] * layers)
        weights = weights * near + near * 1e-3
        weights /= weights.sum(-1, keepdims=True)
    return AttentionMaps(
        queries=tokens, keys=tokens, weights=weights.astype(np.float32), source="test", attendable=attendable
    )


WORD = st.lists(st.sampled_from(["a", "b", "cc"]), min_size=1, max_size=3)
SENTENCE = st.lists(WORD, min_size=1, max_size=5)


@st.composite
def pairs(draw):
    """Return the arguments of `random_maps` for two sentences with their special tokens around them."""
    first, second = draw(SENTENCE), draw(SENTENCE)
    return {
        "words": [["[CLS]"], *first, ["[SEP]"], *second, ["[SEP]"]],
        "segments": [-1, *[0] * len(first), -1, *[1] * len(second), -1],
        "window": draw(st.none() | st.integers(0, 3)),
        "seed": draw(st.integers(0, 99)),
    }


@given(pairs())
def test_words_keep_rows_that_sum_to_one(pair):
    maps = random_maps(**pair)
    words = in_units(maps, "words")
    assert len(words.queries) == maps.queries.word[-1] + 1
    assert words.weights.shape[-2:] == (len(words.queries), len(words.keys))
    np.testing.assert_allclose(words.weights.sum(-1), 1, atol=1e-5)
    if words.attendable is not None:
        assert (words.weights[~np.broadcast_to(words.attendable[:, None], words.weights.shape)] == 0).all()
        assert (words.key_counts() == words.attendable.sum(-1)).all()
        assert (words.key_counts() >= 1).all()
    assert in_units(maps, "pieces") is maps


def test_words_by_hand():
    """Pieces a, b+c: to the word the columns are summed, from it the rows are averaged."""
    maps = random_maps([["a"], ["b", "c"]])
    weights = np.array([[0.2, 0.3, 0.5], [0.6, 0.4, 0.0], [0.0, 0.2, 0.8]], dtype=np.float32)
    maps = AttentionMaps(maps.queries, maps.keys, weights[None, None], "test")
    words = in_units(maps, "words")
    np.testing.assert_allclose(words.weights[0, 0], [[0.2, 0.8], [0.3, 0.7]], atol=1e-7)
    assert words.queries.labels == ("a", "bc")


def test_a_word_may_attend_what_one_of_its_pieces_may():
    maps = random_maps([["a"], ["b", "c"], ["d"]], window=1)
    expected = [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    assert in_units(maps, "words").attendable[0].astype(int).tolist() == expected


@given(pairs())
def test_specials_kept_hidden_and_renormalised(pair):
    maps = random_maps(**pair)
    assert with_specials(maps, "keep") is maps
    keep = np.flatnonzero(~maps.keys.special)
    hidden = with_specials(maps, "hide")
    np.testing.assert_array_equal(hidden.weights, maps.weights[:, :, keep][..., keep])
    assert not hidden.keys.special.any()
    full = with_specials(maps, "renormalise")
    total = full.weights.sum(-1)
    np.testing.assert_allclose(total[hidden.weights.sum(-1) > 0], 1, atol=1e-5)
    assert (total[hidden.weights.sum(-1) == 0] == 0).all()
    assert np.isfinite(full.weights).all()
    if maps.attendable is not None:
        np.testing.assert_array_equal(hidden.attendable, maps.attendable[:, keep][..., keep])


def test_a_row_that_lies_on_special_tokens_stays_zero():
    maps = random_maps([["[CLS]"], ["a"], ["b"]])
    weights = np.array([[1, 0, 0], [1, 0, 0], [0.5, 0.1, 0.4]], dtype=np.float32)
    maps = AttentionMaps(maps.queries, maps.keys, weights[None, None], "test")
    np.testing.assert_allclose(with_specials(maps, "hide").weights[0, 0], [[0, 0], [0.1, 0.4]])
    np.testing.assert_allclose(
        with_specials(maps, "renormalise").weights[0, 0], [[0, 0], [0.2, 0.8]], atol=1e-6
    )


@given(pairs())
def test_the_four_blocks_of_a_pair_reassemble(pair):
    maps = random_maps(**pair)
    aa, ab, ba, bb = (block(maps, name).weights for name in ("AA", "AB", "BA", "BB"))
    inside = np.flatnonzero(maps.queries.segment >= 0)
    expected = maps.weights[:, :, inside][..., inside]
    np.testing.assert_array_equal(
        np.concatenate([np.concatenate([aa, ab], -1), np.concatenate([ba, bb], -1)], -2), expected
    )
    assert block(maps, "all") is maps
    assert maps.is_pair
    one = block(maps, "AB")
    assert set(one.queries.segment) == {0}
    assert set(one.keys.segment) == {1}
    assert one.weights.shape[-2:] == (len(one.queries), len(one.keys))
    if maps.attendable is not None:
        assert one.attendable.shape == (2, len(one.queries), len(one.keys))


def test_one_sentence_is_no_pair():
    assert not random_maps([["[CLS]"], ["a"], ["[SEP]"]]).is_pair


@given(n=st.integers(1, 40), m=st.integers(1, 40), side=st.integers(1, 50), seed=st.integers(0, 99))
def test_pooling_keeps_the_maxima(n, m, side, seed):
    weights = np.random.default_rng(seed).random((2, n, m))
    small = pool(weights, side)
    assert small.shape == (2, min(n, side), min(m, side))
    np.testing.assert_array_equal(small.max((-2, -1)), weights.max((-2, -1)))
    assert small.min() >= weights.min()
    assert np.isin(small, weights).all()
    if n <= side and m <= side:
        np.testing.assert_array_equal(small, weights)
    edges = lambda size: (np.arange(min(size, side)) * size) // min(size, side)  # noqa: E731
    for i, (a, b) in enumerate(zip(edges(n), [*edges(n)[1:], n], strict=True)):
        assert small[0, i].max() == weights[0, a:b].max()


@given(n=st.integers(1, 9), m=st.integers(1, 9), seed=st.integers(0, 99))
def test_the_strongest_link_is_the_largest(n, m, seed):
    weights = np.random.default_rng(seed).random((n, m))
    assert weights[strongest(weights)] == weights.max()
    assert strongest(np.ones((n, m))) == (0, 0)


def test_one_head_alone():
    maps = random_maps([["a"], ["b"], ["c"]], window=1)
    one = maps.at(Head(1, 2))
    np.testing.assert_array_equal(one.weights, maps.weights[1:2, 2:3])
    assert one.attendable.shape == (1, 3, 3)
    assert np.shares_memory(one.weights, maps.weights)
    assert str(Head(5, 8)) == "L5·H8"


@pytest.mark.parametrize("head", [Head(2, 0), Head(0, 3), Head(-1, 0), Head(0, -1)])
def test_a_head_that_is_not_there_is_named_with_the_limits(head):
    with pytest.raises(OptionError) as caught:
        random_maps([["a"], ["b"]]).at(head)
    assert str(caught.value) == f"There is no head {head}: this model has layers 0 to 1 and heads 0 to 2."


def test_key_counts():
    assert random_maps([["a"], ["b"], ["c"]]).key_counts().tolist() == [[3, 3, 3]] * 2
    assert random_maps([["a"], ["b"], ["c"]], window=1).key_counts().tolist() == [[2, 3, 2]] * 2
