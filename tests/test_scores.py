"""Every metric with counts equals the plain metric on examples repeated that often."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as reference

from analysis import scores
from analysis.messages import HeadroomError
from analysis.scores import ACCURACY, MACRO_F1, MATTHEWS, MEAN, METRICS, PEARSON, SPEARMAN, check

PLAIN = {
    "spearman": lambda predictions, gold: stats.spearmanr(predictions, gold).statistic,
    "pearson": lambda predictions, gold: stats.pearsonr(predictions, gold).statistic,
    "accuracy": lambda predictions, gold: reference.accuracy_score(gold, predictions),
    "macro_f1": lambda predictions, gold: reference.f1_score(gold, predictions, average="macro"),
    "matthews": lambda predictions, gold: reference.matthews_corrcoef(gold, predictions),
    "mean": lambda predictions, gold: predictions.mean(),
}


def plain(name, predictions, gold):
    """Return what the reference says, without its warnings; NaN where gold is all of one class."""
    if name == "matthews" and len(set(gold.tolist())) == 1:
        return np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PLAIN[name](predictions, gold)


@st.composite
def situations(draw):
    """Return predictions [variant, example] and gold with many ties, and counts that add up to 2 or more."""
    variants, examples, replicates = (draw(st.integers(low, 6)) for low in (1, 2, 1))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    levels = draw(st.integers(1, 8))
    counts = rng.integers(0, 4, size=(replicates, examples))
    counts[:, 0] += 1
    counts[:, -1] += 1
    return rng.integers(levels, size=(variants, examples)), rng.integers(levels, size=examples), counts


@pytest.mark.parametrize("name", METRICS)
@given(situation=situations())
def test_counts_are_repeated_examples(name, situation):
    predictions, gold, counts = situation
    if METRICS[name].kind != "classes":
        predictions, gold = predictions / 8, gold / 5
    found = METRICS[name].score(predictions, gold, counts)
    assert found.shape == (len(predictions), len(counts))
    for variant, row in enumerate(predictions):
        for replicate, times in enumerate(counts):
            expected = plain(name, row.repeat(times), gold.repeat(times))
            np.testing.assert_allclose(found[variant, replicate], expected, rtol=0, atol=1e-12)
    ones = METRICS[name].score(predictions, gold, np.ones((1, len(gold)), dtype=int))
    np.testing.assert_array_equal(METRICS[name].score(predictions, gold), ones[:, 0])


@pytest.mark.parametrize("examples", [1800, 2600])  # below and above the limit of the faster type
@pytest.mark.parametrize("digits", [1, 8])  # with ties and without
def test_spearman_of_many_examples(examples, digits):
    rng = np.random.default_rng(examples + digits)
    gold = rng.random(examples).round(digits)
    predictions = (gold + rng.normal(size=(3, examples)) * [[0.01], [0.3], [3]]).round(digits)
    counts = rng.multinomial(examples, [1 / examples] * examples, size=4)
    found = SPEARMAN.score(predictions, gold, counts)
    for variant, row in enumerate(predictions):
        for replicate, times in enumerate(counts):
            expected = plain("spearman", row.repeat(times), gold.repeat(times))
            assert found[variant, replicate] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("examples", [2, 3, 1860, 1861, 1862, 2400])
def test_one_order_is_one_and_the_reverse_minus_one_where_sums_are_largest(examples):
    gold = np.arange(examples) * 1.0
    found = SPEARMAN.score(np.stack([gold, -gold]), gold, np.ones((1, examples), dtype=int))
    np.testing.assert_allclose(found, [[1], [-1]], rtol=0, atol=1e-15)


@pytest.mark.parametrize("heavy", [[465, 930, 465], [1, 1239, 620], [1858, 1, 1], [5000, 3, 7]])
def test_an_example_may_count_very_often(heavy):
    gold, predictions = np.array([0.0, 1.0, 2.0]), np.array([[1.0, 0.0, 2.0], [2.0, 2.0, 1.0]])
    found = SPEARMAN.score(predictions, gold, np.array([heavy]))
    for variant, row in enumerate(predictions):
        expected = plain("spearman", row.repeat(heavy), gold.repeat(heavy))
        assert found[variant, 0] == pytest.approx(expected, abs=1e-12)


def test_both_types_of_spearman_agree_exactly(monkeypatch):
    rng = np.random.default_rng(3)
    gold = rng.integers(20, size=500) / 4
    predictions = (gold + rng.normal(size=(5, 500))).round(2)
    counts = rng.multinomial(500, [1 / 500] * 500, size=20)
    assert scores._exact(counts.sum(axis=1) * 1.0) is np.int32
    fast = SPEARMAN.score(predictions, gold, counts)
    monkeypatch.setattr(scores, "_exact", lambda examples: np.float64)
    np.testing.assert_array_equal(SPEARMAN.score(predictions, gold, counts), fast)


@pytest.mark.parametrize("name", METRICS)
def test_what_is_held_at_a_time_changes_nothing(name, monkeypatch):
    rng = np.random.default_rng(4)
    gold, predictions = rng.integers(3, size=40), rng.integers(3, size=(7, 40))
    counts = rng.multinomial(40, [1 / 40] * 40, size=11)
    whole = METRICS[name].score(predictions, gold, counts)
    monkeypatch.setattr(scores, "CELLS", 3 * 40)
    np.testing.assert_allclose(METRICS[name].score(predictions, gold, counts), whole, rtol=0, atol=1e-14)


def test_offset_and_scale_change_no_correlation():
    rng = np.random.default_rng(5)
    gold = rng.random(300)
    predictions = gold + rng.normal(size=(2, 300))
    counts = rng.multinomial(300, [1 / 300] * 300, size=5)
    for metric, precision in ((PEARSON, 1e-9), (SPEARMAN, 0)):
        found = metric.score(predictions * 2**20 + 2**26, gold, counts)
        np.testing.assert_allclose(found, metric.score(predictions, gold, counts), rtol=0, atol=precision)


def test_single_precision_is_as_good():
    rng = np.random.default_rng(6)
    gold = rng.random(300)
    predictions = (gold + rng.normal(size=(2, 300))).astype(np.float32)
    for metric in (SPEARMAN, PEARSON, MEAN):
        np.testing.assert_array_equal(
            metric.score(predictions, gold), metric.score(predictions.astype(np.float64), gold)
        )


def test_a_replicate_without_variation_is_not_a_number():
    gold, predictions = np.array([1, 1, 2]), np.array([[3, 3, 1], [3, 1, 1]])
    counts = np.array([[1, 2, 0], [0, 1, 2]])
    for metric in (SPEARMAN, PEARSON):
        found = metric.score(predictions / 10, gold / 10, counts)
        assert np.isnan(found).tolist() == [[True, False], [True, True]]
    found = MATTHEWS.score(predictions, gold, counts)
    assert np.isnan(found).tolist() == [[True, False], [True, False]]
    assert found[1, 1] == 0  # all predictions of one class: no better than chance
    for metric in (ACCURACY, MACRO_F1):
        assert np.isfinite(metric.score(predictions, gold, counts)).all()


@pytest.mark.parametrize(
    ("metric", "predictions", "gold", "words"),
    [
        (SPEARMAN, [0.1, 0.2, 0.3], [2.5, 2.5, 2.5], ["all 3 examples is 2.5", "spearman", "another metric"]),
        (PEARSON, [0.1, 0.2], [4.0, 4.0], ["all 2 examples is 4.0", "pearson"]),
        (MATTHEWS, [0, 1], [1, 1], ["all 2 examples is 1", "matthews"]),
        (SPEARMAN, [0.1, 0.1], [1.0, 2.0], ["predicts 0.1 for all 2 examples", "other examples"]),
        (ACCURACY, [0, 1, 1], [0, 1], ["3 predictions and 2 gold"]),
        (SPEARMAN, [0.1, 0.2], None, ["2 predictions and 0 gold"]),
        (MEAN, [0.1], None, ["1 examples", "at least 2"]),
        (MEAN, [0.1, np.inf], None, ["example 2 is inf"]),
        (SPEARMAN, [0.1, 0.2], [np.nan, 1.0], ["example 1 is nan"]),
    ],
)
def test_what_cannot_be_scored_is_said(metric, predictions, gold, words):
    with pytest.raises(HeadroomError) as raised:
        check(metric, np.array(predictions), None if gold is None else np.array(gold))
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_what_can_be_scored_passes():
    for metric in METRICS.values():
        check(metric, np.array([0, 1, 1]), np.array([0, 1, 0]))
    check(MATTHEWS, np.array([1, 1]), np.array([0, 1]))
    check(MACRO_F1, np.array([1, 1]), np.array([1, 1]))
    check(MEAN, np.array([1.0, 1.0]), None)
