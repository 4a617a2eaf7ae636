"""Whether a change is more than noise: the score of ablated variants against the whole model's, paired by example.

Bootstrap over examples (Efron, Tibshirani 1993): every replicate draws as many examples as there are, with
replacement, and scores the whole model and every variant on the same ones. With one test a head, some of them are
small by chance alone: q is p after Benjamini and Hochberg 1995, over all variants. The smallest p of B replicates
is 2 / (B + 1), so B grows with the number of tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import false_discovery_control

from analysis.findings import interval
from analysis.maps import Floats
from analysis.messages import HeadroomError, OptionError
from analysis.scores import Metric, Numbers, check, check_finite, chunk
from analysis.tokens import Bools, Ints

REPLICATES = 10_000
PER_TEST = 40  # replicates for each variant: one clear head among many still gets q = 2 / 40
FEWEST = 100  # replicates of which the ends of a 95% interval can be told
LEVEL = 0.05
ROUNDING = 1e-6  # of predictions, as a share of their spread
EQUAL = 1e-12  # of scores, as a share of their size


@dataclass(frozen=True, eq=False)
class Changes:
    """How the score of each variant differs from the whole model's.

    score, scores: of the whole model, and [variant] of each variant
    score_ends, scores_low, scores_high: the ends of their 95% intervals over examples, on the same draws
    delta, low, high: [variant] score of the variant minus the whole's, negative is worse, and the ends of its 95%
        interval; NaN where the metric is not defined for a variant's predictions
    p, q: [variant] two-sided, before and after the correction; NaN where a change can go one way only
    noise: [variant] whether the change is smaller than noise: its interval holds 0, q is 0.05 or more, or it is of
        rounding size; False where delta is NaN
    replicates, examples: how many replicates there were, and how many examples each has
    undefined: [variant] how many replicates were left out, as the metric is not defined on them
    """

    metric: str
    score: float
    score_ends: tuple[float, float]
    scores: Floats
    scores_low: Floats
    scores_high: Floats
    delta: Floats
    low: Floats
    high: Floats
    p: Floats
    q: Floats
    noise: Bools
    replicates: int
    examples: int
    undefined: Ints


def changes(
    metric: Metric,
    whole: Numbers,
    ablated: Numbers,
    gold: Numbers | None = None,
    *,
    replicates: int | None = None,
    seed: int = 0,
    can_only_fall: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> Changes:
    """Return the change of the score of each variant, its 95% paired interval, and whether it is more than noise.

    whole: [example] predictions of the whole model
    ablated: [variant, example] the same of each variant
    gold: [example], None for a metric of values
    replicates: by default 10,000, or 40 a variant where that is more
    can_only_fall: for scores that no variant can better (fidelity), where a test would find every change: no p
    on_progress: called with how many replicates are done; what it raises ends the run

    A change of rounding size in every prediction counts as none at all: delta 0, interval [0, 0], p 1. One seed
    draws the same examples whatever the variants. Raises HeadroomError where the metric is not defined for the whole
    model, OptionError for fewer than 100 replicates.
    """
    _check_pair(metric, whole, ablated, gold)
    variants, examples = ablated.shape
    times = _checked(max(REPLICATES, PER_TEST * variants) if replicates is None else replicates)
    moved = ~_rounding(metric, whole, ablated)
    together = np.concatenate([whole[None], ablated[moved]])
    plain = metric.score(together, gold)
    found = np.zeros((variants, times))  # deltas [variant, replicate]
    drawn = np.empty((len(together), times))  # scores [whole and moved variants, replicate]
    for start, part in _replicates(metric, together, gold, times, seed, on_progress):
        drawn[:, start : start + part.shape[1]] = part
        found[moved, start : start + part.shape[1]] = _differences(part)
    ends = np.array(interval(drawn.T))  # [end, whole and moved variants]
    each = np.repeat(ends[:, :1], variants, axis=1)
    each[:, moved] = ends[:, 1:]
    scores = np.full(variants, plain[0])
    scores[moved] = plain[1:]
    low, high = interval(found.T)
    p = np.full(variants, np.nan) if can_only_fall else p_values(found)
    q = adjusted(p)
    return Changes(
        metric=metric.name,
        score=float(plain[0]),
        score_ends=(float(ends[0, 0]), float(ends[1, 0])),
        scores=scores,
        scores_low=each[0],
        scores_high=each[1],
        delta=scores - plain[0],
        low=low,
        high=high,
        p=p,
        q=q,
        noise=((low <= 0) & (high >= 0)) | (q >= LEVEL) | ~moved,
        replicates=times,
        examples=examples,
        undefined=np.isnan(found).sum(axis=1),
    )


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Sums of scores with weights: value [contrast], the ends of its 95% interval, p and q as of `Changes`."""

    value: Floats
    low: Floats
    high: Floats
    p: Floats
    q: Floats
    noise: Bools


