"""Trials: what chooses and what is reported on share nothing, and what is said of the curves is what they hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from analysis import trial
from analysis.capture import pad
from analysis.curves import curve
from analysis.datasets import Data
from analysis.maps import Head
from analysis.messages import HeadroomError, OptionError
from analysis.probe import Probe, run
from analysis.problems import embed
from analysis.pruning import Limits, path
from analysis.trial import Options, band, prepare, sentences
from tests.test_curves import few_replicates, made_curve, models
from tests.test_pruning import DATA, FORMS, PAIRS, TEXTS

__all__ = ["few_replicates", "models"]  # fixtures for this file too


def options(**changes):
    return Options(
        **{"data": "pairs", "task": "similarity", "orders": ("greedy", "random"), "seeds": 3} | changes
    )


def test_what_chooses_is_not_what_is_reported(tmp_path):
    table = tmp_path / "pairs.csv"
    rows = [
        (f"{a} {i}", b, grade)
        for i, ((a, b), grade) in enumerate(zip(PAIRS, DATA["similarity"].gold, strict=True))
    ]
    pd.DataFrame(rows, columns=["a", "b", "grade"]).to_csv(table, index=False)
    ask = options(data=str(table), columns=("a", "b", "grade"))
    choosing, reporting = trial.read(ask)
    assert set(choosing.texts) | set(reporting.texts) == {(a, b) for a, b, _grade in rows}
    assert not set(choosing.texts) & set(reporting.texts)
    assert len(choosing) == len(reporting) == 8
    assert trial.read(ask)[0].texts == choosing.texts
    assert trial.read(replace(ask, seed=1))[0].texts != choosing.texts
    other = tmp_path / "other.csv"
    pd.DataFrame(rows[:5], columns=["a", "b", "grade"]).to_csv(other, index=False)
    choosing, reporting = trial.read(replace(ask, report=str(other)))
    assert (len(choosing), len(reporting)) == (16, 5)
    assert reporting.texts == tuple((a, b) for a, b, _grade in rows[:5])
    for columns in (("a", "b"), ("a", "b", "c")):
        with pytest.raises(HeadroomError) as caught:
            trial.read(replace(ask, columns=columns, report=str(other)))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("task", ["similarity", "masked"])
def test_a_curve_is_of_a_path_on_one_part_scored_on_the_other(models, task):
    data = DATA[task]
    parts = data.take(range(len(data) // 2)), data.take(range(len(data) // 2, len(data)))
    made = prepare(options(task=task, limits=Limits(step=0.5)), models(FORMS.get(task, "headless")), *parts)
    assert made.paths() == [("greedy", 0), ("random", 0), ("random", 1), ("random", 2)]
    told: list[float] = []
    for order, seed in made.paths():
        found = made.curve(order, seed, told.append)
        wanted = curve(path(order, made.choosing, Limits(step=0.5), seed=seed), made.reporting)
        np.testing.assert_array_equal(found.path.masks, wanted.path.masks)
        np.testing.assert_array_equal(found.score, wanted.score)
        assert told == sorted(told)
        assert told.pop() == 1
        told.clear()
    assert found.changes.examples == len(parts[1])


def labelled(texts, gold, labels=("0", "1")):
    return Data("texts", tuple(texts), np.array(gold), labels)


def test_a_classifier_that_is_missing_is_fitted_on_what_chooses_alone(models):
    model = models()
    choosing, reporting = (
        labelled(TEXTS, [0, 1] * 4),
        labelled([text for text, _pair in PAIRS[8:]], [1, 0] * 4),
    )
    ask = options(task="classification")
    made = prepare(ask, model, choosing, reporting)
    other = prepare(ask, model, choosing, replace(reporting, gold=1 - reporting.gold))
    batch = pad(model, made.choosing.inputs)
    outputs = run(made.choosing.model.network, batch, Probe())
    logits = [one.read(outputs, batch, []).numpy() for one in
              (made.choosing, made.reporting, other.reporting)]  # fmt: skip
    np.testing.assert_array_equal(logits[0], logits[1])
    np.testing.assert_array_equal(logits[0], logits[2])
    states = embed(outputs, batch, []).numpy()
    by_hand = LogisticRegression(max_iter=2000).fit(states, choosing.gold)
    np.testing.assert_allclose(
        logits[0][:, 1] - logits[0][:, 0], by_hand.decision_function(states), atol=1e-4
    )
    assert "is fitted on the other part" in str(made.choosing.notes[0])


def test_labels_are_matched_by_name_between_two_files(models):
    choosing = labelled([text for text, _pair in PAIRS[:9]], [0, 1, 2] * 3, ("bad", "fair", "good"))
    reporting = labelled([text for text, _pair in PAIRS[7:13]], [0, 1] * 3, ("bad", "good"))
    made = prepare(options(task="classification"), models(), choosing, reporting)
    np.testing.assert_array_equal(made.reporting.gold, [0, 2] * 3)
    assert np.isfinite(made.curve("random", 0).score).all()
    with pytest.raises(OptionError, match="has the labels ugly, but the data that chooses has none of them"):
        prepare(
            options(task="classification"), models(), choosing, replace(reporting, labels=("bad", "ugly"))
        )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"orders": ()}, "No order is named"),
        (
            {"orders": ("random", "fisher"), "task": "fidelity"},
            "fidelity has no loss, so there is no order by fisher",
        ),
        ({"limits": Limits(protected=(Head(9, 0),))}, "There is no head L9·H0"),
        ({"limits": Limits(step=2.0)}, "The step 2.0 is no share"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_runs(models, changes, said):
    ask = options(**changes)
    with pytest.raises(OptionError, match=said):
        prepare(ask, models(), DATA[ask.task], DATA[ask.task])


# What is said


def three_curves():
    found = [made_curve((0.0, 0.01, 0.05, 0.3), (0.005, 0.02, 0.06, 0.4))]
    for seed, scores in enumerate([(0.9, 0.8, 0.7, 0.6, 0.1), (0.9, 0.7, 0.75, 0.3, 0.1)]):
        ends = 0.9 - np.array(scores[1:]) - (0.09 if seed else 0)
        found.append(made_curve(ends, ends, "random", seed, scores))
    return found


def test_the_band_is_that_of_the_random_orders():
    found = band(three_curves())
    assert found.count == 2
    np.testing.assert_allclose(found.share, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(found.low, [0.9, 0.7, 0.7, 0.3, 0.1])
    np.testing.assert_allclose(found.mean, [0.9, 0.75, 0.725, 0.45, 0.1])
    np.testing.assert_allclose(found.high, [0.9, 0.8, 0.75, 0.6, 0.1])
    assert band(three_curves()[:1]) is None


def test_the_sentences_say_the_numbers_of_the_knees():
    assert sentences(three_curves(), 0.02) == [
        "whole model: spearman 0.900000 [0.8000, 1.0000] on 50 examples that chose nothing",
        "greedy: 6 of 12 heads (50%) can go with a loss of spearman not above 0.02 at 95% (loss 0.0100, at most 0.0200)",
        "random, 2 orders: 0 to 0 heads, median 0",
    ]
    assert sentences(three_curves(), 0.15)[1:] == [
        "greedy: 9 of 12 heads (75%) can go with a loss of spearman not above 0.15 at 95% (loss 0.0500, at most 0.0600)",
        "random, 2 orders: 3 to 6 heads, median 4.5",
    ]
    none = sentences(three_curves(), 0.001)
    assert none[1] == "greedy: no step is sure to lose at most 0.001 at 95%, for so few examples"
    table = trial.frame(three_curves())
    assert table["order"].tolist() == ["greedy"] * 5 + ["random"] * 10
    assert table["seed"].tolist() == [0] * 10 + [1] * 5
    assert table.index.tolist() == list(range(15))


def test_a_curve_knows_which_weights_it_is_of(models, tmp_path):
    one, other = models(), models(family="distilbert")
    file = tmp_path / "curve.csv"
    trial.check_model(file, one)  # without a record it is taken as it is
    trial.record(file, options(), one)
    trial.check_model(file, one)
    with pytest.raises(OptionError, match=r"curve\.csv is of .* Name its own with --model"):
        trial.check_model(file, other)
    trial.record_of(file).write_text("[]")
    trial.check_model(file, other)
