"""Heads set by hand over one sentence of six tokens: eight that each look for one thing, and one that mixes.

The states are slots: a token has a one for its word, one for its position, one for its part in the sentence, and one
that all tokens have. A head compares a few of these slots, a dimension each, so every map below comes out of
softmax(Q K^T / sqrt(d_k)) as in a trained layer (as in `analysis.control`, a whole network set by hand). W_V, W_O and
their biases are random: what is carried has no meaning here, only where from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from analysis.toy import MultiHeadAttention

Part = Literal["determiner", "subject", "verb", "object", "punctuation"]
Role = Literal["position", "subject", "object", "first", "same", "punctuation", "next", "broad"]

D_MODEL = 64
LONGEST = 6  # tokens: a head of width 8 has room to compare as many positions and two things more
PARTS: tuple[Part, ...] = ("determiner", "subject", "verb", "object", "punctuation")
WORDS = slice(0, LONGEST)  # numbered as they first occur, whatever their case
POSITIONS = slice(LONGEST, 2 * LONGEST)
PART = {part: 2 * LONGEST + i for i, part in enumerate(PARTS)}
ALWAYS = 2 * LONGEST + len(PARTS)

SHARP = 3.0  # score of what a head looks for, against 0 for the rest
DECAY = 0.86  # score lost with each place of distance
PULL = {"distance": 0.05, "noun": 0.25, "punctuation": -0.4}  # of a head that looks nearly everywhere
BIAS = 0.05  # standard deviation of the biases of W_V and W_O
SEED = 0
DTYPE = torch.float64  # in which an identity shows as one: differences of 1e-16


class Compared(NamedTuple):
    """What a head compares, a row a dimension: score = (query . x) (key . y), summed over the dimensions."""

    query: Float[np.ndarray, "dim model"]
    key: Float[np.ndarray, "dim model"]


def states(words: Sequence[str], parts: Sequence[Part]) -> Float[Tensor, "1 token model"]:
    """Return the slots of up to six words with their parts in the sentence, in float64; equal words share one."""
    assert len(words) <= LONGEST
    numbers: dict[str, int] = {}
    rows = torch.zeros(1, len(words), D_MODEL, dtype=DTYPE)
    for place, (word, part) in enumerate(zip(words, parts, strict=True)):
        number = numbers.setdefault(word.lower(), len(numbers))
        rows[0, place, [WORDS.start + number, POSITIONS.start + place, PART[part], ALWAYS]] = 1
    return rows


def eight_heads() -> MultiHeadAttention:
    """Return a layer of eight heads, one for each of `ROLES`, in that order."""
    return planted(list(ROLES.values()))


def one_head() -> MultiHeadAttention:
    """Return a layer of one head as wide as the states, that looks nearly everywhere: a little more at nouns."""
    return planted([ROLES["broad"]])


def planted(heads: Sequence[Compared]) -> MultiHeadAttention:
    """Return a layer whose heads compare this; without gradients, and always the same."""
    module = MultiHeadAttention(D_MODEL, len(heads), dtype=DTYPE).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(SEED)
    for layer in (module.value, module.output):
        nn.init.xavier_uniform_(layer.weight, generator=generator)
        nn.init.normal_(layer.bias, std=BIAS, generator=generator)
    for layer in (module.query, module.key):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    for head, (query, key) in enumerate(heads):
        rows = slice(head * module.head_dim, head * module.head_dim + len(query))
        module.query.weight[rows] = torch.from_numpy(query * math.sqrt(module.head_dim))
        module.key.weight[rows] = torch.from_numpy(key)
    return module


def split_again(module: MultiHeadAttention, num_heads: int) -> MultiHeadAttention:
    """Return a layer with the very matrices of ``module``, cut into another number of heads.

    Raises OptionError for a width that is no multiple of the heads.
    """
    dtype = module.query.weight.dtype
    again = MultiHeadAttention(module.query.in_features, num_heads, dtype=dtype).eval().requires_grad_(False)
    again.load_state_dict(module.state_dict())
    return again


def _by_position(scores: Float[np.ndarray, "query key"]) -> Compared:
    """Compare positions: ``scores`` is what each gives to each."""
    query, key = np.zeros((LONGEST, D_MODEL)), np.zeros((LONGEST, D_MODEL))
    query[:, POSITIONS] = scores.T
    key[:, POSITIONS] = np.eye(LONGEST)
    return Compared(query, key)


def _by_distance(decay: float) -> Compared:
    place = np.arange(LONGEST)
    return _by_position(-decay * np.abs(place[:, None] - place))


def _at(slots: dict[int, float]) -> Compared:
    """Look at tokens by their slots, the same from everywhere."""
    query, key = np.zeros((1, D_MODEL)), np.zeros((1, D_MODEL))
    query[0, ALWAYS] = 1
    key[0, list(slots)] = list(slots.values())
    return Compared(query, key)


def _at_the_same_word() -> Compared:
    words = np.zeros((LONGEST, D_MODEL))
    words[:, WORDS] = np.eye(LONGEST)
    return Compared(SHARP * words, words)


def _both(one: Compared, other: Compared) -> Compared:
    return Compared(np.vstack([one.query, other.query]), np.vstack([one.key, other.key]))


ROLES: dict[Role, Compared] = {
    "position": _by_distance(DECAY),
    "subject": _at({PART["subject"]: SHARP}),
    "object": _at({PART["object"]: SHARP}),
    "first": _at({POSITIONS.start: SHARP}),
    "same": _at_the_same_word(),
    "punctuation": _at({PART["punctuation"]: SHARP}),
    # the last token has none after it: half as much for the token itself
    "next": _by_position(SHARP * (np.eye(LONGEST, k=1) + np.eye(LONGEST) / 2)),
    "broad": _both(
        _by_distance(PULL["distance"]),
        _at(
            {
                PART["subject"]: PULL["noun"],
                PART["object"]: PULL["noun"],
                PART["punctuation"]: PULL["punctuation"],
            }
        ),
    ),
}
