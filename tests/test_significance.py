"""Planted changes are found, idle ones are none, and intervals and tests hold what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from analysis import scores
from analysis.messages import HeadroomError, OptionError
from analysis.scores import ACCURACY, MACRO_F1, MATTHEWS, MEAN, PEARSON, SPEARMAN
from analysis.significance import _differences, adjusted, changes, draws, interval_of_score, p_values


def planted(seed=0, examples=500, hurt=(0.0, 1e-9, 0.02, 0.6)):
    """Return gold, the whole model's predictions, and those of variants that add this much noise to them."""
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, 26, size=examples) / 5
    whole = gold + rng.normal(size=examples)
    return gold, whole, whole + rng.normal(size=(len(hurt), examples)) * np.array(hurt)[:, None]


def equal(first, second):
    """Assert that two results hold the same bits."""
    for name, value in vars(first).items():
        np.testing.assert_array_equal(value, getattr(second, name), err_msg=name)


# Intervals


def spearman(indices, axis, predictions, gold):
    """Return Spearman's correlation of the drawn examples, ranked anew."""
    ranks = (stats.rankdata(values[indices], axis=axis) for values in (predictions, gold))
    x, y = (part - part.mean(axis=axis, keepdims=True) for part in ranks)
    return (x * y).sum(axis=axis) / np.sqrt((x**2).sum(axis=axis) * (y**2).sum(axis=axis))


def test_intervals_are_those_of_scipy():
    gold, whole, ablated = planted(examples=300)
    found = changes(SPEARMAN, whole, ablated, gold)
    for variant in (2, 3):

        def change(indices, axis, predictions=ablated[variant]):
            return spearman(indices, axis, predictions, gold) - spearman(indices, axis, whole, gold)

        expected = stats.bootstrap(
            (np.arange(300),), change, n_resamples=4000, batch=500, method="percentile", rng=1
        )
        ends = np.array([found.low[variant], found.high[variant]])
        # The end of an interval of B replicates is known to 2.7 standard errors / sqrt(B).
        assert np.abs(ends - np.array(expected.confidence_interval)).max() < 0.2 * expected.standard_error


def test_the_interval_of_one_score_is_that_of_scipy():
    gold, whole, _ = planted(examples=300)
    score, low, high = interval_of_score(SPEARMAN, whole, gold)
    expected = stats.bootstrap(
        (np.arange(300),),
        lambda indices, axis: spearman(indices, axis, whole, gold),
        n_resamples=4000,
        batch=500,
        method="percentile",
        rng=1,
    )
    assert score == pytest.approx(stats.spearmanr(whole, gold).statistic, abs=1e-12)
    ends = np.array([low, high]) - np.array(expected.confidence_interval)
    assert np.abs(ends).max() < 0.2 * expected.standard_error
    assert interval_of_score(SPEARMAN, whole, gold) == (score, low, high)


def test_pairing_makes_intervals_narrower():
    gold, whole, ablated = planted()
    found = changes(SPEARMAN, whole, ablated, gold, replicates=1000)
    _, low, high = interval_of_score(SPEARMAN, whole, gold, replicates=1000)
    assert found.high[2] - found.low[2] < (high - low) / 4


def test_every_replicate_counts_as_many_examples_as_there_are():
    counts = draws(50, range(400), 3)
    assert counts.shape == (400, 50)
    assert (counts.sum(axis=1) == 50).all()
    assert (counts >= 0).all()
    assert counts.mean(axis=0) == pytest.approx(1, abs=0.3)
    assert counts.var() == pytest.approx(1 - 1 / 50, abs=0.05)  # of a binomial, n = 50
    np.testing.assert_array_equal(counts[120:130], draws(50, range(120, 130), 3))
    assert not np.array_equal(counts, draws(50, range(400), 4))


# Tests


def test_p_by_hand():
    tails = {(97, 0, 3): 2 * 4 / 101, (0, 0, 100): 2 / 101, (50, 0, 50): 1.0, (97, 2, 1): 2 * 4 / 101}
    for (below, equals, above), p in tails.items():
        row = np.repeat([-1.0, 0.0, 1.0], [below, equals, above])
        assert p_values(np.array([row]))[0] == pytest.approx(p, abs=1e-15)
    row = np.repeat([-1.0, 1.0, np.nan], [48, 1, 51])
    assert p_values(np.array([row]))[0] == pytest.approx(2 * 2 / 50, abs=1e-15)
    assert np.isnan(p_values(np.full((1, 5), np.nan)))


