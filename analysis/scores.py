"""How good predictions are: metrics of whole sets of predictions at once, plain and in every bootstrap replicate.

A replicate is given as how often it counts each example, so that nothing is copied: accuracy, F1 and the
correlations of Matthews and Pearson are then sums, which matrix products compute for all replicates together.
Spearman's needs the ranks within each replicate. They come from the fixed order of a variant's predictions: the
rank of an example is what all before it count, and the mean of its ties' ranks where it has ties.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from analysis.maps import Floats
from analysis.messages import HeadroomError

CELLS = (
    3 * 2**20
)  # numbers of [example, replicate] or [variant, example] at a time: 25 MB each, a few at once
CONSTANT = 1e-12  # a variance below this share of the mean square is rounding
ROUNDING = 1e-6  # and so is a spread of predictions below this share of the largest

Numbers = npt.NDArray[np.floating] | npt.NDArray[np.integer]
Compute = Callable[[Numbers, Numbers, Floats], Floats]


@dataclass(frozen=True)
class Metric:
    """A score of predictions, larger is better.

    kind: what the predictions are: "numbers", "classes" (whole numbers), or "values" that are averaged as they
        are and have no gold
    varied: whether it needs gold that is not the same for all examples
    spread: whether it needs predictions that are not the same for all examples
    """

    name: str
    kind: Literal["numbers", "classes", "values"]
    compute: Compute = field(repr=False)
    varied: bool = False
    spread: bool = False

    def score(
        self, predictions: Numbers, gold: Numbers | None = None, counts: np.ndarray | None = None
    ) -> Floats:
        """Return [variant, replicate] the score of each variant in each replicate; [variant] without ``counts``.

        predictions: [variant, example]
        gold: [example], not used by a metric of values
        counts: [replicate, example] whole numbers, how often each replicate counts each example

        Equal to the metric on the examples repeated that often; NaN where it is not defined on them, or where all
        predictions of a variant are the same but for rounding.
        """
        variants, examples = predictions.shape
        gold = np.zeros(examples) if gold is None else gold
        weights = np.ones((1, examples)) if counts is None else counts
        step = chunk(examples)
        scores = np.empty((variants, len(weights)))
        with np.errstate(divide="ignore", invalid="ignore"):
            for start in range(0, len(weights), step):
                part = weights[start : start + step].astype(np.float64)
                for first in range(0, variants, step):
                    rows = slice(first, first + step)
                    scores[rows, start : start + step] = self.compute(predictions[rows], gold, part)
        if self.spread:
            scores[_one_value(predictions)] = np.nan
        return scores[:, 0] if counts is None else scores


def chunk(examples: int) -> int:
    """Return how many variants or replicates are held at a time for this many examples."""
    return max(1, CELLS // max(examples, 1))


def check(metric: Metric, predictions: Numbers, gold: Numbers | None) -> None:
    """Raise HeadroomError where ``metric`` is not defined for these predictions [example] and this gold [example]."""
    check_finite(predictions)
    if metric.kind != "values":
        if gold is None or len(gold) != len(predictions):
            raise HeadroomError(
                "There are {predictions} predictions and {gold} gold values. Give one gold value for each.",
                predictions=len(predictions),
                gold=0 if gold is None else len(gold),
            )
        check_gold(metric, gold)
    if len(predictions) < 2:
        raise HeadroomError(
            "There are {examples} examples to score; at least 2 are needed. Add examples.",
            examples=len(predictions),
        )
    if metric.spread and _one_value(predictions):
        raise HeadroomError(
            "The model predicts {value} for all {examples} examples; {metric} needs at least two different "
            "predictions. Choose other examples, or another metric.",
            examples=len(predictions),
            value=predictions[0].item(),
            metric=metric.name,
        )


def check_gold(metric: Metric, gold: Numbers) -> None:
    """Raise HeadroomError where ``metric`` is not defined against this gold [example], whatever is predicted."""
    check_finite(gold)
    if metric.varied and len(gold) > 1 and np.all(gold == gold[0]):
        raise HeadroomError(
            "The gold value of all {examples} examples is {value}; {metric} needs at least two different ones. "
            "Add other examples, or choose another metric.",
            examples=len(gold),
            value=gold[0].item(),
            metric=metric.name,
        )


def check_finite(values: Numbers) -> None:
    """Raise HeadroomError, with the example, where one of values [..., example] is infinite or no number."""
    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        raise HeadroomError(
            "A value of example {example} is {value}, not a finite number. Leave this example out.",
            example=int(wrong[0, -1]) + 1,
            value=str(values[tuple(wrong[0])]),
        )


def _one_value(predictions: Numbers) -> np.ndarray:
    """Return [...] whether predictions [..., example] are all the same, but for rounding."""
    spread = predictions.max(axis=-1) - predictions.min(axis=-1)
    return np.asarray(spread <= ROUNDING * np.abs(predictions).max(axis=-1))


def _mean(values: Numbers, gold: Numbers, counts: Floats) -> Floats:
    return values.astype(np.float64) @ counts.T / counts.sum(axis=1)


def _accuracy(predictions: Numbers, gold: Numbers, counts: Floats) -> Floats:
    return (predictions == gold).astype(np.float64) @ counts.T / counts.sum(axis=1)


def _by_class(predictions: Numbers, gold: Numbers, counts: Floats) -> list[tuple[Floats, Floats, Floats]]:
    """Return for each class what is predicted [variant, replicate], is gold [replicate], and is both, in numbers."""
    found = []
    for label in np.union1d(gold, predictions):
        said, true = predictions == label, gold == label
        sums = [part.astype(np.float64) @ counts.T for part in (said, true, said & true)]
        found.append((sums[0], sums[1], sums[2]))
    return found


def _macro_f1(predictions: Numbers, gold: Numbers, counts: Floats) -> Floats:
    """Return the mean of F1 over the classes that a replicate has, in its gold or predictions (as scikit-learn)."""
    total = np.zeros((len(predictions), len(counts)))
    present = np.zeros_like(total)
    for said, true, both in _by_class(predictions, gold, counts):
        has = said + true > 0
        total += np.where(has, 2 * both / (said + true), 0.0)
        present += has
    return total / present


def _matthews(predictions: Numbers, gold: Numbers, counts: Floats) -> Floats:
    """Return Gorodkin's correlation of classes (2004, eq. 8); 0, chance, where all predictions are of one class."""
    examples = counts.sum(axis=1)
    right = np.zeros((len(predictions), len(counts)))
    chance, said_squares, true_squares = np.zeros_like(right), np.zeros_like(right), np.zeros_like(examples)
    for said, true, both in _by_class(predictions, gold, counts):
        right += both
        chance += said * true
        said_squares += said**2
        true_squares += true**2
    said_spread, true_spread = examples**2 - said_squares, examples**2 - true_squares
    found = (right * examples - chance) / np.sqrt(said_spread * true_spread)
    return np.where((said_spread == 0) & (true_spread > 0), 0.0, found)


