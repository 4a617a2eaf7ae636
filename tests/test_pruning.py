"""Orders of removal: each is the plain loop of its definition, and what a planted network says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from analysis.ablation import plain
from analysis.capture import capture
from analysis.control import control
from analysis.datasets import Data
from analysis.importance import gradients
from analysis.maps import Head
from analysis.messages import OptionError
from analysis.models import open_model
from analysis.pruning import NEED_LOSS, ORDERS, Limits, path, predictions_of, steps
from analysis.saving import smaller
from analysis.tasks import set_up
from tests import tiny
from tests.test_pruning_steps import NOTHING, SHAPE, lowest
from tests.test_surgery import UNEVEN

WORDS = (
    "the cat sat",
    "a dog",
    "on the mat",
    "bird and cat",
    "you love film",
    "it was bad",
    "walk the street",
)
PAIRS = tuple((WORDS[i % 7], f"{WORDS[(3 * i + 1) % 7]} {WORDS[i % 5]}") for i in range(16))
TEXTS = tuple(f"{first} {second}" for first, second in PAIRS[:8])
DATA = {
    "similarity": Data("pairs", PAIRS, np.linspace(0, 5, 16) * 7 % 5),
    "classification": Data("texts", TEXTS, np.arange(8) % 2, ("0", "1")),
    "masked": Data("texts", TEXTS),
    "fidelity": Data("texts", TEXTS),
}
FORMS = {"classification": "classification", "masked": "masked"}
DEFAULT = Limits()
TASKS = ("similarity", "classification", "masked")


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    """Return a function that sets a task up on a tiny model, once."""
    root, made = tmp_path_factory.mktemp("tiny"), {}

    def problem(task, family="bert"):
        if (task, family) not in made:
            folder = tiny.save_tiny(root / f"{task}-{family}", family, FORMS.get(task, "headless"), seed=3)
            made[task, family] = set_up(task, open_model(str(folder)), DATA[task])
        return made[task, family]

    return problem


def without(problem, mask):
    """Return the problem on a network from which heads were really removed."""
    return replace(problem, model=smaller(problem.model, mask))


def one_after_another(problem, scores_at, limits=DEFAULT):
    """Return the masks of an order whose scores are a function of what is gone."""
    masks = [NOTHING]
    for count in steps(problem.model.gone, limits)[1:]:
        masks.append(lowest(scores_at(masks[-1]), masks[-1], count, problem.model.gone, limits))
    return np.stack(masks)


# Every order

LIMITS = (DEFAULT, Limits(step=0.25, keep=1, protected=(Head(0, 0), Head(2, 3))), Limits(step=0.0, keep=2))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("limits", LIMITS[1:], ids=["kept and protected", "one at a time"])
def test_what_must_stay_stays_and_the_rest_goes_step_by_step(problems, order, limits):
    for problem in (problems("masked"), without(problems("masked"), UNEVEN)):
        gone = problem.model.gone
        found = path(order, problem, limits, seed=5)
        assert (found.order, found.seed, found.there) == (order, 5, 5 if gone.any() else 12)
        np.testing.assert_array_equal(found.gone, gone)
        assert found.masks.shape[1:] == SHAPE
        assert found.removed.tolist() == steps(gone, limits) == found.masks.sum((1, 2)).tolist()
        assert not found.masks[:, gone].any()
        assert not any(found.masks[:, head.layer, head.index].any() for head in limits.protected)
        left = (~gone & ~found.masks).sum(axis=2)
        assert (left >= np.minimum((~gone).sum(axis=1), limits.keep)).all()
        if order != "fisher":
            assert not (found.masks[:-1] & ~found.masks[1:]).any()


@pytest.mark.parametrize("order", ORDERS)
def test_a_seed_is_a_path_and_only_random_ones_differ_by_it(problems, order):
    first, again, other = (
        path(order, problems("similarity"), LIMITS[1], seed=seed).masks for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, again)
    assert np.array_equal(first, other) == (order != "random")


@pytest.mark.parametrize("order", ORDERS)
def test_progress_goes_up_to_the_end_and_can_end_it(problems, order):
    told: list[float] = []
    path(order, problems("masked"), Limits(step=0.25), report=told.append)
    assert told == sorted(told)
    assert all(0 < share <= 1 for share in told)
    if order == "random":
        return
    assert told[-1] == pytest.approx(1)

    class Cancelled(Exception):
        pass

    def stop(_share):
        raise Cancelled

    with pytest.raises(Cancelled):
        path(order, problems("masked"), Limits(step=0.25), report=stop)


# Each order is the plain loop of its definition


def importance_by_hand(problem, mask, *, normalised=True):
    """Return E |dL/dxi| of a network from which ``mask`` was really removed, by its layer's length."""
    there = without(problem, mask)
    scores = np.abs(gradients(there, list(range(len(problem.examples))))).mean(axis=0)
    for row, gone in zip(scores, mask, strict=True):
        if normalised and not gone.all():
            row[~gone] = row[~gone] / np.sqrt((row[~gone] ** 2).sum())
    return scores


