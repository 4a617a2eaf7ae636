"""How long a whole and a smaller network take, in turn, beside what the arithmetic allows.

Michel, Levy, Neubig 2019, table 4, for one's own model. The two run in turn, so that a machine whose speed drifts slows
both alike; the speed-up is the median of the ratios within the turns. A masked network is no subject here: it computes
all its heads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from analysis.capture import input_names
from analysis.models import Model
from analysis.probe import Probe, run
from analysis.surgery import sizes

BATCHES = (1, 4, 16, 64)
WARM = 3  # turns that are not counted


@dataclass(frozen=True)
class Spread:
    """The median of several turns and their quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray) -> Spread:
        """Return the spread of the values of all turns."""
        low, median, high = np.percentile(values, (25, 50, 75))
        return cls(float(median), float(low), float(high))


@dataclass(frozen=True)
class Timing:
    """The times of one batch size, and what they say.

    whole, small: milliseconds a batch
    saved: share of the time that is saved, within each turn
    allowed: share of the multiply-adds that is saved
    """

    batch: int
    tokens: int
    turns: int
    whole: Spread
    small: Spread
    saved: Spread
    allowed: float


def compare(
    whole: Model,
    small: Model,
    *,
    batches: Sequence[int] = BATCHES,
    tokens: int = 64,
    turns: int = 50,
    report: Callable[[int], None] | None = None,
) -> list[Timing]:
    """Return the times of both networks on batches of texts of ``tokens`` random tokens, or as many as they can read.

    report: called with the number of batch sizes done; what it raises ends the work
    """
    tokens = min(tokens, whole.geometry.max_tokens)
    before, after = sizes(whole.network, tokens).products, sizes(small.network, tokens).products
    found = []
    for number, batch in enumerate(batches):
        inputs = _inputs(whole, batch, tokens)
        times = np.array([_turn(whole, small, inputs) for _ in range(WARM + turns)])[WARM:] * 1e3
        saved = 1 - times[:, 1] / times[:, 0]
        spread = [Spread.of(values) for values in (times[:, 0], times[:, 1], saved)]
        found.append(Timing(batch, tokens, turns, spread[0], spread[1], spread[2], 1 - after / before))
        if report is not None:
            report(number + 1)
    return found


@torch.no_grad()
def _turn(whole: Model, small: Model, inputs: dict[str, torch.Tensor]) -> tuple[float, float]:
    start = time.perf_counter()
    run(whole.network, inputs, Probe())
    middle = time.perf_counter()
    run(small.network, inputs, Probe())
    return middle - start, time.perf_counter() - middle


def _inputs(model: Model, batch: int, tokens: int) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(batch)
    ids = torch.randint(5, model.network.config.vocab_size, (batch, tokens), generator=random)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if "token_type_ids" in input_names(model):
        inputs["token_type_ids"] = torch.zeros_like(ids)
    return {name: value.to(model.network.device) for name, value in inputs.items()}