def test_equal_scores_that_were_added_up_otherwise_do_not_differ():
    found = _differences(np.array([[0.3, 0.3, 0.0], [0.1 + 0.2, 0.3 + 1e-9, 1e-15]]))
    assert (found != 0).tolist() == [[False, True, True]]


def test_q_is_that_of_scipy():
    p = np.random.default_rng(0).random(40) ** 3
    np.testing.assert_array_equal(adjusted(p), stats.false_discovery_control(p))
    holes = np.insert(p, [3, 20], np.nan)
    assert np.isnan(adjusted(holes)).sum() == 2
    np.testing.assert_array_equal(adjusted(holes)[~np.isnan(holes)], adjusted(p))
    assert np.isnan(adjusted(np.full(3, np.nan))).all()


def test_one_clear_change_of_72_stays_clear():
    gold, whole, ablated = planted(hurt=[1.5] + [0.0] * 71, examples=200)
    found = changes(PEARSON, whole, ablated, gold)
    assert found.replicates == 10_000
    assert found.q[0] == pytest.approx(72 * 2 / 10_001)
    assert found.noise.tolist() == [False] + [True] * 71


def test_replicates_grow_with_the_number_of_tests():
    values = np.arange(4.0)
    ablated = np.tile(values, (300, 1))
    assert changes(MEAN, values, ablated).replicates == 12_000
    assert changes(MEAN, values, ablated, replicates=100).replicates == 100


@pytest.mark.parametrize("metric", [SPEARMAN, PEARSON])
def test_what_hurts_is_found_and_what_is_idle_is_nothing(metric):
    gold, whole, ablated = planted()
    found = changes(metric, whole, ablated, gold)
    np.testing.assert_allclose(found.scores[2:], metric.score(ablated, gold)[2:], atol=1e-15)
    np.testing.assert_allclose(found.delta, found.scores - found.score, rtol=0, atol=0)
    assert found.noise[:2].all()
    for values in (found.delta, found.low, found.high):
        assert (values[:2] == 0).all()
    assert (found.p[:2] == 1).all()
    assert found.high[3] < 0
    assert found.q[3] < 0.05
    assert not found.noise[3]
    assert (found.low <= found.high).all()
    np.testing.assert_array_equal(found.q, stats.false_discovery_control(found.p))
    assert (found.undefined == 0).all()


@pytest.mark.parametrize("metric", [ACCURACY, MACRO_F1, MATTHEWS])
def test_classes_that_go_wrong_are_found(metric):
    rng = np.random.default_rng(1)
    gold = rng.integers(3, size=400)
    whole = np.where(rng.random(400) < 0.8, gold, rng.integers(3, size=400))
    worse = np.where(rng.random(400) < 0.6, whole, rng.integers(3, size=400))
    better = np.where(rng.random(400) < 0.5, gold, whole)
    found = changes(metric, whole, np.stack([whole, worse, better]), gold)
    assert found.noise.tolist() == [True, False, False]
    assert found.delta[0] == found.low[0] == found.high[0] == 0
    assert found.high[1] < 0 < found.low[2]


def test_classes_of_which_as_many_get_right_as_wrong_are_noise():
    gold = np.arange(40) % 2
    whole, ablated = gold.copy(), gold.copy()
    whole[:5] ^= 1
    ablated[5:10] ^= 1
    found = changes(ACCURACY, whole, ablated[None], gold)
    assert found.delta[0] == 0
    assert found.low[0] < 0 < found.high[0]
    assert found.noise[0]
    assert found.p[0] > 0.9


def test_a_change_of_one_example_is_not_significant():
    """Most replicates of a rare change are 0 or of one sign: ties must count in both tails."""
    gold = np.arange(100) % 2
    ablated = gold.copy()
    ablated[0] ^= 1
    found = changes(ACCURACY, gold, ablated[None], gold)
    assert found.delta[0] == pytest.approx(-0.01)
    assert found.p[0] == pytest.approx(2 * 0.99**100, abs=0.05)
    assert found.noise[0]


def test_fidelity_has_an_interval_and_no_p():
    rng = np.random.default_rng(2)
    ablated = 1 - np.array([[0.0], [1e-8], [0.01], [0.2]]) * rng.random((4, 200))
    found = changes(MEAN, np.ones(200), ablated, can_only_fall=True)
    assert np.isnan(found.p).all()
    assert np.isnan(found.q).all()
    assert found.noise.tolist() == [True, True, False, False]
    assert (found.delta[:2] == 0).all()
    assert (found.high[2:] < 0).all()


