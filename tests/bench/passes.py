"""The probe's pass against plain transformers on the same inputs, the bundled model, one thread.

The four ways run in turn, so that a machine whose speed drifts slows them alike; a ratio is the median of
the ratios within each turn.
"""

from __future__ import annotations

import statistics
import time

import torch
from transformers import AutoModel

from analysis.models import bundled_folder, open_model, quiet_libraries
from analysis.probe import Probe, run

LENGTHS = (16, 64, 256, 512)
TURNS = 40


def main() -> None:
    """Print a line a length: milliseconds and ratios, medians of 40 turns."""
    torch.set_num_threads(1)
    quiet_libraries()
    ours = open_model().network
    plain = {
        kind: AutoModel.from_pretrained(bundled_folder(), attn_implementation=kind).eval()
        for kind in ("eager", "sdpa")
    }
    ways = {
        "plain sdpa": lambda inputs: plain["sdpa"](**inputs),
        "probe": lambda inputs: run(ours, inputs, Probe()),
        "eager, output_attentions": lambda inputs: plain["eager"](**inputs, output_attentions=True),
        "probe, recording": lambda inputs: run(ours, inputs, Probe(on_weights=_ignore)),
    }
    print("tokens   ms: sdpa  probe  eager  recording   probe/sdpa  recording/eager")
    for length in LENGTHS:
        ids = torch.randint(1000, 20_000, (1, length), generator=torch.Generator().manual_seed(length))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        times = _in_turns(ways, inputs)
        medians = [statistics.median(times[name]) * 1e3 for name in ways]
        lean = _ratio(times["probe"], times["plain sdpa"])
        recording = _ratio(times["probe, recording"], times["eager, output_attentions"])
        print(
            f"{length:6d} {medians[0]:10.2f} {medians[1]:6.2f} {medians[2]:6.2f} {medians[3]:10.2f} "
            f"{lean:12.2f} {recording:16.2f}",
            flush=True,
        )


def _ignore(layer: int, weights: torch.Tensor, mask: torch.Tensor | None) -> None:
    """Take the weights as a caller would, and keep none."""


@torch.no_grad()
def _in_turns(ways: dict, inputs: dict) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(TURNS + 3):
        for name, way in ways.items():
            start = time.perf_counter()
            way(inputs)
            if turn >= 3:  # the first turns warm up
                times[name].append(time.perf_counter() - start)
    return times


def _ratio(first: list[float], second: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(first, second, strict=True))
