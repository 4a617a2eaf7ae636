"""The paired bootstrap of every head of a model: seconds on one thread, and ranking each replicate anew beside it."""

from __future__ import annotations

import resource
import time

import numpy as np
from scipy.stats import rankdata

from analysis.scores import ACCURACY, MACRO_F1, MATTHEWS, MEAN, PEARSON, SPEARMAN, Metric
from analysis.significance import REPLICATES, changes, draws

HEADS, EXAMPLES = 72, 1_500
SORTED = 4  # replicates that are ranked anew, for the comparison


def main() -> None:
    """Print a line a metric, then Spearman by ranking anew, and the peak of memory."""
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 26, size=EXAMPLES) / 5
    whole = gold + rng.normal(size=EXAMPLES)
    ablated = whole + 0.1 * rng.normal(size=(HEADS, EXAMPLES))
    print(f"{HEADS} heads, {EXAMPLES} examples, {REPLICATES} replicates", flush=True)
    for metric in (SPEARMAN, PEARSON, MEAN):
        _measure(metric, whole, ablated, gold)
    classes = [np.clip(values.round(), 0, 5).astype(int) for values in (whole, ablated, gold)]
    for metric in (ACCURACY, MACRO_F1, MATTHEWS):
        _measure(metric, *classes)
    start = time.process_time()
    for counts in draws(EXAMPLES, range(SORTED)):
        rankdata(ablated[:, np.arange(EXAMPLES).repeat(counts)], axis=1)
    again = (time.process_time() - start) * REPLICATES / SORTED
    print(f"{'ranked anew':12s} {again:6.1f} s (from {SORTED} replicates)")
    print(f"peak of memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


def _measure(metric: Metric, whole: np.ndarray, ablated: np.ndarray, gold: np.ndarray) -> None:
    start = time.process_time()
    changes(metric, whole, ablated, gold)
    print(f"{metric.name:12s} {time.process_time() - start:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
