"""The measures of every head over a collection of texts, with their uncertainty, in memory of fixed size.

Weights are reduced layer by layer as they arrive. The intervals come from a Poisson bootstrap over the texts,
for which sums are enough (`analysis.stream`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from analysis.capture import Text
from analysis.findings import MEASURES, Focus, HeadStatistics, interval
from analysis.maps import Specials
from analysis.measures import measure, plan
from analysis.messages import TextError
from analysis.models import Model
from analysis.stream import Batch, Draws, batches, shape_of
from analysis.toy import Toy

REPLICATES = 500
KEPT = 8  # texts remembered at each end of a head's focus
FOCUS = list(MEASURES).index("entropy_normalised")


class _Sums:
    """Sums of a measure over a collection: as it is (row 0), and in each bootstrap replicate."""

    def __init__(self, shape: tuple[int, int], replicates: int, seed: int) -> None:
        layers, heads = shape
        self.sums = torch.zeros(replicates + 1, layers, len(MEASURES), heads, dtype=torch.float64)
        self.counts = torch.zeros(replicates + 1, len(MEASURES), dtype=torch.float64)
        self.draws = Draws(replicates, seed)

    def add(self, layer: int, times: Tensor, sums: Tensor) -> None:
        """Add the sums [text, measure, head] of one layer of a batch."""
        flat = times @ sums.to(torch.float64).cpu().flatten(1)
        self.sums[:, layer] += flat.view(len(times), *sums.shape[1:])

    def means(self) -> np.ndarray:
        """Return [replicate, measure, layer, head]; NaN where a replicate counts no query."""
        means = self.sums.transpose(1, 2) / self.counts[:, :, None, None]
        return means.numpy()


class _Ends:
    """For every head the texts with the smallest and the largest of a value, a few at each end."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.values = np.full((2, *shape, KEPT), np.inf)  # of the largest: negated
        self.places = np.full((2, *shape, KEPT), -1, dtype=np.int64)

    def add(self, layer: int, places: np.ndarray, values: np.ndarray) -> None:
        """Add the values [text, head] of one layer of the texts at ``places``."""
        for end, signed in enumerate((values.T, -values.T)):
            joined = np.concatenate([self.values[end, layer], signed], axis=1)  # [head, rank + text]
            known = self.places[end, layer]
            where = np.concatenate([known, np.broadcast_to(places, signed.shape)], axis=1)
            best = np.argsort(joined, axis=1, kind="stable")[:, :KEPT]
            self.values[end, layer] = np.take_along_axis(joined, best, axis=1)
            self.places[end, layer] = np.take_along_axis(where, best, axis=1)

    def focus(self) -> Focus:
        """Return what was found."""
        values = np.where(np.isinf(self.values), np.nan, self.values)
        values[1] *= -1
        return Focus(self.places, values)


def summarise(
    source: Model | Toy,
    texts: Iterable[Text],
    *,
    specials: Specials = "keep",
    weighting: str = "queries",
    replicates: int = REPLICATES,
    seed: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> HeadStatistics:
    """Measure every head over ``texts``, single sentences or pairs, with 95% intervals over the texts.

    weighting: "queries" weighs each query the same, "texts" each text
    on_progress: called after each batch with how many texts are done; what it raises ends the run

    Raises TextError if there is nothing to read in any of the texts.
    """
    sums, ends = _Sums(shape_of(source), replicates, seed), _Ends(shape_of(source))
    done, queries = 0, 0
    for batch in batches(source, texts):
        queries += add_batch(batch, sums, ends, specials, weighting)
        done += len(batch.places)
        if on_progress is not None:
            on_progress(done)
    if not done:
        raise TextError("There is nothing to read in these texts. Give one sentence a line at least.")
    means = sums.means()
    low, high = interval(means[1:])
    return HeadStatistics(
        names=tuple(MEASURES),
        mean=means[0],
        low=low,
        high=high,
        texts=done,
        queries=queries,
        specials=specials,
        weighting=weighting,
        replicates=means[1:].astype(np.float32),
        focus=ends.focus(),
    )


def add_batch(batch: Batch, sums: _Sums, ends: _Ends, specials: Specials, weighting: str) -> int:
    """Run one batch and add what it measures; return how many queries it had."""
    prepared = plan(batch.rows, specials)
    times = sums.draws.of(batch.places)
    counts = prepared.counts  # [text, measure]
    places = np.asarray(batch.places)
    has_queries = (counts[:, FOCUS] > 0).cpu().numpy()

    def reduce(layer: int, weights: Tensor, mask: Tensor | None) -> None:
        found = measure(weights, mask, prepared)
        means = found[:, FOCUS] / counts[:, FOCUS, None].clamp_min(1)
        ends.add(layer, places[has_queries], means.cpu().numpy()[has_queries])
        if weighting == "texts":
            found = found / counts.clamp_min(1)[..., None]
        sums.add(layer, times, found)

    batch.forward(reduce)
    counted = counts.to(torch.float64).cpu()
    sums.counts += times @ (counted if weighting == "queries" else (counted > 0).to(torch.float64))
    return int(counted[:, 0].sum())
