"""The measures of a collection against a plain sdpa pass over the same batches; all threads.

The two run in turn on each batch; a ratio is the median of the ratios. Then the peak of memory over few and
over many texts, each in a process of its own.
"""

from __future__ import annotations

import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from transformers import AutoModel

from analysis.collection import _Ends, _Sums, add_batch, summarise
from analysis.models import Model, bundled_folder, open_model, quiet_libraries
from analysis.stream import TOKENS, Encoded, model_batch, shape_of

LENGTHS = (10, 64, 256)
TURNS = 25
FEW, MANY = 1_000, 20_000


def main() -> None:
    """Print a line a length, then the two peaks."""
    quiet_libraries()
    model = open_model()
    plain = AutoModel.from_pretrained(bundled_folder(), attn_implementation="sdpa").eval()
    print("tokens   ms: sdpa  measured   measured/sdpa", flush=True)
    for length in LENGTHS:
        print_length(model, plain, length)
    peaks = [_peak(count) for count in (FEW, MANY)]
    print(
        f"peak of memory, {FEW} texts {peaks[0]} MB, {MANY} texts {peaks[1]} MB, ratio {peaks[1] / peaks[0]:.2f}"
    )


def print_length(model: Model, plain: torch.nn.Module, length: int) -> None:
    """Time batches of texts of one length, as many as the budget of tokens holds."""
    count = max(TOKENS // length, 1)
    ids = torch.randint(1000, 20_000, (count, length), generator=torch.Generator().manual_seed(length))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    batch = [
        Encoded(i, {"input_ids": row, "attention_mask": [1] * length}, [-1, *[0] * (length - 2), -1])
        for i, row in enumerate(ids.tolist())
    ]
    shape = shape_of(model)
    sums, ends = _Sums(shape, 500, 0), _Ends(shape)
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(TURNS + 2):
        start = time.perf_counter()
        with torch.no_grad():
            plain(**inputs)
        middle = time.perf_counter()
        add_batch(model_batch(model, batch), sums, ends, "keep", "queries")
        end = time.perf_counter()
        if turn >= 2:  # the first turns warm up
            times[0].append(middle - start)
            times[1].append(end - middle)
    ratio = statistics.median(b / a for a, b in zip(*times, strict=True))
    medians = [statistics.median(part) * 1e3 for part in times]
    print(f"{length:6d} {medians[0]:10.1f} {medians[1]:9.1f} {ratio:12.2f}", flush=True)


def _peak(count: int) -> int:
    """Return the peak of memory, in MB, of a process that measures ``count`` texts."""
    command = [sys.executable, "-c", f"from tests.bench.collection import peak_of; peak_of({count})"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def peak_of(count: int) -> None:
    """Measure ``count`` texts of 4 to 23 words and print this process's peak of memory in MB."""
    quiet_libraries()
    words = [
        "the",
        "cat",
        "sat",
        "on",
        "a",
        "mat",
        "and",
        "looked",
        "at",
        "its",
        "own",
        "shadow",
        "for",
        "some",
        "time",
        "before",
        "it",
        "slept",
    ]
    texts = (" ".join(words[(i + k) % len(words)] for k in range(4 + i % 20)) for i in range(count))
    summarise(open_model(), texts)
    print(peak_memory())


def peak_memory() -> int:
    """Return this process's peak of memory in MB; `ru_maxrss` would begin at the peak of the process it was forked from."""
    status = Path("/proc/self/status")
    if status.is_file():
        return int(re.search(r"VmHWM:\s+(\d+)", status.read_text(encoding="utf-8"))[1]) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
