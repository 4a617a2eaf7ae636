"""The module by hand laid beside torch's own, on any sizes, and what a split of the width into heads costs.

Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.2. That a head's scores have no higher rank than the head has
dimensions is the low-rank bottleneck of Bhojanapalli et al. 2020 (arXiv 2002.07028).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from analysis.maps import Floats
from analysis.messages import OptionError
from analysis.tokens import Bools
from analysis.toy import MultiHeadAttention, make_toy

MASKS = ("none", "causal", "boolean", "additive")
TOLERANCE = 1e-12
MOST_NUMBERS = 2**24  # of one matrix or one set of maps: 134 MB in float64
DENSITY = 0.5  # share of the pairs that a random boolean mask leaves


@dataclass(frozen=True, eq=False)
class Verified:
    """What the module and torch's own give for the same weights and the same states, in float64.

    states: [query, model]; looked_at: [key, model] the states that are looked at, the same ones without crossing
    mask: [query, key] as the module was given it: boolean (True: may be attended) or added to the scores; or None
    weights, their_weights: [head, query, key]; rows sum to 1
    output, their_output: [query, model]
    weights_difference, output_difference: the largest of all differences, 0 or more
    """

    states: Floats
    looked_at: Floats
    mask: np.ndarray | None
    weights: Floats
    their_weights: Floats
    output: Floats
    their_output: Floats
    weights_difference: float
    output_difference: float
    tolerance: float = TOLERANCE

    @property
    def same(self) -> bool:
        """Whether no number differs by more than ``tolerance``."""
        return max(self.weights_difference, self.output_difference) <= self.tolerance


@dataclass(frozen=True)
class Split:
    """One way to cut a width into heads.

    patterns: the maps that a layer then makes, one a head
    head_dim: the width of the subspace in which each head compares
    parameters: of the four matrices, 4 d_model^2 however it is cut; their biases are 4 d_model more
    """

    d_model: int
    num_heads: int
    patterns: int
    head_dim: int
    parameters: int


@dataclass(frozen=True)
class Published:
    """The attention of a model as its paper gives it."""

    name: str
    year: int
    d_model: int
    num_heads: int

    @property
    def head_dim(self) -> int:
        """The width of one head."""
        return self.d_model // self.num_heads


PUBLISHED = (
    Published("Transformer", 2017, 512, 8),  # base; Vaswani et al., table 3
    Published("BERT-base", 2019, 768, 12),  # Devlin et al., section 3
    Published("LLaMA 7B", 2023, 4096, 32),  # Touvron et al., table 2
    Published("GPT-3", 2020, 12288, 96),  # Brown et al., table 2.1
)


@dataclass(frozen=True, eq=False)
class Resolution:
    """How fine the scores of each head can be.

    scores: [head, query, key] Q K^T / sqrt(d_k) of random states
    singular: [head, min(query, key)] their singular values, the largest first
    rank: [head] how many of them are no rounding; never more than the width of a head
    """

    scores: Floats
    singular: Floats
    rank: np.ndarray


@torch.no_grad()
def verify(
    d_model: int = 6,
    num_heads: int = 2,
    length: int = 4,
    *,
    keys: int | None = None,
    seed: int = 0,
    mask: str | Floats | Bools = "none",
) -> Verified:
    """Run `MultiHeadAttention` and torch's module with the same weights on the same random states.

    length, keys: tokens of the sequence that looks and of the one that is looked at; None for the same sequence
    mask: one of `MASKS`, or [query, key] boolean (True: may be attended) or numbers added to the scores
    Raises OptionError for a width that is no multiple of the heads, sizes below 1 or too large, a mask that does not
    fit, and a query that may look at nothing.
    """
    check_sizes(
        length if keys is None else min(length, keys), d_model**2, num_heads * length * (keys or length)
    )
    generator = torch.Generator().manual_seed(seed)
    ours, theirs = same_weights(d_model, num_heads, generator)
    states = torch.randn(1, length, d_model, generator=generator, dtype=torch.float64)
    looked_at = states
    if keys is not None:
        looked_at = torch.randn(1, keys, d_model, generator=generator, dtype=torch.float64)
    allowed = _mask(mask, (length, looked_at.shape[1]), generator)

    output, weights = ours(states, looked_at, mask=allowed)
    their_output, their_weights = theirs(
        states, looked_at, looked_at, attn_mask=_as_torch_has_it(allowed), average_attn_weights=False
    )
    return Verified(
        states=states[0].numpy(),
        looked_at=looked_at[0].numpy(),
        mask=None if allowed is None else allowed.numpy(),
        weights=weights[0].numpy(),
        their_weights=their_weights[0].numpy(),
        output=output[0].numpy(),
        their_output=their_output[0].numpy(),
        weights_difference=float((weights - their_weights).abs().max()),
        output_difference=float((output - their_output).abs().max()),
    )


def same_weights(
    d_model: int, num_heads: int, generator: torch.Generator
) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Return the module and torch's own with the same weights, in float64.

    Drawn as both draw theirs after ``torch.manual_seed``, the built-in one first, but from ``generator``: the global
    one belongs to all threads. Raises OptionError for a width that is no multiple of the heads.
    """
    ours = MultiHeadAttention(d_model, num_heads, dtype=torch.float64)
    theirs = nn.MultiheadAttention(d_model, num_heads, batch_first=True, dtype=torch.float64)
    _draw(theirs.out_proj, generator)
    nn.init.xavier_uniform_(theirs.in_proj_weight, generator=generator)
    nn.init.zeros_(theirs.out_proj.bias)
    for layer in (ours.query, ours.key, ours.value, ours.output):
        _draw(layer, generator)
    copy_weights(theirs, ours)
    return ours.eval(), theirs.eval()