def _pearson(predictions: Numbers, gold: Numbers, counts: Floats) -> Floats:
    x, y = _standardised(predictions), _standardised(gold)
    examples = counts.sum(axis=1)
    sum_x, sum_y = x @ counts.T, y @ counts.T
    covariance = (x * y) @ counts.T - sum_x * sum_y / examples
    variances = []
    for values, total in ((x, sum_x), (y, sum_y)):
        squares = values**2 @ counts.T
        variance = squares - total**2 / examples
        variances.append(np.where(variance > CONSTANT * squares, variance, np.nan))
    return covariance / np.sqrt(variances[0] * variances[1])


def _standardised(values: Numbers) -> Floats:
    """Return values with mean 0 and a largest size of 1 along the last axis, so that sums of squares stay exact."""
    centred = values - values.mean(axis=-1, keepdims=True, dtype=np.float64)
    largest = np.abs(centred).max(axis=-1, keepdims=True)
    return centred / np.where(largest > 0, largest, 1.0)


def _spearman(predictions: Numbers, gold: Numbers, counts: Floats) -> Floats:
    weights = np.ascontiguousarray(counts.T)  # [example, replicate]: all replicates take a step side by side
    examples = weights.sum(axis=0)
    ranks = 2 * _ranks(gold, weights) - (examples + 1)  # twice the centred ranks, so that they are whole
    pulls = weights * ranks  # sums to 0, so that the other ranks need not be centred
    gold_spread = np.einsum("er,er->r", pulls, ranks)
    del ranks
    alone = _alone(weights, pulls)
    steps, drawn = weights.astype(_exact(examples)), pulls.astype(_exact(examples))
    scores = np.empty((len(predictions), len(counts)))
    for row, values in enumerate(predictions):
        covariance, ties = _with_ranks(values, steps, drawn, alone)
        spread = (examples**3 - examples - ties) / 12
        scores[row] = covariance / np.sqrt(spread * gold_spread)
    return scores


