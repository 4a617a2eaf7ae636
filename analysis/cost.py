"""What maps of n x n cost: time and memory of attention against the length of the text, measured where it runs.

The fused form never holds a whole map (Dao et al. 2022, FlashAttention, arXiv 2205.14135): its memory grows with n
only, its time with n^2 still.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from analysis.by_hand import check_sizes
from analysis.capture import check_size
from analysis.messages import OptionError

LENGTHS = (64, 128, 256, 512, 1024)
REPEATS = 3


@dataclass(frozen=True)
class Cost:
    """What one length takes.

    tokens: n
    seconds: for scores, softmax and weighted means of all heads, the fastest of some tries
    fused_seconds: for torch's fused form of the same
    map_bytes: of the weights of all heads; state_bytes: of their queries, keys, values and contexts
    """

    tokens: int
    seconds: float
    fused_seconds: float
    map_bytes: int
    state_bytes: int


@torch.no_grad()
def cost(tokens: int, *, heads: int = 8, head_dim: int = 64, repeats: int = REPEATS) -> Cost:
    """Measure attention over ``tokens`` random vectors in each of ``heads`` heads.

    Raises TextError for maps that would not fit into memory, OptionError for sizes below 1.
    """
    check_size(1, heads, tokens)
    check_sizes(min(tokens, heads, head_dim, repeats), heads * tokens * head_dim)
    generator = torch.Generator().manual_seed(tokens)
    q, k, v = torch.randn(3, 1, heads, tokens, head_dim, generator=generator)
    # Room is made beforehand: measured is the arithmetic, not how the system finds memory.
    scores, weights = torch.empty(2, 1, heads, tokens, tokens)
    context = torch.empty_like(q)

    def whole() -> None:
        torch.matmul(q, k.transpose(-1, -2), out=scores)
        torch.softmax(scores.mul_(1 / math.sqrt(head_dim)), dim=-1, out=weights)
        torch.matmul(weights, v, out=context)

    return Cost(
        tokens=tokens,
        seconds=_fastest(whole, repeats),
        fused_seconds=_fastest(lambda: scaled_dot_product_attention(q, k, v), repeats),
        map_bytes=weights.nbytes,
        state_bytes=q.nbytes + k.nbytes + v.nbytes + context.nbytes,
    )


def costs(lengths: Sequence[int] = LENGTHS, *, heads: int = 8, head_dim: int = 64) -> Iterator[Cost]:
    """Measure one length after the other, so that a page can draw each as it comes."""
    cost(min(lengths), heads=heads, head_dim=head_dim, repeats=1)  # the first pass sets things up
    for tokens in lengths:
        yield cost(tokens, heads=heads, head_dim=head_dim)


def growth(lengths: Sequence[int], values: Sequence[int | float]) -> float:
    """Return the power of n with which ``values`` grow: the slope of their logarithms, 2 for n^2.

    Raises OptionError for fewer than two lengths.
    """
    if len(set(lengths)) < 2:
        raise OptionError(
            "Growth needs two lengths at least, not {given}. Measure more.", given=len(set(lengths))
        )
    return float(np.polyfit(np.log(lengths), np.log(values), 1)[0])


def _fastest(work: Callable[[], object], repeats: int) -> float:
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)
