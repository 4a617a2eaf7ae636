"""What is found of every head over a collection of texts: the measures by name, their tables, their intervals.

Plain NumPy, so that a screen can name and show them before any network is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from analysis.maps import Floats, Head, Specials
from analysis.tokens import Bools, Ints

INTERVAL = (2.5, 97.5)
MEASURES = {
    "entropy": "entropy of a row in bits",
    "entropy_normalised": "entropy as a share of its maximum, log2 of the keys that may be attended",
    "entropy_cls": "entropy in bits of the row of the first token ([CLS]) alone",
    "confidence": "largest weight of a row; special tokens are no queries",
    "self": "weight on the token itself",
    "previous": "weight on the token before, of those that have one",
    "next": "weight on the token after, of those that have one",
    "cls": "weight on the first special token ([CLS]), of texts that have one",
    "sep": "weight on the separators ([SEP]), of texts that have some",
    "other_special": "weight on all other special tokens, of texts that have some",
    "punctuation": "weight on punctuation, signs such as $ and + among it",
    "same_word": "weight on other places of the same token, of those that have one",
    "distance": "mean distance, in tokens, to what is looked at",
    "argmax_previous": "share of queries that look most at the token before, of those that have one",
    "argmax_self": "share of queries that look most at themselves",
    "argmax_next": "share of queries that look most at the token after, of those that have one",
    "block_aa": "weight on the first sentence from the first, special tokens apart",
    "block_ab": "weight on the second sentence from the first",
    "block_ba": "weight on the first sentence from the second",
    "block_bb": "weight on the second sentence from the second",
}


@dataclass(frozen=True, eq=False)
class Focus:
    """The texts on which each head is most and least focused, by its mean normalised entropy on them.

    places: [end, layer, head, rank] where in the collection they stand, the most focused (end 0) or least
        (end 1) first; -1 where there are fewer
    entropy: the same of their entropy, NaN where there are fewer
    """

    places: Ints
    entropy: Floats


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """Every measure of every head over a collection; see `analysis.measures.MEASURES`.

    mean, low, high: [measure, layer, head], the ends of a 95% interval; NaN where no query has the measure, and for
        heads that were removed from the model
    weighting: "queries", where each query counts the same, or "texts", where each text does
    replicates: [replicate, measure, layer, head] the means that the intervals come from, to compare two heads,
        or two models over the same texts, replicate by replicate
    """

    names: tuple[str, ...]
    mean: Floats
    low: Floats
    high: Floats
    texts: int
    queries: int
    specials: Specials
    weighting: str
    replicates: Floats = field(default_factory=lambda: np.empty((0, 0, 0, 0)), repr=False)
    focus: Focus | None = field(default=None, repr=False)

    @property
    def gone(self) -> Bools:
        """Which heads [layer, head] were removed from the model: they have no measure at all."""
        if not self.queries:
            return np.zeros(self.mean.shape[1:], dtype=bool)
        return np.asarray(np.isnan(self.mean).all(axis=0))

    def table(self, name: str) -> Floats:
        """Return the mean of one measure, [layer, head]."""
        return self.mean[self.names.index(name)]

    def frame(self) -> pd.DataFrame:
        """Return a row a head: layer, head, and for each measure its mean and the ends of its interval."""
        layers, heads = self.mean.shape[1:]
        layer, head = np.indices((layers, heads))
        columns = {"layer": layer.ravel(), "head": head.ravel()}
        for i, name in enumerate(self.names):
            for suffix, table in (("", self.mean), ("_low", self.low), ("_high", self.high)):
                columns[name + suffix] = table[i].ravel()
        return pd.DataFrame(columns)


def difference(
    first: HeadStatistics, second: HeadStatistics, head: Head, other: Head
) -> tuple[Floats, Floats, Floats]:
    """Return every measure of ``head`` in ``first`` minus that of ``other`` in ``second``, and its 95% interval.

    Each [measure]. Both are counted over the same texts in every replicate (one seed): the interval is that of a
    paired bootstrap, narrower than what the two intervals would suggest.
    """
    (a, b) = (
        first.replicates[:, :, head.layer, head.index],
        second.replicates[:, :, other.layer, other.index],
    )
    low, high = interval(a.astype(np.float64) - b)
    means = first.mean[:, head.layer, head.index] - second.mean[:, other.layer, other.index]
    return means, low, high


def interval(replicates: np.ndarray) -> tuple[Floats, Floats]:
    """Return the ends of the 95% interval over replicates (axis 0), without those that counted no query."""
    if not np.isnan(replicates).any():
        low, high = np.percentile(replicates, INTERVAL, axis=0)
        return np.asarray(low), np.asarray(high)
    with np.errstate(invalid="ignore"):
        empty = np.isnan(replicates).all(axis=0)
        filled = np.where(empty, 0.0, replicates)
        low, high = np.nanpercentile(filled, INTERVAL, axis=0)
    return np.where(empty, np.nan, low), np.where(empty, np.nan, high)