@pytest.mark.parametrize("metric", [SPEARMAN, MEAN])
def test_under_the_null_one_in_twenty_is_significant(metric):
    p = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        gold = rng.normal(size=120)
        whole = gold + rng.normal(size=120)
        ablated = gold + rng.normal(size=(4, 120))  # as good as the whole model, wrong elsewhere
        p.append(changes(metric, whole, ablated, gold, replicates=400, seed=seed).p)
    assert 0.02 < (np.concatenate(p) < 0.05).mean() < 0.09


# Examples, draws, and what is not defined


def test_the_same_seed_gives_the_same_bits_and_variants_do_not_matter_to_each_other():
    gold, whole, ablated = planted()
    first = changes(SPEARMAN, whole, ablated, gold, replicates=300, seed=5)
    equal(first, changes(SPEARMAN, whole, ablated, gold, replicates=300, seed=5))
    other = changes(SPEARMAN, whole, ablated, gold, replicates=300, seed=6)
    assert first.low[3] != other.low[3]
    alone = changes(SPEARMAN, whole, ablated[2:3], gold, replicates=300, seed=5)
    for name in ("delta", "low", "high", "p"):
        assert getattr(alone, name)[0] == getattr(first, name)[2]


def test_how_many_are_held_at_a_time_changes_nothing(monkeypatch):
    gold, whole, ablated = planted(examples=100)
    first = changes(SPEARMAN, whole, ablated, gold, replicates=300)
    done = []
    monkeypatch.setattr(scores, "CELLS", 100 * 7)
    equal(first, changes(SPEARMAN, whole, ablated, gold, replicates=300, on_progress=done.append))
    assert done == [*range(7, 300, 7), 300]


def test_the_order_of_examples_changes_only_the_draws():
    gold, whole, ablated = planted()
    order = np.random.default_rng(0).permutation(len(gold))
    first = changes(SPEARMAN, whole, ablated, gold)
    second = changes(SPEARMAN, whole[order], ablated[:, order], gold[order])
    np.testing.assert_allclose(first.delta, second.delta, rtol=0, atol=1e-14)
    width = first.high - first.low
    assert (np.abs(first.low - second.low) <= 0.05 * width).all()
    assert (np.abs(first.high - second.high) <= 0.05 * width).all()
    np.testing.assert_array_equal(first.noise, second.noise)


def test_replicates_without_a_class_are_left_out_and_counted():
    gold = np.array([1] + [0] * 19)
    whole, ablated = gold.copy(), gold.copy()
    ablated[[0, 5]] ^= 1
    found = changes(MATTHEWS, whole, ablated[None], gold, replicates=2000)
    assert found.undefined[0] == pytest.approx(2000 * 0.95**20, abs=100)
    assert np.isfinite([found.low[0], found.high[0], found.p[0]]).all()
    _, low, high = interval_of_score(MATTHEWS, ablated, gold, replicates=2000)
    assert -1 <= low <= high <= 1


def test_a_variant_that_predicts_one_value_has_no_correlation():
    gold, whole, ablated = planted()
    ablated[2] = 0.5
    found = changes(SPEARMAN, whole, ablated, gold, replicates=200)
    assert np.isnan([found.delta[2], found.low[2], found.high[2], found.p[2], found.q[2]]).all()
    assert found.undefined.tolist() == [0, 0, 200, 0]
    assert not found.noise[2]
    assert np.isfinite(found.q[[0, 1, 3]]).all()


def test_the_input_is_checked():
    gold, whole, ablated = planted()
    with pytest.raises(OptionError, match=r"replicates is 50, .* at least 100"):
        changes(SPEARMAN, whole, ablated, gold, replicates=50)
    with pytest.raises(OptionError, match="replicates is 0"):
        interval_of_score(SPEARMAN, whole, gold, replicates=0)
    with pytest.raises(HeadroomError, match="have 499 predictions each and the whole model has 500"):
        changes(SPEARMAN, whole, ablated[:, 1:], gold)
    with pytest.raises(HeadroomError, match="spearman needs at least two different"):
        changes(SPEARMAN, whole, ablated, np.ones(500))
    ablated[1, 7] = np.nan
    with pytest.raises(HeadroomError, match="example 8 is nan"):
        changes(SPEARMAN, whole, ablated, gold)