def losses_by_hand(problem, mask):
    """Return what the score falls by with each head off beside those that are gone, a whole pass each."""
    singles = [mask | (np.arange(12).reshape(SHAPE) == i) for i in range(12)]
    places, rows = problem.rows_of(range(len(problem.examples)))
    kept = plain(problem.model, [problem.inputs[i] for i in places], problem.read, np.stack([mask, *singles]))
    metric = problem.metrics[0]
    scores = metric.score(
        problem.predict(kept, rows, range(len(problem.examples)))[metric.name], problem.gold
    )
    return np.nan_to_num(scores[0] - scores[1:], nan=np.inf).reshape(SHAPE)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("normalised", [True, False])
def test_importance_at_each_step_and_once(problems, task, normalised):
    problem = problems(task)
    once = importance_by_hand(problem, NOTHING, normalised=normalised)
    for limits in LIMITS:
        wanted = one_after_another(problem, lambda _mask: once, limits)
        found = path("importance-once", problem, limits, normalised=normalised)
        np.testing.assert_array_equal(found.masks, wanted)
    limits = LIMITS[task != "similarity"]
    anew = one_after_another(
        problem, lambda mask: importance_by_hand(problem, mask, normalised=normalised), limits
    )
    found = path("importance", problem, limits, normalised=normalised)
    np.testing.assert_array_equal(found.masks, anew)
    assert not np.array_equal(anew, one_after_another(problem, lambda _mask: once, limits))


@pytest.mark.parametrize("order", ["importance", "importance-once"])
def test_raw_and_by_layer_are_two_orders_and_other_orders_do_not_ask(problems, order):
    problem = problems("similarity")
    by_layer, raw = (path(order, problem, normalised=way).masks for way in (True, False))
    assert not np.array_equal(by_layer, raw)
    for other in ("signed", "fisher", "ablation"):
        first, second = (path(other, problem, normalised=way).masks for way in (True, False))
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("task", [*TASKS, "fidelity"])
def test_ablation_once_and_greedy(problems, task):
    problem = problems(task)
    once = losses_by_hand(problem, NOTHING)
    for limits in LIMITS:
        wanted = one_after_another(problem, lambda _mask: once, limits)
        np.testing.assert_array_equal(path("ablation", problem, limits).masks, wanted)
    limits = LIMITS[task != "similarity"]
    greedy = one_after_another(problem, lambda mask: losses_by_hand(problem, mask), limits)
    np.testing.assert_array_equal(path("greedy", problem, limits).masks, greedy)


@pytest.mark.parametrize("task", TASKS)
def test_signed_goes_from_what_helps_to_what_hurts(problems, task):
    problem = problems(task)
    signed = np.mean([gradients(problem, [i])[0] for i in range(len(problem.examples))], axis=0)
    found = path("signed", problem, Limits(step=0.0)).masks
    turn = [int(np.flatnonzero(after & ~before)[0]) for before, after in pairwise(found)]
    assert turn == np.argsort(-signed.ravel()).tolist()
    assert signed.ravel()[turn[0]] > 0 > signed.ravel()[turn[-1]]


def test_entropy_sends_the_least_certain_first(problems):
    problem = problems("masked")
    shares = []
    for text in TEXTS:
        weights = capture(problem.model, text).weights.astype(np.float64)  # [layer, head, query, key]
        bits = -(weights * np.log2(weights, where=weights > 0, out=np.zeros_like(weights))).sum(-1)
        shares.append(bits / np.log2(weights.shape[-1]))
    mean = np.concatenate(shares, axis=-1).mean(axis=-1)
    wanted = one_after_another(problem, lambda _mask: -mean)
    np.testing.assert_array_equal(path("entropy", problem).masks, wanted)


def test_fidelity_has_no_order_by_gradients(problems):
    for order in ORDERS:
        if order not in NEED_LOSS:
            path(order, problems("fidelity"), Limits(step=0.5))
            continue
        with pytest.raises(OptionError) as caught:
            path(order, problems("fidelity"))
        assert f"fidelity has no loss, so there is no order by {order}." in str(caught.value)


def test_predictions_are_those_of_the_plain_loop(problems):
    problem = problems("similarity")
    masks = path("random", problem).masks
    places, rows = problem.rows_of(range(16))
    kept = plain(problem.model, [problem.inputs[i] for i in places], problem.read, masks)
    wanted, told = problem.predict(kept, rows, range(16)), []
    found = predictions_of(problem, masks, told.append)
    assert found.keys() == wanted.keys()
    np.testing.assert_allclose(found["spearman"], wanted["spearman"], atol=1e-5)
    assert told == sorted(told)
    assert told[-1] == 1


# A network whose heads are known


@pytest.mark.parametrize("order", ["ablation", "greedy", "importance", "importance-once", "fisher"])
def test_of_a_planted_network_idle_heads_go_first_and_useful_ones_last(order):
    made = control()
    problem = set_up("classification", made.model, made.data.take(range(60)))
    masks = path(order, problem, Limits(step=0.0)).masks
    metric = problem.metrics[0]
    scores = metric.score(predictions_of(problem, masks)["accuracy"], problem.gold)
    idle, twin = (made.truth == name for name in ("idle", "twin"))
    one_twin = twin & (np.cumsum(twin).reshape(twin.shape) == 1)
    first, last = {"ablation": (6, idle | twin), "greedy": (5, idle | one_twin)}.get(order, (4, idle))
    np.testing.assert_array_equal(masks[first], last)
    if order != "ablation":  # alone, each twin is as idle as the idle ones
        np.testing.assert_array_equal(scores[: first + 1], 1)
    assert (scores[6:] < 0.8).all()
