"""Entropy by hand and within its bounds; planted patterns are named with the right counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.maps import AttentionMaps, Head, block
from analysis.statistics import describe, entropy, entropy_normalised, head_entropy, link, row_entropy
from tests.test_maps import random_maps, tokens_of

NINE = ["the", "cat", "sat", "on", "a", "mat", "and", "it", "ran"]


def planted(rows, words=None, attendable=None):
    """Return maps of one head with the weights ``rows``, over [CLS] words [SEP]."""
    rows = np.asarray(rows, dtype=np.float32)
    words = words or NINE
    tokens = tokens_of([["[CLS]"], *([w] for w in words), ["[SEP]"]])
    return AttentionMaps(tokens, tokens, rows[None, None], "test", attendable)


def pointing(targets, n=11):
    """Return rows that each give .9 to one target and the rest evenly to the others."""
    rows = np.full((n, n), 0.1 / (n - 1))
    rows[np.arange(n), targets] = 0.9
    return rows


def said(maps):
    """Return the sentence of the one head."""
    return str(describe(maps, Head(0, 0)))


def test_a_one_hot_row_has_entropy_zero_and_not_minus_zero():
    for dtype in (np.float16, np.float32, np.float64):
        for n in (1, 2, 5, 8, 33):
            bits = entropy(np.eye(n, dtype=dtype))
            assert (bits == 0).all()
            assert not np.signbit(bits).any()
            share = entropy_normalised(np.eye(n, dtype=dtype), n)
            assert (share == 0).all()
            assert not np.signbit(share).any()


@pytest.mark.parametrize("n", [2, 3, 7, 16, 512])
def test_a_uniform_row_has_the_most_entropy(n):
    rows = np.full((4, n), 1 / n, dtype=np.float32)
    np.testing.assert_allclose(entropy(rows), np.log2(n), rtol=1e-5)
    np.testing.assert_allclose(entropy_normalised(rows, n), 1, rtol=1e-5)
    assert (entropy_normalised(rows, n) <= 1).all()


def test_entropy_by_hand():
    assert entropy(np.array([[0.5, 0.25, 0.25]]))[0] == pytest.approx(1.5)
    assert entropy_normalised(np.array([[0.5, 0.25, 0.25]]), 3)[0] == pytest.approx(1.5 / np.log2(3))
    assert entropy_normalised(np.array([[0.5, 0.5, 0, 0]]), 2)[0] == pytest.approx(1)


def test_half_precision_is_computed_in_float32():
    rows = np.full((1, 512), 1 / 512, dtype=np.float16)
    assert entropy(rows).dtype == np.float32
    assert entropy(rows)[0] == pytest.approx(9, abs=1e-5)
    assert entropy(rows.astype(np.float64)).dtype == np.float64


ROWS = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 30)), elements=st.floats(0, 1)).filter(
    lambda rows: (rows.sum(-1) > 1e-3).all()
)


@given(ROWS)
def test_entropy_lies_between_0_and_its_maximum(rows):
    rows = rows / rows.sum(-1, keepdims=True)
    bits, share = entropy(rows), entropy_normalised(rows, rows.shape[-1])
    assert (bits >= 0).all()
    assert (bits <= np.log2(rows.shape[-1]) + 1e-9).all()
    assert (share >= 0).all()
    assert (share <= 1).all()
    order = np.random.default_rng(0).permutation(rows.shape[-1])
    np.testing.assert_allclose(entropy(rows[:, order]), bits, atol=1e-9)


def test_the_maximum_counts_the_keys_that_may_be_attended():
    causal = np.tri(4, dtype=bool)
    rows = causal / causal.sum(-1, keepdims=True)
    maps = planted(rows, ["a", "b"], causal[None])
    bits, share = head_entropy(maps)
    np.testing.assert_allclose(bits[0, 0], np.log2([1, 2, 3, 4]).mean(), rtol=1e-6)
    np.testing.assert_allclose(share[0, 0], 3 / 4, rtol=1e-6)  # the first has one key only: 0
    open_to_all = planted(rows, ["a", "b"])
    assert head_entropy(open_to_all)[1][0, 0] < 0.75


def test_the_maximum_of_a_local_window():
    maps = random_maps([[w] for w in NINE], window=1, layers=1, heads=1)
    rows = maps.attendable[0] / maps.attendable[0].sum(-1, keepdims=True)
    maps = AttentionMaps(
        maps.queries, maps.keys, rows[None, None].astype(np.float32), "test", maps.attendable
    )
    np.testing.assert_allclose(head_entropy(maps)[1], 1, rtol=1e-5)


def test_the_mean_is_over_queries_for_each_head():
    maps = random_maps([["a"], ["b"], ["c"]], layers=3, heads=2)
    bits, share = head_entropy(maps)
    assert bits.shape == share.shape == (3, 2)
    rows = maps.weights[2, 1].astype(np.float64)
    expected = -(rows * np.log2(np.where(rows > 0, rows, 1))).sum(-1).mean()
    assert bits[2, 1] == pytest.approx(expected, rel=1e-5)
    assert share[2, 1] == pytest.approx(expected / np.log2(3), rel=1e-5)


def test_one_token_has_entropy_zero():
    bits, share = head_entropy(random_maps([["a"]]))
    assert (bits == 0).all()
    assert (share == 0).all()


def test_no_tokens_have_no_entropy():
    maps = block(random_maps([["[CLS]"], ["a"]]), "BB")
    assert np.isnan(head_entropy(maps)).all()
    assert "no words" in said(maps)


def test_a_link_over_all_heads():
    maps = random_maps([["a"], ["b"]])
    np.testing.assert_array_equal(link(maps, 0, 1), maps.weights[:, :, 0, 1])


@pytest.mark.parametrize(
    ("step", "words", "count"),
    [(-1, "the previous word", 8), (1, "the next word", 8), (0, "the word itself", 9)],
)
def test_a_head_that_looks_at_one_offset_is_named(step, words, count):
    targets = np.clip(np.arange(11) + step, 0, 10)
    assert said(planted(pointing(targets))) == f"looks at {words} for {count} of {count} words"
    targets[[2, 4]] = 8 if step < 1 else 7
    assert said(planted(pointing(targets))) == f"looks at {words} for {count - 2} of {count} words"


def test_special_tokens_have_no_vote():
    targets = np.arange(11) - 1
    targets[[0, -1]] = 5
    assert said(planted(pointing(targets))) == "looks at the previous word for 8 of 8 words"


def test_a_head_that_rests_on_the_first_token_is_named_with_its_strongest_link():
    targets = np.zeros(11, dtype=int)
    targets[8] = 2  # "it" to "cat"
    sentence = said(planted(pointing(targets)))
    assert (
        sentence == "rests on [CLS] for 8 of 9 words; its strongest link between words is “it” to “cat”, 0.90"
    )


def test_a_head_that_looks_at_one_word_is_named():
    assert said(planted(pointing(np.full(11, 6)))) == "looks at “mat” for 9 of 9 words"


def test_a_broad_head_is_named():
    assert said(planted(np.full((11, 11), 1 / 11))) == (
        "looks nearly everywhere: entropy 3.46 bits, 100% of the most possible"
    )


def test_a_head_that_does_no_one_thing_is_named_with_its_strongest_link():
    targets = np.array([0, 4, 7, 1, 9, 2, 9, 3, 5, 6, 10])
    rows = pointing(targets)
    rows[8] *= 1.05  # "it", which looks at "a"
    assert said(planted(rows)) == "does no one thing; its strongest link between words is “it” to “a”, 0.94"


def test_from_one_sentence_to_an_equal_one_there_is_no_previous_word():
    words = [["[CLS]"], ["the"], ["cat"], ["sat"], ["[SEP]"], ["the"], ["cat"], ["sat"], ["[SEP]"]]
    maps = random_maps(words, segments=[-1, 0, 0, 0, -1, 1, 1, 1, -1], layers=1, heads=1)
    targets = np.array([0, 5, 6, 7, 0, 1, 2, 3, 0])
    maps = AttentionMaps(maps.queries, maps.keys, pointing(targets, 9)[None, None].astype(np.float32), "test")
    assert "itself" not in said(block(maps, "AB"))


def test_the_bundled_models_heads_are_named(bundled):
    from analysis.capture import capture

    maps = capture(bundled, "The animal didn't cross the street because it was too tired.")
    # Fourteen pieces: two are punctuation, and the first has no word before it.
    assert str(describe(maps, Head(0, 2))) == "looks at the previous word for 11 of 11 words"


def test_specials_in_the_entropy_by_hand():
    # [CLS] a b [SEP]: the row of "a" gives half to [CLS] and a quarter to each word.
    tokens = tokens_of([["[CLS]"], ["a"], ["b"], ["[SEP]"]], [-1, 0, 0, -1])
    row = [0.5, 0.25, 0.25, 0.0]
    weights = np.array([[[[1, 0, 0, 0], row, row, [1, 0, 0, 0]]]], dtype=np.float32)
    maps = AttentionMaps(queries=tokens, keys=tokens, weights=weights, source="test")
    assert row_entropy(maps)[0][0, 0].tolist() == [0, 1.5, 1.5, 0]
    assert row_entropy(maps, "hide")[0][0, 0].tolist() == [1.5, 1.5]  # the row is whole, [CLS] included
    assert row_entropy(maps, "hide")[1][0, 0].tolist() == [0.75, 0.75]  # of log2 4 bits
    assert row_entropy(maps, "renormalise")[0][0, 0].tolist() == [1.0, 1.0]  # half and half of what is left
    assert row_entropy(maps, "renormalise")[1][0, 0].tolist() == [1.0, 1.0]
    for specials in ("keep", "hide", "renormalise"):
        bits, normalised = head_entropy(maps, specials)
        assert bits[0, 0] == row_entropy(maps, specials)[0].mean()
        assert normalised[0, 0] == row_entropy(maps, specials)[1].mean()


def test_nothing_left_has_no_entropy():
    tokens = tokens_of([["[CLS]"], ["[SEP]"]], [-1, -1])
    maps = AttentionMaps(
        queries=tokens, keys=tokens, weights=np.full((1, 1, 2, 2), 0.5, dtype=np.float32), source="test"
    )
    assert np.isnan(head_entropy(maps, "hide")[0]).all()
    assert np.isnan(head_entropy(maps, "renormalise")[1]).all()


def test_a_link_is_a_share_of_what_is_left():
    tokens = tokens_of([["[CLS]"], ["a"], ["b"], ["[SEP]"]], [-1, 0, 0, -1])
    row = [0.5, 0.1, 0.3, 0.1]
    maps = AttentionMaps(
        queries=tokens, keys=tokens, weights=np.array([[[row] * 4]], dtype=np.float32), source="test"
    )
    assert link(maps, 1, 2)[0, 0] == np.float32(0.3)
    assert link(maps, 1, 2, specials="hide")[0, 0] == np.float32(0.3)
    assert link(maps, 1, 2, specials="renormalise")[0, 0] == pytest.approx(0.75, abs=1e-6)


def test_beside_a_special_token_is_no_word():
    # One word that looks at [CLS] before it, and at [SEP] after it: neither is a word beside it.
    tokens = tokens_of([["[CLS]"], ["unbelievable"], ["[SEP]"]], [-1, 0, -1])
    for target in (0, 2):
        weights = np.zeros((1, 1, 3, 3), dtype=np.float32)
        weights[..., target] = 1
        maps = AttentionMaps(queries=tokens, keys=tokens, weights=weights, source="test")
        assert "word" not in str(describe(maps, Head(0, 0))).split(";")[0].replace("words", "")
