"""Curves of pruning: the scores of networks that really lack the heads, their intervals, and the knee."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis import significance
from analysis.ablation import plain
from analysis.control import control
from analysis.curves import Curve, Knee, curve, knee
from analysis.experiment import Experiment
from analysis.experiment import Options as Ablation
from analysis.maps import Head, read_heads
from analysis.messages import OptionError
from analysis.models import open_model
from analysis.outcome import judge
from analysis.pruning import Limits, Path, path, predictions_of
from analysis.saving import save_model, smaller
from analysis.significance import Changes, interval_of_score
from analysis.tasks import set_up
from tests import tiny
from tests.test_pruning import DATA, FORMS, SHAPE, TASKS
from tests.test_surgery import UNEVEN

REPLICATES = 300


@pytest.fixture(autouse=True)
def few_replicates(monkeypatch):
    monkeypatch.setattr(significance, "REPLICATES", REPLICATES)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a function that opens a tiny model with a head of some kind, once."""
    root, made = tmp_path_factory.mktemp("tiny"), {}

    def model(kind="headless", family="bert"):
        if (kind, family) not in made:
            folder = tiny.save_tiny(root / f"{kind}-{family}", family, kind, seed=3)
            made[kind, family] = open_model(str(folder))
        return made[kind, family]

    return model


def score_of(problem):
    """Return the main score of a problem's own network, nothing switched off, by one whole pass."""
    every = range(len(problem.examples))
    places, rows = problem.rows_of(every)
    nothing = np.zeros((1, problem.model.geometry.layers, problem.model.geometry.heads), dtype=bool)
    kept = plain(problem.model, [problem.inputs[i] for i in places], problem.read, nothing)
    metric = problem.metrics[0]
    return float(metric.score(problem.predict(kept, rows, every)[metric.name], problem.gold)[0])


# The scores along a path


@pytest.mark.parametrize("family", ["bert", "modernbert", "distilbert"])
@pytest.mark.parametrize("task", [*TASKS, "fidelity"])
def test_every_step_is_the_score_of_a_network_that_lacks_the_heads(models, tmp_path, task, family):
    problem = set_up(task, models(FORMS.get(task, "headless"), family), DATA[task])
    found = curve(path("random", problem, Limits(step=0.25), seed=2), problem)
    assert found.path.removed.tolist() == [0, 3, 6, 9, 12]
    predictions = predictions_of(problem, found.path.masks)[found.metric]
    for i, mask in enumerate(found.path.masks):
        small = replace(problem, model=smaller(problem.model, mask))
        assert found.score[i] == pytest.approx(score_of(small), abs=2e-6)
        if i == 2:
            save_model(small.model, tmp_path / "small")
            again = replace(problem, model=open_model(str(tmp_path / "small")))
            assert found.score[i] == pytest.approx(score_of(again), abs=2e-6)
        if i and task in ("similarity", "masked"):  # the mask was used
            assert np.abs(predictions[i] - predictions[0]).max() > 1e-3
    assert found.whole == found.score[0] == pytest.approx(score_of(problem), abs=2e-6)
    off = predictions_of(problem, np.ones((1, *SHAPE), dtype=bool))[found.metric]
    assert found.score[-1] == pytest.approx(problem.metrics[0].score(off, problem.gold)[0], abs=2e-6)
    assert np.isfinite([found.score, found.low, found.high]).all()


def test_layers_that_share_weights_have_a_curve_too(models):
    """Nothing can be removed from ALBERT, but a mask knows its layers apart."""
    problem = set_up("similarity", models(family="albert"), DATA["similarity"])
    found = curve(path("importance", problem, Limits(step=0.25)), problem)
    assert found.path.removed.tolist() == [0, 4, 8, 12, 16]
    assert np.isfinite(found.score).all()
    assert len(set(found.score)) > 2


