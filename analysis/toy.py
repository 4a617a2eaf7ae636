"""Multi-head attention by hand: the arithmetic in NumPy, and the same as a module in torch, every step in the open.

Vaswani et al. 2017 (arXiv 1706.03762), equation 1, section 3.2.2 and, for the positions, 3.5. Written to be read:
each line that changes a shape says the new one.
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
LARGEST = 1e6  # number of the example


def softmax(scores: Array) -> Array:
    """Return the softmax of each row; the row's maximum is subtracted first, so that nothing overflows."""
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def scaled_scores(query: Array, key: Array) -> Array:
    """Return Q K^T / sqrt(d_k) [..., query, key] of queries and keys [..., token, head_dim]."""
    return query @ np.swapaxes(key, -1, -2) / math.sqrt(query.shape[-1])


def attention(query: Array, key: Array, value: Array) -> tuple[Array, Array]:
    """Return A = softmax(Q K^T / sqrt(d_k)) [..., query, key] and the context A V [..., query, head_dim]."""
    weights = softmax(scaled_scores(query, key))
    return weights, weights @ value


@dataclass(frozen=True, eq=False)
class TwoHeads:
    """Every step of `two_heads` over the tokens of ``states``.

    states: [token, 6]
    projections: [head, 6, 3] what cuts each head's columns out, the same for query, key and value
    heads: [head, token, 3] what is left of the states: the queries, keys and values of each head
    scores, weights: [head, query, key]; rows of the weights sum to 1
    context: [head, token, 3]
    concat: [token, 6] the contexts side by side
    mixing: [6, 6] W_O
    output: [token, 6] concat times W_O
    """

    states: Array
    projections: Array
    heads: Array
    scores: Array
    weights: Array
    context: Array
    concat: Array
    mixing: Array
    output: Array


def trace_two_heads(states: Array) -> TwoHeads:
    """Run two heads over ``states`` [token, 6]: one reads columns 0-2, the other columns 3-5.

    Every projection is a block of the identity and W_O is the identity, so that what each head does can
    be checked by hand. Raises OptionError for states of another shape, or with anything but numbers of a size that
    can be squared.
    """
    _check_example(states)
    eye, zero = np.eye(3), np.zeros((3, 3))
    projections = np.stack([np.vstack([eye, zero]), np.vstack([zero, eye])])  # [head, 6, 3]
    heads = states @ projections  # [head, token, 3]
    scores = scaled_scores(heads, heads)  # [head, query, key]
    weights, context = attention(heads, heads, heads)  # [head, query, key], [head, token, 3]
    concat = np.concatenate(list(context), axis=-1)  # [token, 6]
    mixing = np.eye(6)
    return TwoHeads(states, projections, heads, scores, weights, context, concat, mixing, concat @ mixing)


def two_heads(states: Array) -> tuple[Array, Array]:
    """Return the weights [head, query, key] and the output [token, 6] of `trace_two_heads`."""
    steps = trace_two_heads(states)
    return steps.weights, steps.output


def _check_example(states: Array) -> None:
    if states.ndim != 2 or states.shape[1] != 6 or not len(states):
        raise OptionError(
            "The example needs states of 6 columns, not of shape {shape}.",
            shape=" x ".join(map(str, states.shape)),
        )
    wrong = np.argwhere(~(np.abs(states) <= LARGEST))  # NaN is wrong as well
    if len(wrong):
        row, column = (int(i) for i in wrong[0])
        raise OptionError(
            "Row {row}, column {column} holds {value}. Type a number between {least} and {most}.",
            row=row,
            column=column,
            value=float(states[row, column]),
            least=-LARGEST,
            most=LARGEST,
        )


def positions(n: int, d_model: int) -> Float[Tensor, "token model"]:
    """Return the sinusoidal positions of ``n`` tokens in float64, sine in even columns and cosine in odd ones.

    The wavelengths grow from 2 pi to 10000 x 2 pi (Vaswani et al. 2017, section 3.5). Between -1 and 1.
    """
    place = torch.arange(n, dtype=torch.float64)[:, None]
    column = torch.arange(d_model)
    angle = place / 10_000.0 ** ((column - column % 2) / d_model)  # [token, model]
    return torch.where(column % 2 == 0, angle.sin(), angle.cos())


