"""An exact sweep over single heads, three ways, on the bundled model, one thread.

(a) as published scripts do it (run_bertology, Michel's code): a whole pass for each head, every text padded to 128
tokens, 32 texts a batch; (b) the same loop over batches of similar length, at the best size of a few; (c) `evaluate`;
(d) the same as a draft in bfloat16, where the processor has it.
The ways run in turn, so that a machine whose speed drifts slows them alike; times are of the processor, and a ratio
is the median of the ratios within each turn. Of (a) one head is timed and of (b) one of each layer, and scaled to
all: every head takes the same time there. Then the peak of memory of each, in a process of its own.
"""

from __future__ import annotations

import csv
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from analysis.ablation import TOKENS, evaluate, plain, single_heads
from analysis.capture import encode
from analysis.models import Model, open_model, quiet_libraries
from analysis.texts import sample
from tests.conftest import ROOT

STSB = ROOT.parent / "shared" / "data" / "stsb-en-dev.csv"
TEXTS = 400
TURNS = 3
PADDED, ROWS = 128, 32
SIZES = (256, 512, 1024, 2048)  # tokens of a batch of (b)
PRODUCTS = ("aten::addmm", "aten::mm", "aten::bmm")


def main() -> None:
    """Print the times and ratios, the largest difference, where the time of (c) goes, and the peaks."""
    torch.set_num_threads(1)
    quiet_libraries()
    model = open_model()
    inputs = encoded(model)
    padded = [lengthened(row) for row in inputs]
    masks = single_heads(6, 12)
    tokens = sum(len(row["input_ids"]) for row in inputs)
    print(f"{len(inputs)} texts of {tokens / len(inputs):.1f} tokens, 72 heads; processor seconds a sweep")
    times: dict[str, list[float]] = {"a": [], "c": [], "d": []} | {f"b {size}": [] for size in SIZES}
    difference = wrong = 0.0
    evaluate(model, inputs[:20], read, masks)  # warms up
    for turn in range(TURNS):
        some = masks[turn * 4 :: 12]  # a head of each layer
        times["a"].append(72 * timed(lambda some=some: loop(model, padded, some[:1], ROWS * PADDED))[0])
        loops = []
        for size in SIZES:
            took, values = timed(lambda some=some, size=size: loop(model, inputs, some, size))
            times[f"b {size}"].append(12 * took)
            loops.append(values)
        took, exact = timed(lambda: evaluate(model, inputs, read, masks))
        times["c"].append(took)
        took, draft = timed(lambda: evaluate(model, inputs, read, masks, dtype=torch.bfloat16))
        times["d"].append(took)
        wrong = max(wrong, float(np.abs(exact - draft).max()))
        difference = max(difference, *(float(np.abs(exact[turn * 4 :: 12] - b).max()) for b in loops))
        print(" ".join(f"  ({way}) {taken[-1]:.1f}" for way, taken in times.items()), flush=True)
    report(times, difference)
    print(f"largest difference between (c) and the draft (d): {wrong:.1e}")
    print(f"(c) in products of matrices: {products(model, inputs[:60], masks):.0%} of its time")
    for way in ("nothing", "a", "b", "c"):
        command = [sys.executable, "-c", f"from tests.bench.ablation import peak_of; peak_of('{way}')"]
        print(f"peak of memory ({way}): {subprocess.check_output(command, text=True).strip()} MB", flush=True)


def report(times: dict[str, list[float]], difference: float) -> None:
    """Print the ratios."""
    best = min((way for way in times if way.startswith("b")), key=lambda way: statistics.median(times[way]))
    for way in ("a", best):
        ratio = statistics.median(t / c for t, c in zip(times[way], times["c"], strict=True))
        print(f"({way}) / (c, {TOKENS} tokens) = {ratio:.2f}")
    faster = statistics.median(c / d for c, d in zip(times["c"], times["d"], strict=True))
    print(f"(c) / (d, draft) = {faster:.2f}")
    print(f"largest difference between (b) and (c): {difference:.1e}")


def timed(what: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """Return processor seconds and the result."""
    start = time.process_time()
    values = what()
    return time.process_time() - start, values


def loop(model: Model, inputs: list, masks: np.ndarray, tokens: int) -> np.ndarray:
    """Return what one pass for each mask gives."""
    return plain(model, inputs, read, masks, tokens=tokens)


def read(outputs: object, padded: dict, which: list[int]) -> torch.Tensor:
    """Return the normalised mean of the last states, as the bundled model was published."""
    mask = padded["attention_mask"][..., None].float()
    return torch.nn.functional.normalize((outputs.last_hidden_state * mask).sum(1) / mask.sum(1), dim=-1)


def encoded(model: Model, count: int = TEXTS) -> list[dict[str, list[int]]]:
    """Return some sentences of STS-B where it lies beside the repository, or else those that ship."""
    if STSB.is_file():
        with open(STSB, encoding="utf-8", newline="") as file:
            texts = [text for row in csv.reader(file) for text in row[:2]]
    else:
        texts = [side for text in sample() for side in ((text,) if isinstance(text, str) else text)]
    texts = list(dict.fromkeys(texts))
    random.Random(0).shuffle(texts)
    return [encode(model, text).inputs for text in texts[:count]]


def lengthened(row: dict[str, list[int]]) -> dict[str, list[int]]:
    """Return inputs padded to 128 tokens; the number of the padding is 0, as is its mask."""
    return {name: (values + [0] * PADDED)[:PADDED] for name, values in row.items()}


def products(model: Model, inputs: list, masks: np.ndarray) -> float:
    """Return the share of the time of `evaluate` that goes into products of matrices."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        evaluate(model, inputs, read, masks)
    events = found.key_averages()
    inside = sum(event.self_cpu_time_total for event in events if event.key in PRODUCTS)
    return inside / sum(event.self_cpu_time_total for event in events)


def peak_of(way: str) -> None:
    """Run one way over 60 texts, and print this process's peak of memory in MB."""
    torch.set_num_threads(1)
    quiet_libraries()
    model = open_model()
    inputs, masks = encoded(model, 60), single_heads(6, 12)
    if way == "a":
        loop(model, [lengthened(row) for row in inputs], masks[:1], ROWS * PADDED)
    elif way == "b":
        loop(model, inputs, masks[:1], SIZES[1])
    elif way == "c":
        evaluate(model, inputs, read, masks)
    # Not ru_maxrss, which a child begins with at the size of its parent.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    print(int(status.split("VmHWM:")[1].split()[0]) // 1024)
