"""Run all benchmarks, or those named: ``python -m tests.bench [passes] [clicks] [collection]``."""

from __future__ import annotations

import sys

from tests.bench import clicks, collection, passes

BENCHMARKS = {"passes": passes.main, "clicks": clicks.main, "collection": collection.main}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"\n== {name}", flush=True)
        BENCHMARKS[name]()