@dataclass(frozen=True, eq=False)
class Trace:
    """Every step of one pass of `MultiHeadAttention`, in the order in which they are made.

    query, key, value: [batch, token, model] the states through W_Q, W_K and W_V; of the keys' sequence the last two
    queries, keys, values: the same cut into heads, [batch, head, token, head_dim]
    scores: Q K^T / sqrt(d_k), before any mask; masked: with minus infinity where a key may not be attended
    weights: rows sum to 1
    context: [batch, head, query, head_dim] the weighted means of the values, times the gates
    concat: the contexts side by side; output: through W_O
    """

    query: Float[Tensor, "batch query model"]
    key: Float[Tensor, "batch key model"]
    value: Float[Tensor, "batch key model"]
    queries: Float[Tensor, "batch head query head_dim"]
    keys: Float[Tensor, "batch head key head_dim"]
    values: Float[Tensor, "batch head key head_dim"]
    scores: Float[Tensor, "batch head query key"]
    masked: Float[Tensor, "batch head query key"]
    weights: Float[Tensor, "batch head query key"]
    context: Float[Tensor, "batch head query head_dim"]
    concat: Float[Tensor, "batch query model"]
    output: Float[Tensor, "batch query model"]


class MultiHeadAttention(nn.Module):
    """Multi-head attention from four linear layers, with the weights of every head in the open.

    Self-attention, or cross-attention where a second sequence is given; a mask; gates on the heads.
    Raises OptionError if ``d_model`` is not a multiple of ``num_heads``.
    """

    def __init__(self, d_model: int, num_heads: int, *, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        if num_heads < 1 or d_model < 1 or d_model % num_heads:
            raise OptionError(
                "A width of {d_model} cannot be split over {num_heads} heads: it must be a multiple of them.",
                d_model=d_model,
                num_heads=num_heads,
            )
        self.num_heads = num_heads
        self.head_dim = d_model // num_heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(d_model, d_model, dtype=dtype) for _ in range(4)
        )

    def forward(
        self,
        queries: Float[Tensor, "batch query model"],
        keys: Float[Tensor, "batch key model"] | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        gates: Float[Tensor, "#batch head"] | None = None,
    ) -> tuple[Float[Tensor, "batch query model"], Float[Tensor, "batch head query key"]]:
        """Return the output and the weights of every head, see `trace`; rows of the weights sum to 1."""
        steps = self.trace(queries, keys, mask=mask, causal=causal, gates=gates)
        return steps.output, steps.weights

    def trace(
        self,
        queries: Float[Tensor, "batch query model"],
        keys: Float[Tensor, "batch key model"] | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        gates: Float[Tensor, "#batch head"] | None = None,
    ) -> Trace:
        """Return every step of one pass.

        keys: the sequence that is looked at (for its values too); None for ``queries`` itself
        mask: broadcast to [batch, head, query, key]; boolean (True: may be attended) or added to the scores
        causal: whether a query may look at itself and at what came before only
        gates: [batch or 1, head] the factor of each head's context
        Raises OptionError for a query that may look at nothing.
        """
        keys = queries if keys is None else keys
        query, key, value = self.query(queries), self.key(keys), self.value(keys)  # [batch, token, model]
        q, k, v = (self._split(part) for part in (query, key, value))  # [batch, head, token, head_dim]
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)  # [batch, head, query, key]
        masked = self._masked(scores, mask, causal)
        weights = torch.softmax(masked, dim=-1)
        context = weights @ v  # [batch, head, query, head_dim]
        if gates is not None:
            context = context * gates[:, :, None, None]
        concat = context.transpose(1, 2).reshape(query.shape)  # [batch, query, model]
        output = self.output(concat)
        return Trace(query, key, value, q, k, v, scores, masked, weights, context, concat, output)

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
