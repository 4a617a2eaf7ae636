"""Two texts under one source, or one text under two: their tokens aligned, and how much each head changes.

Rows are compared over the union of the tokens of both sides: a token that one side lacks gets no weight there,
and a query that one side lacks is not compared. The change of a head is the Jensen-Shannon divergence in bits
between its two rows, averaged over the shared queries: 0 where nothing changed, 1 where the rows have nothing
in common (Clark et al. 2019, arXiv 1906.04341, section 6, use it between heads).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import SequenceMatcher

import numpy as np

from analysis.maps import AttentionMaps, Floats
from analysis.statistics import entropy
from analysis.tokens import NO_SEGMENT, Ints, Tokens


@dataclass(frozen=True, eq=False)
class Alignment:
    """The tokens of two sides in one order; u of them.

    first, second: [u] where each stands on that side, -1 where that side lacks it
    labels: u strings to show, of the first side where both have the token
    special: [u] whether it is special to the model
    """

    first: Ints
    second: Ints
    labels: tuple[str, ...]
    special: np.ndarray

    @property
    def tokens(self) -> Tokens:
        """The union as tokens that stand in no text."""
        u = len(self.labels)
        return Tokens(
            ids=np.full(u, -1),
            labels=self.labels,
            spans=np.zeros((u, 2), dtype=np.int64),
            special=self.special,
            segment=np.full(u, NO_SEGMENT),
            word=np.arange(u),
            texts=(),
        )

    @property
    def shared(self) -> Ints:
        """Return [shared] the places in the union that both sides have."""
        return np.flatnonzero((self.first >= 0) & (self.second >= 0))


def align(first: Tokens, second: Tokens) -> Alignment:
    """Align two texts by the longest runs of equal tokens, whatever their case.

    Special tokens are equal by what they are for, so that ``[CLS]`` meets ``<s>``.
    """
    matcher = SequenceMatcher(None, _names(first), _names(second), autojunk=False)
    places: list[tuple[int, int]] = []
    for kind, a, a_end, b, b_end in matcher.get_opcodes():
        if kind == "equal":
            places += zip(range(a, a_end), range(b, b_end), strict=True)
        else:
            places += [(i, -1) for i in range(a, a_end)] + [(-1, i) for i in range(b, b_end)]
    one, two = (np.array([pair[side] for pair in places], dtype=np.int64) for side in (0, 1))
    owners = [(first, i) if i >= 0 else (second, j) for i, j in places]
    return Alignment(
        first=one,
        second=two,
        labels=tuple(tokens.labels[i] for tokens, i in owners),
        special=np.array([bool(tokens.special[i]) for tokens, i in owners], dtype=bool),
    )


def _names(tokens: Tokens) -> list[tuple[str, int]]:
    """Return by what each token is recognised on the other side."""
    names = []
    for i, (label, segment) in enumerate(zip(tokens.labels, tokens.segment.tolist(), strict=True)):
        outer = segment == NO_SEGMENT
        names.append((("start" if i == 0 else "end") if outer else label.casefold(), segment))
    return names


def on_union(maps: AttentionMaps, places: Ints) -> Floats:
    """Return the weights [layer, head, union, union] of one side, whose tokens stand at ``places`` of the union.

    0 to tokens that this side lacks, NaN from them.
    """
    there = np.flatnonzero(places >= 0)
    full = np.zeros((*maps.weights.shape[:2], len(places), len(places)), dtype=maps.weights.dtype)
    taken = maps.weights[:, :, places[there]][..., places[there]]
    full[:, :, there[:, None], there[None, :]] = taken
    full[:, :, places < 0] = np.nan
    return full


def as_maps(maps: AttentionMaps, alignment: Alignment, places: Ints) -> AttentionMaps:
    """Return the maps of one side over the union, see `on_union`."""
    tokens = alignment.tokens
    return replace(maps, queries=tokens, keys=tokens, weights=on_union(maps, places), attendable=None)


def difference(first: AttentionMaps, second: AttentionMaps, alignment: Alignment) -> Floats:
    """Return second minus first [layer, head, union, union], -1 to 1; NaN from queries that one side lacks.

    Both must have the same number of layers and heads (`AttentionMaps.at` takes one head of each).
    """
    return on_union(second, alignment.second) - on_union(first, alignment.first)


def changes(first: AttentionMaps, second: AttentionMaps, alignment: Alignment) -> Floats:
    """Return [layer, head] how much each head changes, in bits, 0 to 1; NaN where no query is shared."""
    shared = alignment.shared
    if not len(shared):
        return np.full(first.weights.shape[:2], np.nan)
    one, two = (
        on_union(maps, places)[:, :, shared]
        for maps, places in ((first, alignment.first), (second, alignment.second))
    )
    return divergence(one, two).mean(axis=-1)


def divergence(first: Floats, second: Floats) -> Floats:
    """Return the Jensen-Shannon divergence in bits of two tables of rows [..., key] -> [...], 0 to 1."""
    mixed = entropy((first + second) / 2) - (entropy(first) + entropy(second)) / 2
    return np.clip(mixed, 0.0, 1.0)
