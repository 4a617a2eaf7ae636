"""What a model says of one text, before and after heads were switched off, as numbers to lay beside each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analysis.compare import divergence
from analysis.maps import AttentionMaps, Floats

Kind = Literal["classes", "score", "guesses", "similarity", "embedding"]
GUESSES = 5  # of each masked word that are named
CLASSES = 6  # that are named


@dataclass(frozen=True, eq=False)
class Answer:
    """What a model says of a text, and the maps of the pass that said it.

    maps: of the text, or of each of two sentences that are read apart
    values: "classes": [class] probabilities; "score": [1]; "guesses": [mask, vocabulary] probabilities;
        "similarity": [1] the cosine of two embeddings; "embedding": nothing
    names: of the classes
    embeddings: [text, model] of length 1; None for kinds that say something else
    """

    kind: Kind
    maps: tuple[AttentionMaps, ...]
    values: Floats
    names: tuple[str, ...] = ()
    embeddings: Floats | None = None


@dataclass(frozen=True)
class Line:
    """One number that a model says, before and after heads were switched off.

    about: the masked word, counted from 1, or 0
    name: of the class or the guess; "" where there is one number only
    """

    about: int
    name: str
    before: float
    after: float


def lines(before: Answer, after: Answer, spell: Callable[[int], str]) -> list[Line]:
    """Return what a model says, before and after; of many classes or guesses those that stand highest in either.

    spell: from the number of a guess in the vocabulary to what it reads as

    A model that says nothing of its own is given by how far its embedding is from the whole model's: 0 before.
    """
    if before.kind == "classes":
        shown = _highest(before.values, after.values, CLASSES)
        return [Line(0, before.names[i], before.values[i], after.values[i]) for i in shown]
    if before.kind == "guesses":
        return [
            Line(number, spell(i), one[i], other[i])
            for number, (one, other) in enumerate(zip(before.values, after.values, strict=True), start=1)
            for i in _highest(one, other, GUESSES)
        ]
    if before.kind == "embedding":
        return [Line(0, "", 0.0, float(distances(before, after)[0]))]
    return [Line(0, "", float(before.values[0]), float(after.values[0]))]


def _highest(before: Floats, after: Floats, most: int) -> list[int]:
    """Return the places of the highest values of either side, in the order of the first."""
    tops = {int(i) for side in (before, after) for i in np.argsort(-side, kind="stable")[:most]}
    return sorted(tops, key=lambda i: (-before[i], i))


def distances(before: Answer, after: Answer) -> Floats:
    """Return [text] how far each embedding moved: 1 minus the cosine, 0 where nothing changed, up to 2."""
    assert before.embeddings is not None
    assert after.embeddings is not None
    return distance(before.embeddings, after.embeddings)


def distance(one: Floats, other: Floats) -> Floats:
    """Return 1 minus the cosine of vectors [..., width] of length 1 -> [...]: exactly 0 for equal ones."""
    return np.square(one - other).sum(axis=-1) / 2


def moved(before: AttentionMaps, after: AttentionMaps) -> Floats:
    """Return [layer, head] how far the attention of each head moved: Jensen-Shannon divergence in bits, 0 to 1.

    The mean over all queries, special tokens kept. 0 up to and in the first layer with a head off: a head that is
    off still looks, but what it sees is not passed on.
    """
    return divergence(before.weights, after.weights).mean(axis=-1)
