"""Every tensor of multi-head attention on its way from states to output, with its shape and its numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from analysis.by_hand import check_sizes, same_weights
from analysis.maps import Floats

SHORT = ("batch", "token", "model")
VIEWED = ("batch", "token", "head", "head_dim")
PER_HEAD = ("batch", "head", "token", "head_dim")
MAP = ("batch", "head", "query", "key")


@dataclass(frozen=True, eq=False)
class Step:
    """One tensor: its name, what its axes are, and its numbers."""

    name: str
    axes: tuple[str, ...]
    values: Floats

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self.values.shape


@dataclass(frozen=True, eq=False)
class Shapes:
    """The tensors of one pass, in order, and what torch's own module gives for the same weights.

    steps: x, Q, K, V, view, transpose, scores, softmax, context, concat, output; "view" and "transpose" are those of
        Q, and K and V go the same way
    built_in: output and weights, the latter a map for each head
    difference: the largest difference between these and ours
    """

    steps: tuple[Step, ...]
    built_in: tuple[Step, Step]
    difference: float

    def step(self, name: str) -> Step:
        """Return one of the steps by its name."""
        return next(step for step in self.steps if step.name == name)


@torch.no_grad()
def shapes(batch: int = 2, length: int = 4, width: int = 8, heads: int = 2, *, seed: int = 0) -> Shapes:
    """Run random states [batch, length, width] through the module, and keep what there is after each step.

    Raises OptionError for a width that is no multiple of the heads, and for sizes below 1 or too large.
    """
    check_sizes(min(batch, length), width**2, batch * length * width, batch * heads * length**2)
    generator = torch.Generator().manual_seed(seed)
    ours, theirs = same_weights(width, heads, generator)
    x = torch.randn(batch, length, width, generator=generator, dtype=torch.float64)
    t = ours.trace(x)
    viewed = t.query.view(batch, length, heads, ours.head_dim)
    steps = (
        ("x", SHORT, x),
        ("Q", SHORT, t.query),
        ("K", SHORT, t.key),
        ("V", SHORT, t.value),
        ("view", VIEWED, viewed),
        ("transpose", PER_HEAD, viewed.transpose(1, 2)),
        ("scores", MAP, t.scores),
        ("softmax", MAP, t.weights),
        ("context", PER_HEAD, t.context),
        ("concat", SHORT, t.concat),
        ("output", SHORT, t.output),
    )
    output, weights = theirs(x, x, x, average_attn_weights=False)
    return Shapes(
        tuple(Step(name, axes, values.numpy()) for name, axes, values in steps),
        (Step("output", SHORT, output.numpy()), Step("weights", MAP, weights.numpy())),
        max(float((output - t.output).abs().max()), float((weights - t.weights).abs().max())),
    )
