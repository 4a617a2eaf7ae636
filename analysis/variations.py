"""What else attention can be asked: not to look ahead, to look at another text, to go without its scale or an order.

Vaswani et al. 2017 (arXiv 1706.03762), sections 3.2 and 3.5.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from analysis.by_hand import TOLERANCE, check_sizes
from analysis.capture import attend, read_toy
from analysis.maps import AttentionMaps, Floats
from analysis.messages import OptionError
from analysis.statistics import entropy
from analysis.tokens import Bools
from analysis.toy import MultiHeadAttention, Toy, embed, positions, softmax

WIDTHS = tuple(2**power for power in range(2, 10))  # 4 to 512
KEYS, QUERIES = 16, 256


@dataclass(frozen=True, eq=False)
class Causal:
    """The steps of a causal mask.

    allowed: [query, key] the triangle of keys that are no later than the query
    scores: [head, query, key] before it; masked: minus infinity above the diagonal
    weights: [head, query, key] exactly 0 there; the first query looks at itself alone
    """

    allowed: Bools
    scores: Floats
    masked: Floats
    weights: Floats


@dataclass(frozen=True, eq=False)
class Curves:
    """What random scores do to the softmax, a number for each width.

    deviation: [width] standard deviation of the scores
    entropy: [width] mean entropy of the rows, in bits
    gradient: [width] what the derivative of a row by its scores comes to: the Frobenius norm of
        diag(p) - p p^T, in the median row
    """

    deviation: Floats
    entropy: Floats
    gradient: Floats


@dataclass(frozen=True, eq=False)
class Scaling:
    """The softmax over scores of random vectors, with and without the factor 1 / sqrt(d_k).

    widths: [width] d_k
    keys: how many each query chooses from; most: the entropy in bits that they allow
    """

    widths: np.ndarray
    plain: Curves
    scaled: Curves
    keys: int
    most: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """What a layer gives for words in one order and in another.

    output: [token, model] and weights [head, query, key] of the first order
    moved_output, moved_weights: of the other
    difference: the largest between the moved ones and the first ones with their rows (of the weights the columns as
        well) put into the other order
    """

    output: Floats
    weights: Floats
    moved_output: Floats
    moved_weights: Floats
    difference: float
    tolerance: float = TOLERANCE

    @property
    def same(self) -> bool:
        """Whether moving the words moved the rows and changed no number by more than ``tolerance``."""
        return self.difference <= self.tolerance


@dataclass(frozen=True, eq=False)
class Order:
    """Words and the same words in another order, without positions and with sinusoidal ones added.

    order: the place in ``words`` of each of ``moved``
    """

    words: tuple[str, ...]
    moved: tuple[str, ...]
    order: tuple[int, ...]
    plain: Comparison
    positioned: Comparison


@torch.no_grad()
def causal(module: MultiHeadAttention, x: Float[Tensor, "1 token model"]) -> Causal:
    """Return the steps of a layer that looks at ``x`` without looking ahead."""
    steps = module.trace(x, causal=True)
    masked = steps.masked[0].numpy()
    return Causal(np.tri(x.shape[1], dtype=bool), steps.scores[0].numpy(), masked, steps.weights[0].numpy())


def cross(toy: Toy, queries: str, keys: str) -> AttentionMaps:
    """Return the toy's maps from the words of one text to those of another, [1, head, query, key].

    Raises TextError for a text with nothing to read.
    """
    looking, looked_at = read_toy(toy, [queries]), read_toy(toy, [keys])
    return attend(toy, looking, looked_at)


def scaling(
    widths: Sequence[int] = WIDTHS, *, keys: int = KEYS, queries: int = QUERIES, seed: int = 0
) -> Scaling:
    """Return what scores between vectors of independent standard normal numbers do to the softmax.

    A score is a sum of d_k products, so without the factor its standard deviation is sqrt(d_k) (Vaswani et al. 2017,
    footnote 4). The vectors of a narrow width are the first numbers of those of a wide one. Raises OptionError for
    sizes below 1 or too large.
    """
    check_sizes(min(keys, queries, *widths), max(queries, keys) * max(widths), queries * keys)
    random = np.random.default_rng(seed)
    query, key = random.standard_normal((queries, max(widths))), random.standard_normal((keys, max(widths)))
    scores = np.stack([query[:, :width] @ key[:, :width].T for width in widths])  # [width, query, key]
    roots = np.sqrt(np.array(widths))[:, None, None]
    return Scaling(np.array(widths), _curves(scores), _curves(scores / roots), keys, float(np.log2(keys)))


def softmax_gradient(weights: Floats) -> Floats:
    """Return the Frobenius norm of the softmax's derivative diag(p) - p p^T, of rows [..., key] -> [...].

    0 where one key has all, at most 1 / sqrt(2), where two keys have a half each.
    """
    squares = np.square(weights)
    others = squares.sum(axis=-1, keepdims=True) - squares
    return np.asarray(np.sqrt((squares * (np.square(1 - weights) + np.maximum(others, 0))).sum(axis=-1)))


@torch.no_grad()
def reorder(toy: Toy, words: Sequence[str], order: Sequence[int]) -> Order:
    """Run ``words`` and the same in another ``order`` through the toy, in float64.

    order: the place of each word of the second sequence in the first. Raises OptionError if it names one twice or
    leaves one out.
    """
    check_sizes(len(words), toy.num_heads * len(words) ** 2)
    if sorted(order) != list(range(len(words))):
        raise OptionError(
            "The order {order} is none of {count} words. Name every place from 0 to {last} once.",
            order=", ".join(map(str, order)),
            count=len(words),
            last=len(words) - 1,
        )
    module = copy.deepcopy(toy.module).double()
    x = embed(toy, list(words)).double()
    y = x[:, list(order)]
    where = positions(len(words), toy.d_model)
    return Order(
        tuple(words),
        tuple(words[i] for i in order),
        tuple(order),
        _compare(module, x, y, list(order)),
        _compare(module, x + where, y + where, list(order)),
    )


def _compare(module: MultiHeadAttention, x: Tensor, y: Tensor, order: list[int]) -> Comparison:
    (output, weights), (moved_output, moved_weights) = (
        (out[0].numpy(), maps[0].numpy()) for out, maps in (module(x), module(y))
    )
    rows = np.abs(moved_output - output[order]).max()
    maps = np.abs(moved_weights - weights[:, order][:, :, order]).max()
    return Comparison(output, weights, moved_output, moved_weights, float(max(rows, maps)))


def _curves(scores: Float[np.ndarray, "width query key"]) -> Curves:
    weights = softmax(scores)
    return Curves(
        deviation=scores.std(axis=(1, 2)),
        entropy=entropy(weights).mean(axis=-1),
        gradient=np.median(softmax_gradient(weights), axis=-1),
    )
