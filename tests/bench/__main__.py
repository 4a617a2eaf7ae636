"""Run all benchmarks, or those named: ``python -m tests.bench [passes] [clicks]``."""

from __future__ import annotations

import sys

from tests.bench import clicks, passes

BENCHMARKS = {"passes": passes.main, "clicks": clicks.main}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"\n== {name}", flush=True)
        BENCHMARKS[name]()
