"""Multi-head attention by hand: the arithmetic in NumPy, and the same as a module in torch.

Vaswani et al. 2017 (arXiv 1706.03762), equation 1 and section 3.2.2. Written to be read: each line that
changes a shape says the new one.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor, nn

from analysis.messages import OptionError

Array = npt.NDArray[np.floating]

TOY = "toy"
# Three tokens: columns 0-2 are a word class (tokens 0 and 2 share it), 3-5 a topic (0 and 1 share it).
EXAMPLE = np.array([[1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 1, 0], [1, 0, 0, 1, 0, 0]], dtype=np.float64)


def softmax(scores: Array) -> Array:
    """Return the softmax of each row; the row's maximum is subtracted first, so that nothing overflows."""
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def attention(query: Array, key: Array, value: Array) -> tuple[Array, Array]:
    """Return A = softmax(Q K^T / sqrt(d_k)) [..., query, key] and the context A V [..., query, head_dim]."""
    scores = query @ np.swapaxes(key, -1, -2) / math.sqrt(query.shape[-1])
    weights = softmax(scores)
    return weights, weights @ value


def two_heads(states: Array) -> tuple[Array, Array]:
    """Run two heads over ``states`` [token, 6]: one reads columns 0-2, the other columns 3-5.

    Every projection is a block of the identity and W_O is the identity, so that what each head does can
    be checked by hand. Returns the weights [head, query, key] and the output [token, 6].
    """
    if states.ndim != 2 or states.shape[1] != 6:
        raise OptionError(
            "The example needs states of 6 columns, not of shape {shape}.",
            shape=" x ".join(map(str, states.shape)),
        )
    eye, zero = np.eye(3), np.zeros((3, 3))
    projections = np.stack([np.vstack([eye, zero]), np.vstack([zero, eye])])  # [head, 6, 3]
    heads = states @ projections  # [head, token, 3]
    weights, context = attention(heads, heads, heads)
    output = np.concatenate(list(context), axis=-1) @ np.eye(6)  # [token, 6]
    return weights, output


class MultiHeadAttention(nn.Module):
    """Multi-head attention from four linear layers, with the weights of every head in the open.

    Self-attention, or cross-attention where a second sequence is given; a mask; gates on the heads.
    Raises OptionError if ``d_model`` is not a multiple of ``num_heads``.
    """

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        if num_heads < 1 or d_model < 1 or d_model % num_heads:
            raise OptionError(
                "A width of {d_model} cannot be split over {num_heads} heads: it must be a multiple of them.",
                d_model=d_model,
                num_heads=num_heads,
            )
        self.num_heads = num_heads
        self.head_dim = d_model // num_heads
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(
        self,
        queries: Float[Tensor, "batch query model"],
        keys: Float[Tensor, "batch key model"] | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        gates: Float[Tensor, "#batch head"] | None = None,
    ) -> tuple[Float[Tensor, "batch query model"], Float[Tensor, "batch head query key"]]:
        """Return the output and the weights of every head; rows of the weights sum to 1.

        keys: the sequence that is looked at (for its values too); None for ``queries`` itself
        mask: broadcast to [batch, head, query, key]; boolean (True: may be attended) or added to the scores
        causal: whether a query may look at itself and at what came before only
        gates: [batch or 1, head] the factor of each head's context
        Raises OptionError for a query that may look at nothing.
        """
        keys = queries if keys is None else keys
        batch, n, width = queries.shape
        q = self._split(self.query(queries))  # [batch, head, query, head_dim]
        k = self._split(self.key(keys))  # [batch, head, key, head_dim]
        v = self._split(self.value(keys))  # [batch, head, key, head_dim]
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)  # [batch, head, query, key]
        weights = torch.softmax(self._masked(scores, mask, causal), dim=-1)
        context = weights @ v  # [batch, head, query, head_dim]
        if gates is not None:
            context = context * gates[:, :, None, None]
        joined = context.transpose(1, 2).reshape(batch, n, width)  # [batch, query, model]
        return self.output(joined), weights

    def _split(self, states: Tensor) -> Tensor:
        batch, n, _ = states.shape
        return states.view(batch, n, self.num_heads, self.head_dim).transpose(1, 2)

    def _masked(self, scores: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        if causal:
            future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(future, -math.inf)
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
        blind = torch.isneginf(scores).all(dim=-1)
        if bool(blind.any()):
            raise OptionError(
                "The mask leaves query {query} nothing to look at. Let every query see one key at least.",
                query=int(blind.nonzero()[0, -1]),
            )
        return scores


@dataclass(frozen=True, eq=False)
class Toy:
    """The module with untrained weights, and a random but seeded vector for every word; one layer."""

    module: MultiHeadAttention
    d_model: int
    num_heads: int
    seed: int
    name: str = TOY


def make_toy(*, d_model: int = 64, num_heads: int = 8, seed: int = 0) -> Toy:
    """Return a toy whose weights (Xavier uniform, as in torch's own module) depend on ``seed`` alone."""
    module = MultiHeadAttention(d_model, num_heads)
    generator = torch.Generator().manual_seed(seed)
    for layer in (module.query, module.key, module.value, module.output):
        nn.init.xavier_uniform_(layer.weight, generator=generator)
        nn.init.zeros_(layer.bias)
    module.eval()
    module.requires_grad_(False)
    return Toy(module, d_model, num_heads, seed)


def embed(toy: Toy, words: list[str]) -> Float[Tensor, "1 token model"]:
    """Return a standard normal vector for each word, without positions: equal words, equal vectors."""
    rows = [
        np.random.default_rng([toy.seed, zlib.crc32(word.lower().encode("utf-8"))]).standard_normal(
            toy.d_model
        )
        for word in words
    ]
    return torch.tensor(np.array(rows), dtype=torch.float32)[None]