@pytest.mark.parametrize("task", [*TASKS, "fidelity"])
def test_the_intervals_are_those_of_an_ablation(models, task):
    problem = set_up(task, models(FORMS.get(task, "headless")), DATA[task])
    chosen = path("random", problem, Limits(step=0.25))
    found = curve(chosen, problem, seed=4)
    options = Ablation("data", task, seed=4)
    predictions = predictions_of(problem, chosen.masks)
    wanted = judge(Experiment(options, problem, chosen.masks, None, "all", 4), predictions)
    for name in ("delta", "low", "high", "p", "q", "noise"):
        np.testing.assert_array_equal(getattr(found.changes, name), getattr(wanted, name))
    assert np.isnan(found.changes.p).all() == (task == "fidelity")
    for i, one in enumerate(predictions[found.metric]):
        ends = interval_of_score(problem.metrics[0], one, problem.gold, replicates=REPLICATES, seed=4)
        assert (found.score[i], found.low[i], found.high[i]) == pytest.approx(ends)
    table = found.frame()
    assert table.columns.tolist() == [
        "order",
        "seed",
        "removed",
        "share",
        "score",
        "ci_low",
        "ci_high",
        "heads",
    ]
    assert table["removed"].tolist() == [0, 3, 6, 9, 12]
    assert table["share"].tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert [read_heads(heads) for heads in table["heads"]] == [
        [Head(*map(int, place)) for place in np.argwhere(mask)] for mask in chosen.masks
    ]
    assert (table["ci_low"] <= table["score"] + 1e-9).all()
    assert (table["score"] <= table["ci_high"] + 1e-9).all()


def test_of_a_model_that_lacks_heads_the_share_is_of_those_it_had(models):
    problem = set_up("masked", models("masked"), DATA["masked"])
    small = replace(problem, model=smaller(problem.model, UNEVEN))
    found = curve(path("greedy", small, Limits(step=0.4)), small)
    assert found.path.removed.tolist() == [0, 2, 4, 5]
    assert found.share.tolist() == [0, 0.4, 0.8, 1]
    both = predictions_of(problem, found.path.masks | UNEVEN)[found.metric]
    np.testing.assert_allclose(found.score, both.mean(axis=1), atol=2e-6)
    assert knee(found, 100.0).share == 1


# The knee


def made_curve(falls, ends, order="greedy", seed=0, scores=None):
    """Return a curve of 12 heads in steps of 3 whose losses, and their upper ends, are given."""
    masks = np.stack([(np.arange(12) < 3 * i).reshape(SHAPE) for i in range(5)])
    delta, low = -np.array(falls, dtype=float), -np.array(ends, dtype=float)
    some, none = np.zeros(4), np.zeros(4, dtype=bool)
    score = np.append(0.9, 0.9 + delta) if scores is None else np.array(scores)
    changes = Changes("spearman", 0.9, (0.8, 1.0), score[1:], some, some, delta, low, some, some, some, none,
                      100, 50, some.astype(np.int64))  # fmt: skip
    return Curve(
        Path(order, seed, masks, masks[0]), "spearman", 0.9, score, score - 0.1, score + 0.1, changes
    )


@pytest.mark.parametrize(
    ("falls", "ends", "most", "wanted"),
    [
        ((0.0, 0.01, 0.02, 0.03), (0.01, 0.02, 0.03, 0.04), 0.04, Knee(4, 12, 1.0, 0.03, 0.04)),
        ((0.0, 0.01, 0.02, 0.03), (0.01, 0.02, 0.03, 0.05), 0.04, Knee(3, 9, 0.75, 0.02, 0.03)),
        ((0.0, 0.01, 0.02, 0.03), (0.05, 0.02, 0.03, 0.04), 0.04, Knee(0, 0, 0.0, 0.0, 0.0)),
        ((0.0, 0.05, 0.01, 0.01), (0.01, 0.06, 0.02, 0.02), 0.04, Knee(1, 3, 0.25, 0.0, 0.01)),
        ((-0.01, 0.0, 0.02, 0.03), (0.0, 0.0, 0.03, 0.04), 0.0, Knee(2, 6, 0.5, 0.0, 0.0)),
        ((0.0, 0.01, np.nan, 0.01), (0.0, 0.01, np.nan, 0.01), 0.04, Knee(2, 6, 0.5, 0.01, 0.01)),
    ],
    ids=["all within", "the last not", "the first not", "one in the middle not", "none allowed", "undefined"],
)
def test_the_knee_by_hand(falls, ends, most, wanted):
    assert knee(made_curve(falls, ends), most) == wanted


@pytest.mark.parametrize("most", [-0.01, float("nan"), float("inf")])
def test_a_loss_that_cannot_be_allowed_is_refused(most):
    with pytest.raises(OptionError, match="cannot be asked for: give 0 or more"):
        knee(made_curve((0, 0, 0, 0), (0, 0, 0, 0)), most)


def test_of_a_planted_network_what_is_not_needed_can_go():
    made = control()
    problem = set_up("classification", made.model, made.data.take(range(100)))
    found = curve(path("greedy", problem, Limits(step=0.0)), problem)
    assert knee(found, 0.0) == Knee(5, 5, 5 / 8, 0.0, 0.0)  # the idle ones and one of the twins
    assert found.score[:6].tolist() == [1] * 6
    assert (found.changes.low[5:] < -0.2).all()
