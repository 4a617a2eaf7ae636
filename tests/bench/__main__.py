"""Run all benchmarks, or one of them: ``python -m tests.bench [NAME]``, with its parts after it."""

from __future__ import annotations

import sys

from tests.bench import ablation, clicks, collection, learn, passes, pruning, significance

BENCHMARKS = {
    "passes": passes.main,
    "clicks": clicks.main,
    "learn": learn.main,
    "collection": collection.main,
    "ablation": ablation.main,
    "significance": significance.main,
    "pruning": pruning.main,
}

if __name__ == "__main__":
    for name in sys.argv[1:2] or BENCHMARKS:
        print(f"\n== {name}", flush=True)
        BENCHMARKS[name]()