@torch.no_grad()
def copy_weights(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    """Copy the weights of torch's module: W_Q, W_K and W_V are three blocks of one matrix there."""
    blocks = zip(theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True)
    for layer, (weight, bias) in zip((ours.query, ours.key, ours.value), blocks, strict=True):
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    ours.output.weight.copy_(theirs.out_proj.weight)
    ours.output.bias.copy_(theirs.out_proj.bias)


def splits(d_model: int, heads: Sequence[int]) -> tuple[Split, ...]:
    """Return what each number of heads makes of one width. Raises OptionError where it is no multiple."""
    found = []
    for number in heads:
        with torch.device("meta"):  # sizes without numbers
            module = MultiHeadAttention(d_model, number)
        matrices = (module.query.weight, module.key.weight, module.value.weight, module.output.weight)
        found.append(Split(d_model, number, number, module.head_dim, sum(m.numel() for m in matrices)))
    return tuple(found)


@torch.no_grad()
def resolution(d_model: int, num_heads: int, length: int | None = None, *, seed: int = 0) -> Resolution:
    """Return the rank of each head's scores on ``length`` random tokens, as many as the width by default.

    A head of width d_k compares in d_k dimensions, so its map of n x n scores has rank d_k at the most. Raises
    OptionError for a width that is no multiple of the heads.
    """
    length = d_model if length is None else length
    check_sizes(length, d_model**2, num_heads * length**2)
    module = make_toy(d_model=d_model, num_heads=num_heads, seed=seed).module.double()
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(1, length, d_model, generator=generator, dtype=torch.float64)
    scores = module.trace(states).scores[0]  # [head, query, key]
    singular = torch.linalg.svdvals(scores)
    noise = singular[:, :1] * length * torch.finfo(torch.float64).eps
    return Resolution(scores.numpy(), singular.numpy(), (singular > noise).sum(-1).numpy())


def check_sizes(least: int, *numbers: int) -> None:
    """Raise OptionError for a size below 1, or for more ``numbers`` than a page should compute at once."""
    if least < 1:
        raise OptionError(
            "There is nothing to compute for {given} tokens or heads: take 1 at least.", given=least
        )
    if max(numbers, default=0) > MOST_NUMBERS:
        raise OptionError(
            "These sizes need {given:,} numbers at once, more than the {most:,} that are allowed. Take smaller ones.",
            given=max(numbers),
            most=MOST_NUMBERS,
        )


def _draw(layer: nn.Linear, generator: torch.Generator) -> None:
    """Draw the weights of a linear layer as its own constructor does."""
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    bound = 1 / math.sqrt(layer.in_features)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


def _mask(mask: str | Floats | Bools, shape: tuple[int, int], generator: torch.Generator) -> Tensor | None:
    """Return a mask [query, key]; in a random boolean one every query sees a key."""
    if isinstance(mask, np.ndarray):
        if mask.shape != shape:
            raise OptionError(
                "The mask is {given}, but there are {queries} queries and {keys} keys. Give a mask of that shape.",
                given=" x ".join(map(str, mask.shape)),
                queries=shape[0],
                keys=shape[1],
            )
        return torch.tensor(mask, dtype=torch.bool if mask.dtype == bool else torch.float64)
    if mask == "none":
        return None
    if mask == "causal":
        return torch.ones(shape, dtype=torch.bool).tril()
    if mask == "additive":
        return torch.randn(shape, generator=generator, dtype=torch.float64)
    if mask == "boolean":
        drawn = torch.rand(shape, generator=generator, dtype=torch.float64)
        return (drawn < DENSITY) | (drawn == drawn.min(dim=-1, keepdim=True).values)
    raise OptionError("There is no mask {given}. Choose one of: {masks}.", given=mask, masks=", ".join(MASKS))


def _as_torch_has_it(mask: Tensor | None) -> Float[Tensor, "query key"] | Bool[Tensor, "query key"] | None:
    """Return the mask as torch's module reads it: there True says that a key may *not* be attended."""
    return ~mask if mask is not None and mask.dtype == torch.bool else mask
