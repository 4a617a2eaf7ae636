"""Attention maps in plain NumPy, and the views of a map that keep its meaning.

Every source (a pretrained model, the toy) gives the same `AttentionMaps`, so that every statistic and
figure serves all of them. The views (words instead of pieces, special tokens hidden, one block of a
sentence pair) turn maps into maps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from analysis.messages import Message, OptionError
from analysis.tokens import Bools, Ints, Tokens

Specials = Literal["keep", "hide", "renormalise"]
Units = Literal["words", "pieces"]
Block = Literal["all", "AA", "AB", "BA", "BB"]

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, order=True)
class Head:
    """One head, 0-based layer and index; written ``L5·H8``."""

    layer: int
    index: int

    def __str__(self) -> str:
        return f"L{self.layer}·H{self.index}"


def read_heads(text: str) -> list[Head]:
    """Return the heads of a list such as ``5.8,3.2``. Raises OptionError for anything else."""
    found = []
    for part in (part.strip() for part in text.split(",") if part.strip()):
        numbers = part.split(".")
        if len(numbers) != 2 or not all(re.fullmatch(r"[0-9]{1,6}", number) for number in numbers):
            raise OptionError(
                "{part} names no head. Write layer.head, such as 5.8, with commas between.", part=part[:40]
            )
        found.append(Head(int(numbers[0]), int(numbers[1])))
    return found


def write_heads(mask: Bools) -> str:
    """Return the heads of a mask [layer, head] as `read_heads` reads them."""
    return ",".join(f"{layer}.{head}" for layer, head in zip(*np.nonzero(mask), strict=True))


@dataclass(frozen=True)
class AttentionMaps:
    """What every head does with one text: how much each query looks at each key.

    weights: [layer, head, query, key] float32, rows sum to 1 (in views with special tokens hidden, to
        what is left of it); NaN for heads that were removed from the model
    attendable: [layer, query, key] whether a key may be attended at all, or None where all may (a local
        window, a causal mask); the maximum of a row's entropy is log2 of their number
    source: the name of the model
    first: the head that ``weights[0, 0]`` belongs to, where these are a part of a model's maps
    notes: what the reader should know, such as how many tokens were cut
    """

    queries: Tokens
    keys: Tokens
    weights: Floats
    source: str
    attendable: Bools | None = None
    notes: tuple[Message, ...] = ()
    first: Head = Head(0, 0)

    @property
    def layers(self) -> int:
        return self.weights.shape[0]

    @property
    def heads(self) -> int:
        return self.weights.shape[1]

    @property
    def gone(self) -> Bools:
        """Which heads [layer, head] were removed from the model: all of their weights are NaN."""
        if not self.weights.size:
            return np.zeros(self.weights.shape[:2], dtype=bool)
        return np.asarray(np.isnan(self.weights[..., 0]).all(axis=-1))

    @property
    def is_pair(self) -> bool:
        """Whether the text is a pair of sentences."""
        return bool((self.keys.segment == 1).any())

    def key_counts(self) -> Ints:
        """Return [layer, query] how many keys each query may attend."""
        if self.attendable is None:
            return np.full((self.layers, len(self.queries)), len(self.keys), dtype=np.int64)
        return self.attendable.sum(axis=-1, dtype=np.int64)

    def at(self, head: Head) -> AttentionMaps:
        """Return the maps of one head alone, [1, 1, query, key]; nothing is copied."""
        layer, index = head.layer, head.index
        if not (0 <= layer < self.layers and 0 <= index < self.heads):
            raise OptionError(
                "There is no head {head}: this model has layers 0 to {layers} and heads 0 to {heads}.",
                head=head,
                layers=self.layers - 1,
                heads=self.heads - 1,
            )
        attendable = None if self.attendable is None else self.attendable[layer : layer + 1]
        weights = self.weights[layer : layer + 1, index : index + 1]
        first = Head(self.first.layer + layer, self.first.index + index)
        return replace(self, weights=weights, attendable=attendable, first=first)


def in_units(maps: AttentionMaps, units: Units) -> AttentionMaps:
    """Return the maps by ``"pieces"`` (as they are) or by ``"words"``.

    To a word that was split, the weights of its pieces are summed; from it, they are averaged (Clark et
    al. 2019, section 4.1). Rows still sum to 1.
    """
    queries, keys = maps.queries.as_words(), maps.keys.as_words()
    if units == "pieces" or (len(queries) == len(maps.queries) and len(keys) == len(maps.keys)):
        return maps
    to_keys = maps.keys.word_starts()
    from_queries = maps.queries.word_starts()
    sizes = np.diff(np.append(from_queries, len(maps.queries))).astype(maps.weights.dtype)
    weights = np.add.reduceat(maps.weights, to_keys, axis=-1)
    weights = np.add.reduceat(weights, from_queries, axis=-2) / sizes[:, None]
    attendable = maps.attendable
    if attendable is not None:
        attendable = np.logical_or.reduceat(attendable, to_keys, axis=-1)
        attendable = np.logical_or.reduceat(attendable, from_queries, axis=-2)
    return replace(maps, queries=queries, keys=keys, weights=weights, attendable=attendable)


def with_specials(maps: AttentionMaps, specials: Specials) -> AttentionMaps:
    """Return the maps with special tokens kept, hidden, or hidden and the rows brought back to 1.

    A row whose whole weight lies on special tokens has nothing left to bring back to 1 and stays 0.
    """
    if specials == "keep":
        return maps
    keep_queries = np.flatnonzero(~maps.queries.special)
    keep_keys = np.flatnonzero(~maps.keys.special)
    view = _take(maps, keep_queries, keep_keys)
    if specials == "hide":
        return view
    return replace(view, weights=shares(view.weights))


def shares(weights: Floats) -> Floats:
    """Return rows [..., key] divided by their sums; a row of zeros stays 0, and one of NaN is no number."""
    total = weights.sum(axis=-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)


def without_queries(maps: AttentionMaps, left_out: Bools) -> AttentionMaps:
    """Return the maps without the queries where ``left_out`` [query] is True; keys and rows stay whole."""
    if not left_out.any():
        return maps
    return _take(maps, np.flatnonzero(~left_out), np.arange(len(maps.keys)))


def block(maps: AttentionMaps, name: Block) -> AttentionMaps:
    """Return one block of a pair: ``"AB"`` is the queries of sentence A and the keys of sentence B.

    The four blocks hold the tokens of the sentences only; ``"all"`` is the maps as they are.
    """
    if name == "all":
        return maps
    query_side, key_side = ("AB".index(side) for side in name)
    return _take(
        maps,
        np.flatnonzero(maps.queries.segment == query_side),
        np.flatnonzero(maps.keys.segment == key_side),
    )


def strongest(weights: Floats) -> tuple[int, int]:
    """Return the (query, key) of the largest weight of one map [query, key]; the first of equals."""
    query, key = np.unravel_index(int(np.argmax(weights)), weights.shape)
    return int(query), int(key)


def largest(values: Floats) -> Head | None:
    """Return the head of the largest of ``values`` [layer, head]; the first of equals, None where all are NaN."""
    if np.isnan(values).all():
        return None
    return Head(*(int(i) for i in divmod(int(np.nanargmax(values)), values.shape[1])))


def pool(weights: Floats, side: int) -> Floats:
    """Shrink maps [..., query, key] to at most ``side`` cells a side, each cell the maximum of its tokens.

    The maximum keeps a single strong link visible, which a mean would wash out.
    """
    for axis in (-2, -1):
        size = weights.shape[axis]
        if size > side:
            edges = (np.arange(side) * size) // side
            weights = np.maximum.reduceat(weights, edges, axis=axis)
    return weights


def _take(maps: AttentionMaps, queries: Ints, keys: Ints) -> AttentionMaps:
    attendable = maps.attendable
    if attendable is not None:
        attendable = attendable[:, queries][:, :, keys]
    return replace(
        maps,
        queries=maps.queries.take(queries),
        keys=maps.keys.take(keys),
        weights=maps.weights[:, :, queries][:, :, :, keys],
        attendable=attendable,
    )
