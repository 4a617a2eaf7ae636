"""The score with so many heads gone, along an order of removal, and how many can go at a loss that is allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.maps import Floats, write_heads
from analysis.messages import OptionError
from analysis.problems import Problem
from analysis.pruning import Path, Report, predictions_of
from analysis.significance import Changes, changes


@dataclass(frozen=True, eq=False)
class Curve:
    """The scores along a path, on data that chose nothing: [step] each.

    score, low, high: of the main metric and its 95% interval; changes: against the whole model, paired
    """

    path: Path
    metric: str
    whole: float
    score: Floats
    low: Floats
    high: Floats
    changes: Changes

    @property
    def share(self) -> Floats:
        """Return [step] the share of the heads that are gone, of those that the model had."""
        return self.path.removed / self.path.there

    def frame(self) -> pd.DataFrame:
        """Return a row a step: order, seed, removed, share, score, ci_low, ci_high, heads."""
        return pd.DataFrame(
            {
                "order": self.path.order,
                "seed": self.path.seed,
                "removed": self.path.removed,
                "share": self.share,
                "score": self.score,
                "ci_low": self.low,
                "ci_high": self.high,
                "heads": [write_heads(mask) for mask in self.path.masks],
            }
        )


def curve(path: Path, problem: Problem, *, seed: int = 0, report: Report | None = None) -> Curve:
    """Return the scores of the steps of a path on the data of ``problem``, which must not be what chose the path."""
    predictions = predictions_of(problem, path.masks, report)
    metric = problem.metrics[0]
    table = predictions[metric.name]
    found = changes(
        metric,
        table[0],
        table[1:],
        problem.gold,
        seed=seed,
        can_only_fall=problem.task == "fidelity",
    )
    scores = np.concatenate([[found.score], found.scores])
    low = np.concatenate([found.score_ends[:1], found.scores_low])
    high = np.concatenate([found.score_ends[1:], found.scores_high])
    return Curve(path, metric.name, found.score, scores, low, high, found)


@dataclass(frozen=True)
class Knee:
    """The most heads that can go: at step ``step`` of a curve ``removed`` heads are gone.

    loss: how much the score falls, and the upper end of its 95% interval
    """

    step: int
    removed: int
    share: float
    loss: float
    loss_high: float


def knee(curve: Curve, most: float) -> Knee:
    """Return the last step up to which every loss is, at 95%, not above ``most``: step 0 where none is.

    Raises OptionError for a loss below 0.
    """
    check_loss(most)
    within = -curve.changes.low <= most
    count = len(within) if within.all() else int(np.argmin(within))
    if not count:
        return Knee(0, 0, 0.0, 0.0, 0.0)
    return Knee(
        count,
        int(curve.path.removed[count]),
        float(curve.share[count]),
        float(-curve.changes.delta[count - 1]),
        float(-curve.changes.low[count - 1]),
    )


def check_loss(most: float) -> None:
    """Raise OptionError unless ``most`` is a loss that can be allowed."""
    if not (math.isfinite(most) and most >= 0):
        raise OptionError("A loss of {loss} cannot be asked for: give 0 or more.", loss=most)