def _exact(examples: Floats) -> npt.DTypeLike:
    """Return a type in which the sums of `_with_ranks` are exact: int32, which is twice as fast, where it can be.

    By Cauchy and Schwarz the sum of pulls times what is before is at most 2 sqrt(n^3 / 12 * n^3 / 3) = n^3 / 3.
    On the way there it may overflow: integers wrap around, which leaves a sum that fits as it is.
    """
    return np.int32 if examples.max() ** 3 / 3 < 2**31 else np.float64


def _runs(values: Numbers) -> tuple[np.ndarray, list[int]]:
    """Return the order of values, and where in it each run of equal ones starts, its length at the end."""
    order = np.argsort(values, kind="stable")
    edges = np.flatnonzero(np.diff(values[order])) + 1
    return order, [0, *edges.tolist(), len(order)]


def _ranks(values: Numbers, weights: Floats) -> Floats:
    """Return [example, replicate] the ranks of values, ties at their mean: all that is before, and half the run."""
    ranks = np.empty_like(weights)
    before = np.zeros(weights.shape[1])
    order, edges = _runs(values)
    for start, stop in pairwise(edges):
        run = order[start:stop]
        size = weights[run].sum(axis=0)
        ranks[run] = before + (size + 1) / 2
        before += size
    return ranks


def _alone(weights: Floats, pulls: Floats) -> tuple[Floats, Floats]:
    """Return what examples add to the covariance and to the term of ties if none equals another, [replicate]."""
    covariance = (np.einsum("er,er->r", pulls, weights) + pulls.sum(axis=0)) / 2
    return covariance, np.einsum("er,er,er->r", weights, weights, weights) - weights.sum(axis=0)


def _with_ranks(
    values: Numbers, weights: np.ndarray, pulls: np.ndarray, alone: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Return the sum of pulls times the ranks of values, and the sum of t^3 - t over ties of t, [replicate].

    The innermost loop: one pass over the examples in the order of their values, for all replicates at once.
    Whole numbers and halves below 2^53, so no rounding (up to a hundred thousand examples).
    """
    order, edges = _runs(values)
    covariance, ties = alone[0].copy(), alone[1].copy()
    total, before, product = (np.zeros(weights.shape[1], dtype=weights.dtype) for _ in range(3))
    places = order.tolist()
    for start, stop in pairwise(edges):
        if stop - start == 1:
            size, pull = weights[places[start]], pulls[places[start]]
        else:
            run = order[start:stop]
            size, pull = (part[run].sum(axis=0, dtype=weights.dtype) for part in (weights, pulls))
            apart = _alone(weights[run].astype(np.float64), pulls[run].astype(np.float64))
            covariance += pull * (size + 1.0) / 2 - apart[0]
            ties += size**3.0 - size - apart[1]
        np.multiply(pull, before, out=product)
        total += product
        before += size
    return covariance + total, ties


SPEARMAN = Metric("spearman", "numbers", _spearman, varied=True, spread=True)
PEARSON = Metric("pearson", "numbers", _pearson, varied=True, spread=True)
ACCURACY = Metric("accuracy", "classes", _accuracy)
MACRO_F1 = Metric("macro_f1", "classes", _macro_f1)
MATTHEWS = Metric("matthews", "classes", _matthews, varied=True)
MEAN = Metric("mean", "values", _mean)
METRICS = {metric.name: metric for metric in (SPEARMAN, PEARSON, ACCURACY, MACRO_F1, MATTHEWS, MEAN)}