def contrasts(
    metric: Metric,
    predictions: Numbers,
    weights: Floats,
    gold: Numbers | None = None,
    *,
    seed: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> Contrasts:
    """Return sums of the scores of several variants, each with its paired interval: such as A + B - C - D.

    predictions: [variant, example], first of the whole model
    weights: [contrast, variant], each row of sum 0, so that 0 means no difference
    gold, seed, on_progress: see `changes`

    What rounding leaves of equal scores is 0. Raises as `changes` does.
    """
    check(metric, predictions[0], gold)
    check_finite(predictions)
    times = max(REPLICATES, PER_TEST * len(weights))
    value = _sums(weights, metric.score(predictions, gold)[:, None])[:, 0]
    parts = _replicates(metric, predictions, gold, times, seed, on_progress)
    found = np.concatenate([_sums(weights, part) for _, part in parts], axis=1)
    low, high = interval(found.T)
    p = p_values(found)
    q = adjusted(p)
    return Contrasts(value, low, high, p, q, ((low <= 0) & (high >= 0)) | (q >= LEVEL))


def _sums(weights: Floats, scores: Floats) -> Floats:
    """Return [contrast, replicate]; a score that a contrast does not weigh has no part in it, even where it is NaN."""
    found = np.empty((len(weights), scores.shape[1]))
    for row, one in enumerate(weights):
        counted = one != 0
        total, size = one[counted] @ scores[counted], np.abs(one[counted]) @ np.abs(scores[counted])
        found[row] = np.where(np.abs(total) <= EQUAL * size, 0.0, total)
    return found


def interval_of_score(
    metric: Metric,
    predictions: Numbers,
    gold: Numbers | None = None,
    *,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Return the score of predictions [example] and the ends of its 95% interval over examples.

    Replicates on which the metric is not defined are left out. Raises as `changes` does.
    """
    check(metric, predictions, gold)
    parts = _replicates(metric, predictions[None], gold, _checked(replicates), seed)
    low, high = interval(np.concatenate([part[0] for _, part in parts]))
    return float(metric.score(predictions[None], gold)[0]), float(low), float(high)


def draws(examples: int, replicates: range, seed: int = 0) -> np.ndarray:
    """Return [replicate, example] how often each replicate draws each example; each row sums to ``examples``.

    Every replicate has a seed of its own, so that it does not matter which are drawn together.
    """
    counts = np.empty((len(replicates), examples), dtype=np.int32)
    for row, number in enumerate(replicates):
        drawn = np.random.default_rng([seed, number]).integers(examples, size=examples)
        counts[row] = np.bincount(drawn, minlength=examples)
    return counts


def p_values(found: Floats) -> Floats:
    """Return [variant] two-sided p = 2 (k + 1) / (B + 1), at most 1, of deltas [variant, replicate].

    k is the number of replicates in the smaller tail; those that are 0 count in both. NaN replicates count
    nowhere, and a variant that has no other has p NaN. (Davison, Hinkley 1997, section 4.2.)
    """
    defined = np.isfinite(found).sum(axis=1)
    smaller = np.minimum((found <= 0).sum(axis=1), (found >= 0).sum(axis=1))
    return np.where(defined > 0, np.minimum(1.0, 2 * (smaller + 1) / (defined + 1)), np.nan)


def adjusted(p: Floats) -> Floats:
    """Return [variant] q of Benjamini and Hochberg 1995 over those p [variant] that are not NaN."""
    q = np.full(len(p), np.nan)
    tested = np.isfinite(p)
    if tested.any():
        q[tested] = false_discovery_control(p[tested], method="bh")
    return q


def _replicates(
    metric: Metric,
    predictions: Numbers,
    gold: Numbers | None,
    replicates: int,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, Floats]]:
    """Yield the number of a first replicate, and the scores [variant, replicate] of some from there on."""
    examples = predictions.shape[1]
    step = chunk(examples)
    for start in range(0, replicates, step):
        some = range(start, min(start + step, replicates))
        yield start, metric.score(predictions, gold, draws(examples, some, seed))
        if on_progress is not None:
            on_progress(some.stop)


def _differences(scores: Floats) -> Floats:
    """Return all rows but the first minus the first; what rounding leaves of equal scores is 0."""
    delta = scores[1:] - scores[0]
    size = np.maximum(np.abs(scores[1:]), np.abs(scores[0]))
    return np.where(np.abs(delta) <= EQUAL * size, 0.0, delta)


def _rounding(metric: Metric, whole: Numbers, ablated: Numbers) -> Bools:
    """Return [variant] whether a variant predicts for every example what the whole model does, but for rounding."""
    if metric.kind == "classes":
        return (ablated == whole).all(axis=1)
    exact = whole.astype(np.float64)
    spread, largest = exact.std(), np.abs(exact).max()
    # Where the whole model says the same of all examples (its fidelity to itself is 1), that is the scale.
    scale = spread if spread > ROUNDING * largest else largest
    return np.array([bool(np.abs(row - exact).max() <= ROUNDING * scale) for row in ablated], dtype=bool)


def _check_pair(metric: Metric, whole: Numbers, ablated: Numbers, gold: Numbers | None) -> None:
    check(metric, whole, gold)
    if ablated.shape[1] != len(whole):
        raise HeadroomError(
            "The variants have {ablated} predictions each and the whole model has {whole}. Score both on the "
            "same examples.",
            ablated=ablated.shape[1],
            whole=len(whole),
        )
    check_finite(ablated)


def _checked(replicates: int) -> int:
    if replicates < FEWEST:
        raise OptionError(
            "replicates is {value}, but an interval needs at least {limit}. Ask for more.",
            value=replicates,
            limit=FEWEST,
        )
    return replicates
