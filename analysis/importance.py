"""Gradient scores of every head: how much the loss would change with the head's gate, to first order.

Michel, Levy, Neubig 2019 (arXiv 1905.10650), equation 2: I_h = E |dL(x) / dxi_h|, the absolute value of each
example's own gradient. One forward and one backward pass give it for all heads and all examples of a batch,
because each example has gates of its own; parameters take no gradient. Beside it the signed mean, whose negative
predicts the change of the loss when the head is switched off, and the form normalised within each layer (their
section 4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from analysis.capture import pad
from analysis.maps import Floats
from analysis.messages import OptionError
from analysis.probe import Probe, run
from analysis.problems import Problem
from analysis.tokens import Bools

TOKENS = 2048  # of a batch, its padding included


@dataclass(frozen=True, eq=False)
class Importance:
    """Gradient scores [layer, head], and of how many examples they are the mean.

    absolute: E |dL/dxi|, in units of the loss; signed: E dL/dxi, below 0 where the head lowers the loss
    each: [example, layer, head] dL/dxi of every example
    gone: [layer, head] which heads were removed from the model; all of theirs is 0
    """

    absolute: Floats
    signed: Floats
    each: Floats
    gone: Bools

    @property
    def normalised(self) -> Floats:
        """Return `absolute` divided by the Euclidean length of its layer; 0 in a layer without any."""
        return normalise(self.absolute)

    def frame(self) -> pd.DataFrame:
        """Return a row a head: layer, head, importance, importance_normalised, signed; NaN for removed heads."""
        layer, head = np.indices(self.absolute.shape)
        tables = {
            "importance": self.absolute,
            "importance_normalised": self.normalised,
            "signed": self.signed,
        }
        there = {name: np.where(self.gone, np.nan, table).ravel() for name, table in tables.items()}
        return pd.DataFrame({"layer": layer.ravel(), "head": head.ravel(), **there})


def normalise(scores: Floats) -> Floats:
    """Return scores [layer, head] divided by the Euclidean length of their layer; 0 in a layer without any."""
    length = np.linalg.norm(scores, axis=1, keepdims=True)
    return np.divide(scores, length, out=np.zeros_like(scores), where=length > 0)


def importance(
    problem: Problem,
    *,
    which: Sequence[int] | None = None,
    off: Bools | None = None,
    tokens: int = TOKENS,
    on_progress: Callable[[int], None] | None = None,
) -> Importance:
    """Return the gradient scores of every head on the data of ``problem``.

    which: the examples to take, all by default
    off: [layer, head] heads that are switched off meanwhile; their gradients are at a gate of 0
    on_progress: called with the number of examples done; what it raises ends it

    The same for any batch, up to rounding. Raises OptionError for a task that has no loss.
    """
    if problem.loss is None:
        raise OptionError(
            "{task} has no importance: at the whole model it is at its best, so its gradient is zero and a ranking "
            "by it would be noise. Take another task, or ablate.",
            task=problem.task,
        )
    geometry = problem.model.geometry
    taken = list(range(len(problem.examples))) if which is None else list(which)
    row = {example: i for i, example in enumerate(taken)}
    each = np.zeros((len(taken), geometry.layers, geometry.heads), dtype=np.float64)
    done = 0
    for batch in _batches(problem, taken, tokens):
        each[[row[example] for example in batch]] = gradients(problem, batch, off)
        done += len(batch)
        if on_progress is not None:
            on_progress(done)
    return Importance(np.abs(each).mean(axis=0), each.mean(axis=0), each, problem.model.gone)


def gradients(problem: Problem, which: list[int], off: Bools | None = None) -> Floats:
    """Return [example, layer, head] the gradient of each example's own loss by the gates of the heads.

    At gates of 1, or of 0 where ``off`` [layer, head]; 0 for heads that were removed.
    """
    assert problem.loss is not None
    model = problem.model
    rows: list[tuple[int, ...]] = []
    places: list[int] = []
    for example in which:  # rows of its own for each example: two that share a text must not share a gradient
        first = len(places)
        places += problem.examples[example]
        rows.append(tuple(range(first, len(places))))
    batch = pad(model, [problem.inputs[place] for place in places])
    shape = (model.geometry.layers, model.geometry.heads)
    start = torch.ones(shape) if off is None else torch.from_numpy(~off).float()
    gates = start.to(model.network.device, model.network.dtype).repeat(len(places), 1, 1).requires_grad_()
    with torch.enable_grad():
        kept = problem.read(run(model.network, batch, Probe(gates=gates)), batch, places)
        (found,) = torch.autograd.grad(problem.loss(kept, rows, which).sum(), gates)
    return _by_example(found, rows)


def _by_example(found: Tensor, rows: list[tuple[int, ...]]) -> Floats:
    """Add up the rows of each example: a head's gate is one and the same in all of its inputs."""
    owner = torch.tensor([i for i, row in enumerate(rows) for _ in row], device=found.device)
    sums = found.new_zeros(len(rows), *found.shape[1:]).index_add(0, owner, found)
    return sums.double().cpu().numpy()


def _batches(problem: Problem, taken: Sequence[int], tokens: int) -> list[list[int]]:
    """Return the examples taken in batches of similar length within the budget of tokens."""
    lengths = {
        example: max(len(problem.inputs[i]["input_ids"]) for i in problem.examples[example])
        for example in taken
    }
    batches: list[list[int]] = []
    rows = 0
    for example in sorted(taken, key=lengths.__getitem__):
        rows += len(problem.examples[example])
        if not batches or rows * lengths[example] > tokens:
            batches.append([])
            rows = len(problem.examples[example])
        batches[-1].append(example)
    return batches
