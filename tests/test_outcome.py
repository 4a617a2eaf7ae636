"""What an experiment found: pairs, layers, halves and drafts are what plain loops over the predictions say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from analysis import outcome, significance
from analysis.control import control
from analysis.datasets import Data
from analysis.experiment import Options, prepare, sweep
from analysis.importance import importance
from analysis.maps import read_heads, write_heads
from analysis.models import open_model
from analysis.outcome import best_by_layer, draft_error, halves, interactions, judge, judge_plain, result
from analysis.scores import ACCURACY, MEAN, SPEARMAN
from analysis.significance import contrasts, draws
from analysis.tasks import set_up
from tests import tiny
from tests.test_experiment import DATA, PAIRS, _small_shards, made, model

__all__ = ["_small_shards", "model"]  # fixtures for this file too

REPLICATES = 400
HEADS = "2.2,0.0,1.1"  # in no order: nothing may rely on one
GOLD = DATA.gold
TEXTS = Data("texts", tuple(first for first, _ in PAIRS), np.arange(40) % 2, ("0", "1"))


@pytest.fixture(autouse=True)
def _few_replicates(monkeypatch):
    monkeypatch.setattr(significance, "REPLICATES", REPLICATES)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "classifier"
    return open_model(str(tiny.save_tiny(folder, "bert", "classification")))


def spearman(predictions, gold=GOLD):
    return stats.spearmanr(predictions, gold).statistic


def change(ablated, whole, places):
    return spearman(ablated[places], GOLD[places]) - spearman(whole[places], GOLD[places])


def noisy(variants, seed=0):
    """Return predictions [variant, example] that know the gold more or less."""
    rng = np.random.default_rng(seed)
    return {"spearman": GOLD + rng.normal(size=(variants, 40)) * rng.uniform(0.3, 2, (variants, 1))}


def same(first, second):
    """Assert that two results hold the same bits."""
    for name, value in vars(first).items():
        np.testing.assert_array_equal(value, getattr(second, name), err_msg=name)


# Pairs


def test_pairs_are_sums_of_scores_by_hand(model):
    one = made(model, protocol="pairs", heads=HEADS)
    predictions = sweep(one)
    said = {write_heads(mask): row for mask, row in zip(one.masks, predictions["spearman"], strict=True)}
    assert list(said) == ["", "0.0,2.2", "1.1,2.2", "0.0,1.1", "2.2", "0.0", "1.1"]
    table = interactions(one, predictions)
    assert table["heads"].tolist() == ["0.0,2.2", "1.1,2.2", "0.0,1.1"]
    score = {name: spearman(row) for name, row in said.items()}
    for row in table.itertuples():
        first, second = row.heads.split(",")
        assert row.together == pytest.approx(score[row.heads] - score[""], abs=1e-12)
        assert row.apart == pytest.approx(score[first] + score[second] - 2 * score[""], abs=1e-12)
        assert row.beyond == pytest.approx(row.together - row.apart, abs=1e-12)
    assert table["beyond"].abs().max() > 1e-3


def test_the_heads_alone_are_computed_and_not_reported(model):
    one = made(model, protocol="pairs", heads=HEADS)
    predictions = sweep(one)
    assert (len(one.masks), one.reported) == (1 + 3 + 3, 3)
    found = judge(one, predictions)
    table = result(one, found)
    assert table["heads"].tolist() == interactions(one, predictions)["heads"].tolist()
    assert table["layer"].isna().all()
    np.testing.assert_allclose(table["delta"], interactions(one, predictions)["together"], atol=1e-12)
    alone = made(model)  # the same heads as of the protocol that takes each alone
    singles = sweep(alone)["spearman"][1:].reshape(3, 4, 40)
    for head, row in zip(read_heads(HEADS), predictions["spearman"][4:], strict=True):
        np.testing.assert_allclose(row, singles[head.layer, head.index], atol=1e-5)


@pytest.mark.parametrize("seed", [0, 7])
def test_the_interval_of_a_pair_is_that_of_a_direct_bootstrap(model, seed):
    one = made(model, protocol="pairs", heads=HEADS, seed=seed)
    predictions = noisy(7)
    table = interactions(one, predictions)
    rows = dict(zip(map(write_heads, one.masks), predictions["spearman"], strict=True))
    beyond = []
    for counts in draws(40, range(REPLICATES), seed):
        drawn = np.repeat(np.arange(40), counts)
        score = {name: spearman(row[drawn], GOLD[drawn]) for name, row in rows.items()}
        pairs = [(name, *name.split(",")) for name in table["heads"]]
        beyond.append([score[both] + score[""] - score[a] - score[b] for both, a, b in pairs])
    beyond = np.array(beyond)
    low, high = np.percentile(beyond, [2.5, 97.5], axis=0)
    np.testing.assert_allclose(table["ci_low"], low, atol=1e-10)
    np.testing.assert_allclose(table["ci_high"], high, atol=1e-10)
    tail = np.minimum((beyond <= 0).sum(axis=0), (beyond >= 0).sum(axis=0))
    p = np.minimum(1, 2 * (tail + 1) / (REPLICATES + 1))
    np.testing.assert_allclose(table["p"], p, atol=1e-12)
    np.testing.assert_allclose(table["q"], stats.false_discovery_control(p), atol=1e-12)
    noise = ((low <= 0) & (high >= 0)) | (table["q"] >= 0.05)
    assert table["noise"].tolist() == noise.tolist()


def test_planted_twins_stand_in_for_each_other_and_idle_heads_do_not():
    planted = control()
    twin, idle = (write_heads(planted.truth == kind).split(",") for kind in ("twin", "idle"))
    heads = ",".join([idle[0], *twin, *idle[1:3]])
    options = Options("control", "classification", model="control", protocol="pairs", heads=heads)
    one = prepare(options, planted.model, planted.data)
    table = interactions(one, sweep(one)).set_index("heads")
    twins = table.loc[",".join(twin)]
    assert twins["ci_high"] < 0
    assert twins["q"] < 0.05
    assert not twins["noise"]
    assert twins["apart"] == 0  # alone, neither is missed
    assert twins["beyond"] == pytest.approx(twins["together"], abs=1e-12)
    assert twins["beyond"] < -0.2
    others = table.drop(",".join(twin))
    assert len(others) == 5 * 4 / 2 - 1
    assert others["noise"].all()
    assert (others[["beyond", "ci_low", "ci_high"]] == 0).all(axis=None)


def test_contrasts_of_equal_scores_are_noise():
    weights = np.array([[1.0, 1, -1, -1], [1, -1, 0, 0], [0, 0, 0, 0]])
    equal = np.tile(GOLD + np.sin(np.arange(40)), (4, 1))
    found = contrasts(SPEARMAN, equal, weights, GOLD)
    for values in (found.value, found.low, found.high):
        assert values.tolist() == [0, 0, 0]
    assert found.p.tolist() == found.q.tolist() == [1, 1, 1]
    assert found.noise.tolist() == [True] * 3
    assert 0.1 + 0.2 - 0.3 != 0  # what rounding leaves of equal sums counts as none
    rounded = np.repeat([[0.1], [0.2], [0.3], [0.0]], 40, axis=1)
    found = contrasts(MEAN, rounded, weights[:1])
    assert (found.value[0], found.low[0], found.high[0]) == (0, 0, 0)
    assert found.noise.tolist() == [True]
    rounded[3] = 0.05
    found = contrasts(MEAN, rounded, weights[:1])
    assert found.value[0] == pytest.approx(-0.05)
    assert found.noise.tolist() == [False]


# Halves and layers


@pytest.mark.parametrize("examples", [40, 39])
def test_halves_are_disjoint_and_cover(model, examples):
    one = prepare(Options("pairs", "similarity"), model, DATA.take(range(examples)))
    first, second = halves(one)
    assert sorted([*first, *second]) == list(range(examples))
    assert (len(first), len(second)) == (examples // 2, examples - examples // 2)
    assert halves(one)[0].tolist() == first.tolist() != list(range(examples // 2))
    other = replace(one, options=replace(one.options, seed=1))
    assert halves(other)[0].tolist() != first.tolist()


def test_the_best_head_is_chosen_on_one_half_and_reported_on_the_other(model):
    one = made(model, protocol="all-but-one")
    choosing, reporting = halves(one)
    predictions = noisy(13, seed=3)
    lucky = predictions["spearman"][
        1 + 4 + 2
    ]  # of layer 1, the head 2: perfect where it is chosen, and only there
    lucky[choosing], lucky[reporting] = GOLD[choosing], -GOLD[reporting]
    predictions["spearman"][1 + 8 + 1] = 2.5  # of layer 2, the head 1: no correlation at all
    table = best_by_layer(one, predictions)
    whole, heads = predictions["spearman"][0], predictions["spearman"][1:].reshape(3, 4, 40)
    for row in table.itertuples():
        chosen = {}  # by head, how it does on the half that chooses
        for head in range(4):
            if np.ptp(heads[row.layer, head]):
                chosen[head] = change(heads[row.layer, head], whole, choosing)
        assert row.kept == max(chosen, key=chosen.__getitem__)
        assert row.chosen_delta == pytest.approx(chosen[row.kept], abs=1e-12)
        reported = change(heads[row.layer, row.kept], whole, reporting)
        assert row.delta == pytest.approx(reported, abs=1e-12)
        mask = one.masks[1 + 4 * row.layer + row.kept]  # all of the layer but this head
        assert np.flatnonzero(~mask[row.layer]).tolist() == [row.kept]
        assert mask.sum() == 3
    assert table["layer"].tolist() == [0, 1, 2]
    assert table.loc[1, "kept"] == 2
    assert table.loc[1, "chosen_delta"] > 0 > table.loc[1, "ci_high"]
    assert not table.loc[1, "noise"]
    rows = heads[range(3), table["kept"]][:, reporting]
    direct = significance.changes(SPEARMAN, whole[reporting], rows, GOLD[reporting])
    for name, values in {"ci_low": direct.low, "ci_high": direct.high, "p": direct.p}.items():
        np.testing.assert_allclose(table[name], values, atol=1e-12)


# Some of the examples


@pytest.mark.parametrize("task", ["similarity", "classification"])
def test_some_examples_are_judged_as_data_that_has_no_others(model, classifier, task):
    data, opened = (DATA, model) if task == "similarity" else (TEXTS, classifier)
    one = prepare(Options("data", task), opened, data)
    predictions = sweep(one)
    which = np.random.default_rng(3).permutation(40)[:23]
    cut = replace(one, problem=set_up(task, opened, data.take(which)))
    few = {name: table[:, which] for name, table in predictions.items()}
    for number in range(len(one.problem.metrics)):
        found = judge(one, predictions, number, which=which)
        same(found, judge(cut, few, number))
        assert found.examples == 23
        assert judge(one, predictions, number).examples == 40
    main = judge(one, predictions, which=which)
    np.testing.assert_allclose(judge_plain(one, predictions, which), main.delta, atol=1e-12)
    for name, table in sweep(cut).items():  # and the network says the same of them alone
        np.testing.assert_allclose(table, few[name], atol=1e-5)


@pytest.mark.parametrize("task", ["similarity", "classification"])
def test_importance_of_some_examples_is_that_of_data_that_has_no_others(model, classifier, task):
    data, opened = (DATA, model) if task == "similarity" else (TEXTS, classifier)
    which = np.random.default_rng(5).permutation(40)[:17].tolist()
    done = []
    found = importance(set_up(task, opened, data), which=which, on_progress=done.append)
    alone = importance(set_up(task, opened, data.take(which)))
    assert found.each.shape == (17, 3, 4)
    for name in ("each", "absolute", "signed", "normalised"):
        np.testing.assert_allclose(getattr(found, name), getattr(alone, name), atol=2e-6, rtol=1e-4)
    assert done[-1] == 17
    whole = importance(set_up(task, opened, data))
    np.testing.assert_allclose(found.each, whole.each[which], atol=2e-6, rtol=1e-4)
    assert np.abs(whole.absolute - found.absolute).max() > 1e-4


# Drafts


def test_a_draft_that_is_exact_is_off_by_nothing_but_rounding(model):
    one = made(model)
    wrong = draft_error(replace(one, options=replace(one.options, precision="draft")), sweep(one))
    assert wrong.prediction <= 1e-6
    assert wrong.change == 0  # ranks do not see rounding
    assert (wrong.variants, wrong.examples) == (8, 40)


def test_the_true_error_of_a_draft_is_found(model, monkeypatch):
    monkeypatch.setattr(outcome, "CHECKED_VARIANTS", 12)
    one = made(model, precision="draft")
    full = sweep(replace(one, options=replace(one.options, precision="full")))
    off = np.random.default_rng(1).normal(size=(13, 40)) * 0.1
    wrong = draft_error(one, {name: table + off for name, table in full.items()})
    assert wrong.prediction == pytest.approx(np.abs(off).max(), abs=1e-5)
    true, said = ([spearman(row) for row in full["spearman"] + part] for part in (0, off))
    apart = [abs((said[i] - said[0]) - (true[i] - true[0])) for i in range(1, 13)]
    assert wrong.change == pytest.approx(max(apart), abs=1e-5)
    assert wrong.change > 0.01
    assert (wrong.variants, wrong.examples) == (12, 40)
    real = draft_error(one, sweep(one))
    assert 1e-6 < real.prediction < 0.1  # bfloat16 has three digits


def test_only_a_part_of_a_draft_is_computed_again(model, monkeypatch):
    monkeypatch.setattr(outcome, "CHECKED_VARIANTS", 3)
    monkeypatch.setattr(outcome, "CHECKED_EXAMPLES", 10)
    one = made(model, precision="draft")
    asked = []
    real = outcome.predict

    def predict(experiment, variants, which):
        asked.append((experiment.options.precision, variants.tolist(), which))
        return real(experiment, variants, which)

    monkeypatch.setattr(outcome, "predict", predict)
    wrong = draft_error(one, sweep(one))
    [(precision, variants, which)] = asked
    assert (precision, variants, len(set(which))) == ("full", [0, 4, 8, 12], 10)
    assert (wrong.variants, wrong.examples) == (3, 10)


def test_the_error_of_classes_is_the_share_that_differs(classifier):
    options = Options("texts", "classification", precision="draft", protocol="set", heads="0.1")
    one = prepare(options, classifier, TEXTS)
    full = sweep(replace(one, options=replace(one.options, precision="full")))
    flipped = {name: table.copy() for name, table in full.items()}
    flipped["accuracy"][1, :6] = 1 - flipped["accuracy"][1, :6]
    wrong = draft_error(one, flipped)
    assert wrong.prediction == pytest.approx(6 / (2 * 40))
    right, said = (ACCURACY.score(table["accuracy"], TEXTS.gold) for table in (full, flipped))
    assert wrong.change == pytest.approx(abs(said[1] - right[1]))
