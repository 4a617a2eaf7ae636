"""What an experiment found, from the predictions of all its variants: changes, layers, pairs, and how far to trust it.

Nothing here runs the network but `draft_error`. Where something is chosen (the best head of a layer) it is chosen
on one random half of the examples and reported on the other: the best on the data that chose it is best by luck too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.experiment import Experiment, predict
from analysis.maps import Floats, Head, write_heads
from analysis.problems import Predictions
from analysis.runs import write_whole
from analysis.significance import Changes, changes, contrasts
from analysis.tokens import Ints

CHECKED_VARIANTS, CHECKED_EXAMPLES = 8, 256  # what a draft is compared with full precision on


def judge(
    experiment: Experiment,
    predictions: Predictions,
    metric: int = 0,
    *,
    which: Ints | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Changes:
    """Return the change of a score under every variant, with its interval; the first metric is the task's main one.

    which: the examples to look at, all by default
    """
    problem = experiment.problem
    one = problem.metrics[metric]
    table = predictions[one.name][: 1 + experiment.reported]
    gold = problem.gold
    if which is not None:
        table, gold = table[:, which], None if gold is None else gold[which]
    return changes(
        one,
        table[0],
        table[1:],
        gold,
        seed=experiment.options.seed,
        can_only_fall=problem.task == "fidelity",
        on_progress=on_progress,
    )


def halves(experiment: Experiment) -> tuple[Ints, Ints]:
    """Return two random halves of the examples: one to choose or estimate on, one to report on."""
    count = len(experiment.problem.examples)
    order = np.random.default_rng(experiment.options.seed).permutation(count)
    return np.sort(order[: count // 2]), np.sort(order[count // 2 :])


def result(experiment: Experiment, found: Changes) -> pd.DataFrame:
    """Return a row a variant: layer, head (where one is off), heads, score, delta, ci_low, ci_high, p, q."""
    masks = experiment.masks[1 : 1 + experiment.reported]
    single = masks.sum(axis=(1, 2)) == 1
    places = [
        Head(*map(int, np.argwhere(mask)[0])) if one else None
        for mask, one in zip(masks, single, strict=True)
    ]
    return pd.DataFrame(
        {
            "layer": pd.array([None if head is None else head.layer for head in places], dtype="Int64"),
            "head": pd.array([None if head is None else head.index for head in places], dtype="Int64"),
            "heads": [write_heads(mask) for mask in masks],
            "score": found.scores,
            "delta": found.delta,
            "ci_low": found.low,
            "ci_high": found.high,
            "p": found.p,
            "q": found.q,
        }
    )


def best_by_layer(
    experiment: Experiment, predictions: Predictions, on_progress: Callable[[int], None] | None = None
) -> pd.DataFrame:
    """Return a row a layer: the one head that is kept at the least loss, as in Michel et al. 2019, table 2.

    For the protocol "all-but-one". Columns: layer, kept, chosen_delta (on the half that chose it), delta, ci_low,
    ci_high, p, noise (on the other half; p is not corrected for the number of layers).
    """
    gone = experiment.problem.model.gone
    choosing, reporting = halves(experiment)
    chosen = np.full(gone.shape, np.nan)
    chosen[~gone] = judge_plain(experiment, predictions, choosing)
    number = np.zeros(gone.shape, dtype=np.int64)  # of each head's variant
    number[~gone] = 1 + np.arange((~gone).sum())
    layers = np.flatnonzero(~gone.all(axis=1))  # an emptied layer keeps none
    kept = np.nan_to_num(chosen, nan=-np.inf).argmax(axis=1)[layers]
    variants = [0, *number[layers, kept].tolist()]
    few = replace(experiment, masks=experiment.masks[variants], reported=len(layers))
    some = {name: table[variants] for name, table in predictions.items()}
    found = judge(few, some, which=reporting, on_progress=on_progress)
    return pd.DataFrame(
        {
            "layer": layers,
            "kept": kept,
            "chosen_delta": chosen[layers, kept],
            "delta": found.delta,
            "ci_low": found.low,
            "ci_high": found.high,
            "p": found.p,
            "noise": found.noise,
        }
    )


def judge_plain(experiment: Experiment, predictions: Predictions, which: Ints, metric: int = 0) -> Floats:
    """Return [variant] the change of a score on some examples, without its interval; the main one by default."""
    problem = experiment.problem
    one = problem.metrics[metric]
    table = predictions[one.name][: 1 + experiment.reported][:, which]
    scores = one.score(table, None if problem.gold is None else problem.gold[which])
    return scores[1:] - scores[0]


def interactions(
    experiment: Experiment, predictions: Predictions, on_progress: Callable[[int], None] | None = None
) -> pd.DataFrame:
    """Return a row a pair: what switching both off changes, beyond what the two change alone.

    For the protocol "pairs". Columns: heads, together, apart (the sum of the two changes), beyond (together minus
    apart), ci_low, ci_high, p, q, noise. Below 0 the two stand in for each other; above 0 they work together, and
    one is little use without the other.
    """
    problem, reported = experiment.problem, experiment.reported
    masks = experiment.masks
    alone = {write_heads(mask): place for place, mask in enumerate(masks) if place > reported}
    table = predictions[problem.metrics[0].name]
    weights = np.zeros((reported, len(masks)))
    both = [[alone[name] for name in write_heads(mask).split(",")] for mask in masks[1 : 1 + reported]]
    for row, places in enumerate(both):
        weights[row, [0, 1 + row]] = 1.0
        weights[row, places] = -1.0
    found = contrasts(
        problem.metrics[0],
        table,
        weights,
        problem.gold,
        seed=experiment.options.seed,
        on_progress=on_progress,
    )
    scores = problem.metrics[0].score(table, problem.gold)
    delta = scores - scores[0]
    return pd.DataFrame(
        {
            "heads": [write_heads(mask) for mask in masks[1 : 1 + reported]],
            "together": delta[1 : 1 + reported],
            "apart": [delta[places].sum() for places in both],
            "beyond": found.value,
            "ci_low": found.low,
            "ci_high": found.high,
            "p": found.p,
            "q": found.q,
            "noise": found.noise,
        }
    )


def worst(table: pd.DataFrame, most: int = 5) -> list[str]:
    """Return the largest falls of a result in words, a line each: what was off, the change and its interval."""
    shown = table.dropna(subset=["delta"]).nsmallest(most, "delta")
    lines = []
    for row in shown.itertuples():
        sure = "" if np.isnan(row.q) else f" q {row.q:.4f}"
        off = (
            row.heads if len(row.heads) <= 40 else f"{row.heads.count(',') + 1} heads ({row.heads[:30]} ...)"
        )
        lines.append(f"off {off}: {row.delta:+.6f} [{row.ci_low:+.6f}, {row.ci_high:+.6f}]{sure}")
    return lines


@dataclass(frozen=True)
class DraftError:
    """How far a draft is from full precision, where both were computed.

    change: the largest error of a change of score; prediction: of one example's prediction (classes: the share that
    differs)
    """

    variants: int
    examples: int
    change: float
    prediction: float


def draft_error(experiment: Experiment, predictions: Predictions) -> DraftError:
    """Compute a part of a draft again in full precision: variants evenly spaced, and a random part of the examples."""
    problem = experiment.problem
    last = experiment.reported
    variants = np.unique(np.linspace(0, last, min(CHECKED_VARIANTS, last) + 1).round().astype(int))
    order = np.random.default_rng(experiment.options.seed).permutation(len(problem.examples))
    which = np.sort(order[:CHECKED_EXAMPLES])
    exact = predict(
        replace(experiment, options=replace(experiment.options, precision="full")), variants, which.tolist()
    )
    metric = problem.metrics[0]
    full, draft = exact[metric.name], predictions[metric.name][np.ix_(variants, which)]
    gold = None if problem.gold is None else problem.gold[which]
    one, two = (metric.score(table, gold) for table in (full, draft))
    wrong = np.abs((two[1:] - two[0]) - (one[1:] - one[0]))
    apart = (full != draft).mean() if metric.kind == "classes" else np.abs(full - draft).max()
    return DraftError(len(variants) - 1, len(which), float(np.nanmax(np.append(wrong, 0))), float(apart))


def save(folder: Path, table: pd.DataFrame) -> None:
    """Write the result into a run folder, as CSV and as Parquet. Raises RunError where it cannot be written."""
    write_whole(folder / "result.csv", lambda path: table.to_csv(path, index=False))
    write_whole(folder / "result.parquet", lambda path: table.to_parquet(path, index=False))
