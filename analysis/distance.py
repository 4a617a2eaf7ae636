"""How alike the heads of a model are: the distance between every two of them over many texts, and what to do with it.

The distance is the Jensen-Shannon divergence between the rows of two heads (Lin 1991), as Clark et al. 2019 (arXiv
1906.04341, section 6) compare heads; they sum it over the tokens of a collection, here it is the mean over them.
Every row of a head is compared with the same row of every other, so all layers of a batch are held at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from sklearn.manifold import MDS
from torch import Tensor

from analysis.capture import Text
from analysis.findings import INTERVAL
from analysis.maps import Floats, Specials, shares
from analysis.measures import Rows
from analysis.messages import OptionError, TextError
from analysis.models import Model
from analysis.stream import Batch, Draws, batches, shape_of
from analysis.tokens import Ints
from analysis.toy import Toy

QUERIES = 5_000  # of 200 sentences or more: intervals are two hundredths of a bit wide, in a few seconds
CELLS = 2**12  # of one text's map in a head: bounds time and memory, see `distances`
GROUP = 64  # texts that are looked at before it is known which are still measured; divides `stream.CHUNK`
BLOCK = 2**16  # numbers at a time, which stay in the cache
NOTHING = 1e-30  # in place of a weight of 0, whose logarithm is none: adds less than 1e-28 bits

Look = tuple[Ints, Ints]  # of one text: which tokens look [query], and which are looked at [key]


@dataclass(frozen=True, eq=False)
class HeadDistances:
    """The Jensen-Shannon divergence between every two heads; 0: the same rows, 1: nothing in common.

    mean, low, high: [one, other] in bits, 0 to 1, symmetric, one = layer * heads + head; low and high are the ends
        of a 95% interval over the texts; NaN for heads that were removed from the model
    texts, queries: how many were measured, see `distances`
    """

    layers: int
    heads: int
    mean: Floats
    low: Floats
    high: Floats
    texts: int
    queries: int
    specials: Specials

    @property
    def there(self) -> Ints:
        """The heads [one] that were not removed from the model: those that have a distance from themselves."""
        return np.flatnonzero(~np.isnan(self.mean.diagonal()))


def distances(
    source: Model | Toy,
    texts: Iterable[Text],
    *,
    specials: Specials = "keep",
    replicates: int = 200,
    seed: int = 0,
    most_queries: int = QUERIES,
    on_progress: Callable[[int], None] | None = None,
) -> HeadDistances:
    """Return the mean distance between every two heads of ``source`` over the queries of ``texts``.

    specials: with "hide" special tokens are no queries, with "renormalise" they are no keys either; a row that lies
        on them wholly then has nothing in common with any other but one of its kind
    most_queries: the collection is measured up to the text that reaches this number, in its own order; of a text of
        n > 64 tokens, 4,096 / n evenly spaced queries count (8 of 512): its queries tell much the same
    on_progress: called after each batch with how many texts are done; what it raises ends the run

    Raises OptionError for less than one query, TextError if there is nothing to read in any of the texts.
    """
    if most_queries < 1:
        raise OptionError("Distances over {given} queries are none: measure 1 at least.", given=most_queries)
    layers, heads = shape_of(source)
    sums = _Sums(layers * heads, replicates, seed)
    for batch, looks in _measured(source, texts, specials, most_queries):
        sums.add(batch.places, looks, _of_texts(batch, looks, specials))
        if on_progress is not None:
            on_progress(sums.texts)
    if not sums.queries:
        raise TextError("There is nothing to read in these texts. Give one sentence a line at least.")
    mean, low, high = (squareform(pairs) for pairs in sums.means())
    if isinstance(source, Model):
        for table in (mean, low, high):
            np.fill_diagonal(table, np.where(source.gone.ravel(), np.nan, table.diagonal()))
    return HeadDistances(layers, heads, mean, low, high, sums.texts, sums.queries, specials)


def divergences(rows: Float[np.ndarray, "head query key"]) -> Float[np.ndarray, " pair"]:
    """Return the Jensen-Shannon divergence in bits of every two heads, summed over the queries.

    JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2. Pairs run as in `numpy.triu_indices`; equal heads get exactly 0.
    """
    halves = np.maximum(rows.reshape(len(rows), -1) / 2, NOTHING)  # [head, query * key]
    own = _negative_entropy(halves * 2)
    step = max(BLOCK // max(halves.shape[1], 1), 1)
    found = [
        (own[others] + own[one]) / 2 - _negative_entropy(halves[others] + halves[one])
        for one in range(len(rows))
        for others in (slice(start, start + step) for start in range(one + 1, len(rows), step))
    ]
    return np.concatenate(found) if found else own[:0]


def _negative_entropy(weights: Float[np.ndarray, "row weight"]) -> Float[np.ndarray, " row"]:
    logarithms = np.log2(weights)
    logarithms *= weights
    return logarithms.sum(axis=-1)


def place(distances: HeadDistances) -> tuple[Floats, float]:
    """Return the heads as points [one, 2] on a plane whose distances follow those between the heads, and the stress.

    Metric multidimensional scaling (SMACOF, from the classical solution). The stress, 0 to 1, says how far the drawn
    distances are from the true ones (Kruskal's stress-1: 0.05 is good, 0.2 poor). The same distances give the same
    picture: points are centred, axes are the principal ones, and the point farthest out on each is positive. Heads that
    were removed lie nowhere (NaN).
    """
    there = distances.there
    found = np.full((len(distances.mean), 2), np.nan)
    found[there], stress = _placed(distances.mean[np.ix_(there, there)])
    return found, stress


def _placed(distances: Floats) -> tuple[Floats, float]:
    if not distances.any():  # one head, or all the same: they lie on one point
        return np.zeros((len(distances), 2)), 0.0
    scaling = MDS(
        n_components=2,
        metric="precomputed",
        init="classical_mds",
        n_init=1,
        random_state=0,
        normalized_stress=True,
    )
    points = scaling.fit_transform(distances)
    points = points - points.mean(axis=0)
    points = points @ np.linalg.svd(points, full_matrices=False)[2].T
    farthest = points[np.abs(points).argmax(axis=0), [0, 1]]
    return points * np.where(farthest < 0, -1.0, 1.0), float(scaling.stress_)


def order(distances: HeadDistances) -> Ints:
    """Return the heads [one] in an order where like stands by like: the leaves of an average-linkage clustering.

    Without those that were removed.
    """
    there = distances.there
    if len(there) < 2:
        return there
    tree = linkage(squareform(distances.mean[np.ix_(there, there)]), "average", optimal_ordering=True)
    return there[leaves_list(tree)]


def twins(distances: HeadDistances) -> tuple[Ints, Floats, Floats, Floats]:
    """Return of every head the nearest other one, its distance and the ends of that distance's interval, each [one].

    The first of equals. As the least of many, a twin's distance looks a little too small where its interval is wide.
    A head without others, or one that was removed, has the twin -1 at a distance of NaN.
    """
    count, there = len(distances.mean), distances.there
    nearest = np.full(count, -1, dtype=np.int64)
    mean, low, high = (np.full(count, np.nan) for _ in range(3))
    if len(there) > 1:
        apart = distances.mean[np.ix_(there, there)]
        nearest[there] = there[np.where(np.eye(len(there), dtype=bool), np.inf, apart).argmin(axis=1)]
        for found, table in ((mean, distances.mean), (low, distances.low), (high, distances.high)):
            found[there] = table[there, nearest[there]]
    return nearest, mean, low, high


def frame(distances: HeadDistances) -> pd.DataFrame:
    """Return a row a pair of heads, each pair once: layer_a, head_a, layer_b, head_b, distance, low, high.

    NaN where one of the two was removed.
    """
    heads = distances.heads
    one, other = np.triu_indices(len(distances.mean), 1)
    return pd.DataFrame(
        {
            "layer_a": one // heads,
            "head_a": one % heads,
            "layer_b": other // heads,
            "head_b": other % heads,
            "distance": distances.mean[one, other],
            "low": distances.low[one, other],
            "high": distances.high[one, other],
        }
    )


class _Sums:
    """Divergences summed over a collection for every pair of heads: as it is (row 0), and in each replicate."""

    def __init__(self, heads: int, replicates: int, seed: int) -> None:
        self.sums = torch.zeros(replicates + 1, heads * (heads - 1) // 2, dtype=torch.float64)
        self.counts = torch.zeros(replicates + 1, dtype=torch.float64)
        self.draws = Draws(replicates, seed)
        self.texts, self.queries = 0, 0

    def add(self, places: list[int], looks: list[Look], found: Float[Tensor, "text pair"]) -> None:
        """Add the sums of some texts."""
        times = self.draws.of(places)
        queries = torch.tensor([len(look[0]) for look in looks], dtype=torch.float64)
        self.sums += times @ found.to(torch.float64)
        self.counts += times @ queries
        self.texts += int((queries > 0).sum())
        self.queries += int(queries.sum())

    def means(self) -> tuple[Floats, Floats, Floats]:
        """Return the mean and the ends of its interval, each [pair]; no interval (NaN) without replicates."""
        counted = self.counts > 0
        means = (self.sums[counted] / self.counts[counted, None]).clamp_(0, 1).numpy() + 0.0  # no -0.0
        if len(means) < 2:
            nan = np.full_like(means[0], np.nan)
            return means[0], nan, nan
        low, high = np.percentile(means[1:], INTERVAL, axis=0)
        return means[0], low, high


def _measured(
    source: Model | Toy, texts: Iterable[Text], specials: Specials, most: int
) -> Iterator[tuple[Batch, list[Look]]]:
    """Yield the texts, up to the one that reaches ``most`` queries, as batches with who looks at whom in each text.

    Batches come by length and not in the collection's order, so what a batch holds beyond that text has no queries.
    """
    remaining, start = iter(texts), 0
    while most > 0 and (group := list(islice(remaining, GROUP))):
        found = [(batch, _looks(batch.rows, specials)) for batch in batches(source, group)]
        counts = {
            place: len(look[0])
            for batch, looks in found
            for place, look in zip(batch.places, looks, strict=True)
        }
        measured = set()
        for place in sorted(counts):
            if most > 0 and counts[place]:
                measured.add(place)
                most -= counts[place]
        for batch, looks in found:
            if measured.isdisjoint(batch.places):
                continue
            looks = [
                look if place in measured else (look[0][:0], look[1])
                for place, look in zip(batch.places, looks, strict=True)
            ]
            yield replace(batch, places=[start + place for place in batch.places]), looks
        start += len(group)


def _looks(rows: Rows, specials: Specials) -> list[Look]:
    """Return for every text of a batch which of its tokens are queries and which are keys."""
    real, special = rows.real.cpu().numpy(), rows.special.cpu().numpy()
    keys = real & ~special if specials == "renormalise" else real
    queries = real if specials == "keep" else real & ~special
    return [
        (_spaced(np.flatnonzero(q), int(k.sum())), np.flatnonzero(k))
        for q, k in zip(queries, keys, strict=True)
    ]


def _spaced(queries: Ints, keys: int) -> Ints:
    """Return ``queries``, or as many evenly spaced ones of them as fit into `CELLS`."""
    fits = max(CELLS // max(keys, 1), 1)
    if len(queries) <= fits:
        return queries
    return queries[((2 * np.arange(fits) + 1) * len(queries)) // (2 * fits)]


def _of_texts(batch: Batch, looks: list[Look], specials: Specials) -> Float[Tensor, "text pair"]:
    """Run one batch and return the divergences of each text, summed over its queries.

    In NumPy: many small steps in torch would spend their time waiting for each other's threads.
    """
    kept: list[list[Floats]] = [[] for _ in looks]  # of each text, a layer at a time: [head, query, key]

    def keep(_layer: int, weights: Tensor, _mask: Tensor | None) -> None:
        whole = weights.float().cpu().numpy()
        for i, (queries, keys) in enumerate(looks):
            rows = whole[i][:, queries[:, None], keys]
            kept[i].append(_brought_to_1(rows) if specials == "renormalise" else rows)

    batch.forward(keep)
    return torch.from_numpy(np.stack([divergences(np.concatenate(layers)) for layers in kept]))


def _brought_to_1(rows: Floats) -> Floats:
    """Return rows [head, query, key + 1] that sum to 1; one without any weight gives it to one more key.

    That key stands for nothing, so such a row has nothing in common with the others.
    """
    total = rows.sum(axis=-1, keepdims=True)
    return np.concatenate([shares(rows), (total <= 0).astype(rows.dtype)], axis=-1)
