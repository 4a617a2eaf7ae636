"""In which order heads go, and the score with so many of them gone.

Michel, Levy, Neubig 2019 (arXiv 1905.10650), section 4: heads are removed in steps of a share, the least important
first, the importance estimated anew at each step or once. What an order is estimated on is never what the curve is
scored on. A `Path` starts with nothing removed and ends with all that may go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from analysis.ablation import count_units, evaluate, one_set, single_heads
from analysis.collection import summarise
from analysis.fisher import fisher_masks
from analysis.importance import importance, normalise
from analysis.maps import Floats, Head
from analysis.messages import OptionError
from analysis.problems import Problem
from analysis.tokens import Bools

Order = Literal[
    "importance", "importance-once", "signed", "ablation", "greedy", "fisher", "entropy", "random"
]
ORDERS: tuple[Order, ...] = (
    "importance",
    "importance-once",
    "signed",
    "ablation",
    "greedy",
    "fisher",
    "entropy",
    "random",
)
NEED_LOSS = ("importance", "importance-once", "signed", "fisher")


@dataclass(frozen=True)
class Limits:
    """How heads go: how many at a step, and which stay.

    step: the share of all heads that goes at a step; 0 for one head at a time
    keep: how many heads each layer keeps at least
    protected: heads that never go
    """

    step: float = 0.1
    keep: int = 0
    protected: tuple[Head, ...] = ()


@dataclass(frozen=True, eq=False)
class Path:
    """An order of removal: masks [step, layer, head], True where a head is gone; each holds the one before it.

    (The masks of "fisher" need not: its heads are rearranged at each step.) The first has nothing removed.

    gone: [layer, head] heads that the model lacked before; no mask has any of them
    """

    order: Order
    seed: int
    masks: np.ndarray
    gone: Bools

    @property
    def there(self) -> int:
        """Return how many heads there were before the first was removed."""
        return int((~self.gone).sum())

    @property
    def removed(self) -> np.ndarray:
        """Return [step] how many heads are gone."""
        return self.masks.sum(axis=(1, 2))


Report = Callable[[float], None]


def path(
    order: Order,
    problem: Problem,
    limits: Limits = Limits(),
    *,
    seed: int = 0,
    normalised: bool = True,
    report: Report | None = None,
) -> Path:
    """Return the order in which heads go, estimated on the data of ``problem``.

    seed: of the order "random"
    normalised: whether importance is divided by the length of its layer, as Michel et al. do (section 4.1)
    report: called with the share that is done, 0 to 1; what it raises ends the work

    Raises OptionError for an order that the task does not have, and for limits that leave nothing to remove.
    """
    tell = report or (lambda _share: None)
    gone = problem.model.gone
    counts = check(order, problem, limits)
    if order == "fisher":
        scores = importance(problem, on_progress=lambda done: tell(done / len(problem.examples)))
        return Path(order, seed, fisher_masks(scores.each, counts, gone, limits.keep, limits.protected), gone)
    if order in ("importance", "greedy"):
        by_gradient = partial(_importance_now, normalised=normalised)
        anew = by_gradient if order == "importance" else _losses_now
        return Path(order, seed, _step_by_step(anew, problem, counts, limits, tell), gone)
    scores_once = _scores(order, problem, seed, normalised, tell)
    masks = [np.zeros_like(gone)]
    for count in counts[1:]:
        masks.append(remove_lowest(scores_once, masks[-1], count, gone, limits))
    return Path(order, seed, np.stack(masks), gone)


def check(order: Order, problem: Problem, limits: Limits) -> list[int]:
    """Return the steps, see `steps`. Raises OptionError for what `path` cannot do, before anything is computed."""
    if order in NEED_LOSS and problem.loss is None:
        raise OptionError(
            "{task} has no loss, so there is no order by {order}. Choose ablation, greedy, entropy or random.",
            task=problem.task,
            order=order,
        )
    return steps(problem.model.gone, limits)


def steps(gone: Bools, limits: Limits) -> list[int]:
    """Return how many heads are removed at each step, from 0 to all that may go. Raises OptionError for bad limits."""
    layers, heads = gone.shape
    one_set(limits.protected, (layers, heads))
    if not 0 <= limits.keep <= heads:
        raise OptionError(
            "To keep {keep} heads a layer is not possible: give 0 to {heads}.", keep=limits.keep, heads=heads
        )
    if not 0 <= limits.step <= 1:
        raise OptionError("The step {step} is no share: give 0 (one head) to 1.", step=limits.step)
    most = _may_go(gone, np.zeros_like(gone), limits, None)
    if not most:
        raise OptionError("Nothing may be removed: all heads are protected, kept or gone already.")
    there = int((~gone).sum())
    size = max(1, round(limits.step * there))
    return [*range(0, most, size), most]


def _may_go(gone: Bools, mask: Bools, limits: Limits, layer: int | None) -> int:
    """Return how many heads may still go, of one layer or of all."""
    there = ~gone & ~mask
    free = there.copy()
    for head in limits.protected:
        free[head.layer, head.index] = False
    each = np.minimum(free.sum(axis=1), np.maximum(there.sum(axis=1) - limits.keep, 0))
    return int(each.sum() if layer is None else each[layer])


def remove_lowest(scores: Floats, mask: Bools, count: int, gone: Bools, limits: Limits) -> Bools:
    """Return ``mask`` with the heads of the lowest scores [layer, head] added until ``count`` are gone; ties by place."""
    found = mask.copy()
    protected = {(head.layer, head.index) for head in limits.protected}
    for place in np.argsort(scores, axis=None, kind="stable"):
        layer, head = divmod(int(place), scores.shape[1])
        if int(found.sum()) >= count:
            break
        if gone[layer, head] or found[layer, head] or (layer, head) in protected:
            continue
        if _may_go(gone, found, limits, layer) > 0:
            found[layer, head] = True
    return found


def _step_by_step(
    score: Callable[[Problem, Bools, Report], Floats],
    problem: Problem,
    counts: Sequence[int],
    limits: Limits,
    tell: Report,
) -> np.ndarray:
    """Return the masks of an order that is estimated anew before each step, with what is gone switched off."""
    gone = problem.model.gone
    masks = [np.zeros_like(gone)]
    for number, count in enumerate(counts[1:]):

        def told(share: float, number: int = number) -> None:
            tell((number + share) / (len(counts) - 1))

        masks.append(remove_lowest(score(problem, masks[-1], told), masks[-1], count, gone, limits))
    return np.stack(masks)


def _importance_now(problem: Problem, mask: Bools, tell: Report, *, normalised: bool) -> Floats:
    """Return the importance of the heads that are left; what is gone has no part in the length of its layer."""
    found = importance(problem, off=mask, on_progress=lambda done: tell(done / len(problem.examples)))
    if not normalised:
        return found.absolute
    there = ~mask & ~problem.model.gone
    return normalise(np.where(there, found.absolute, 0.0))


def _losses_now(problem: Problem, mask: Bools, tell: Report) -> Floats:
    """Return how much the score falls with each head that is left switched off beside those that are gone."""
    shape = mask.shape
    there = (~mask & ~problem.model.gone).ravel()
    single = single_heads(*shape)[there] | mask
    scores = _main_scores(problem, np.concatenate([mask[None], single]), tell)
    losses = np.full(mask.size, np.inf)
    losses[there] = scores[0] - scores[1:]
    return np.nan_to_num(losses, nan=np.inf).reshape(shape)


def _scores(order: Order, problem: Problem, seed: int, normalised: bool, tell: Report) -> Floats:
    """Return the scores [layer, head] of an order that is estimated once; the lowest go first."""
    gone = problem.model.gone

    def told(done: int) -> None:
        tell(done / len(problem.examples))

    if order == "random":
        return np.random.default_rng(seed).random(gone.shape)
    if order == "ablation":
        return _losses_now(problem, np.zeros_like(gone), tell)
    if order == "entropy":  # the least certain first: a head that looks everywhere carries little
        measured = summarise(problem.model, problem.data.texts, on_progress=told)
        return -np.nan_to_num(measured.table("entropy_normalised"), nan=-np.inf)
    found = importance(problem, on_progress=told)
    if order == "signed":  # what removing it costs, to first order
        return -found.signed
    return found.normalised if normalised else found.absolute


def _main_scores(problem: Problem, masks: np.ndarray, report: Report) -> Floats:
    """Return [variant] the main score under each mask."""
    predictions = predictions_of(problem, masks, report)
    metric = problem.metrics[0]
    return metric.score(predictions[metric.name], problem.gold)


def predictions_of(
    problem: Problem, masks: np.ndarray, report: Report | None = None
) -> dict[str, np.ndarray]:
    """Return the predictions of each metric under each mask, [variant, example]."""
    which = list(range(len(problem.examples)))
    places, rows = problem.rows_of(which)
    inputs = [problem.inputs[i] for i in places]
    total = count_units(inputs, masks)
    kept = evaluate(
        problem.model,
        inputs,
        lambda outputs, batch, at: problem.read(outputs, batch, [places[i] for i in at]),
        masks,
        on_progress=None if report is None else lambda done: report(done / total),
    )
    return problem.predict(kept, rows, which)
