"""Curves of pruning and smaller models, as jobs: an order each, so that curves appear as they are done."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.messages import HeadroomError, message
from dashboard import cache, jobs
from dashboard.naming import order_name
from dashboard.text import _, written

if TYPE_CHECKING:
    from analysis.curves import Curve
    from analysis.datasets import Data
    from analysis.latency import Timing
    from analysis.models import Model
    from analysis.surgery import Sizes
    from analysis.tokens import Bools
    from analysis.trial import Options

PARTS = 100  # of the progress of one curve
BATCHES, TOKENS, TURNS = (1, 4, 16), 64, 15  # of the timing on the page; the benchmark takes more


@dataclass(frozen=True, eq=False)
class Built:
    """A smaller model, proven equal to the masked one, and how it compares with the whole."""

    small: Model
    mask: Bools
    apart: float
    before: Sizes
    after: Sizes
    timings: list[Timing]


def key_of(options: Options, data: Data, model: str) -> tuple[Hashable, ...]:
    """Return the key of the job of one order."""
    return ("pruning", model, options, data.name, hash(data.texts), len(data))


def each(options: Options) -> list[Options]:
    """Return the options of each order alone."""
    return [replace(options, orders=(order,)) for order in dict.fromkeys(options.orders)]


def find(options: Options, data: Data, model: str) -> list[jobs.Job | None]:
    """Return the job of each order, None where it was not asked for."""
    return [jobs.find(key_of(one, data, model)) for one in each(options)]


def start(options: Options, data: Data, model: str) -> None:
    """Start a job for each order that is not known yet; one that failed or was cancelled starts anew."""
    for one in each(options):
        key = key_of(one, data, model)
        known = jobs.find(key)
        if known is not None and known.state in ("failed", "cancelled"):
            jobs.forget(key)
        paths = one.seeds if one.orders == ("random",) else 1
        title = message("Pruning by {order}", order=order_name(one.orders[0]))
        jobs.start(key, title, PARTS * paths, partial(_curves, one, data, model))


def _curves(options: Options, data: Data, model: str, report: jobs.Report) -> list[Curve]:
    from analysis.datasets import split
    from analysis.trial import prepare

    made = prepare(options, _model(model), *split(data, seed=options.seed))
    found = []
    for number, (order, seed) in enumerate(made.paths()):

        def tell(share: float, number: int = number) -> None:
            report(int(PARTS * (number + share)))

        found.append(made.curve(order, seed, tell))
    return found


def build_key(model: str, mask: Bools) -> tuple[Hashable, ...]:
    """Return the key of the job that builds a smaller model."""
    return ("shrink", model, mask.shape, mask.tobytes())


def build(model: str, mask: Bools) -> jobs.Job:
    """Start building the model without these heads, or return the job that is there."""

    def work(report: jobs.Report) -> Built:
        from analysis.checks import apart
        from analysis.latency import compare
        from analysis.saving import smaller
        from analysis.surgery import sizes

        whole = _model(model)
        small = smaller(whole, mask)
        difference = apart(whole, mask, small)
        report(1)
        _set_threads(1)  # as many as a ratio can be trusted on while the pages are used
        timings = compare(
            whole, small, batches=BATCHES, tokens=TOKENS, turns=TURNS, report=lambda done: report(1 + done)
        )
        sides = sizes(whole.network, TOKENS), sizes(small.network, TOKENS)
        return Built(small, mask, difference, *sides, timings)

    title = message("Removing {count} heads, checking and timing", count=int(mask.sum()))
    return jobs.start(build_key(model, mask), title, 1 + len(BATCHES), work)


def save(built: Built, whole: Model, folder: Path, *, zeros: bool) -> None:
    """Save a smaller model, or the whole one with zeros in its place. Raises SaveError."""
    from analysis.saving import save_model

    numbers = {"largest difference from the masked model": f"{built.apart:.1e}"}
    if zeros:
        save_model(whole, folder, whole=whole, full_shape=built.mask)
    else:
        save_model(built.small, folder, whole=whole, numbers=numbers)


def best(curves: Sequence[Curve], most: float) -> int:
    """Return which of the curves lets most heads go at a loss that is allowed; random ones only where no other is."""
    from analysis.curves import knee

    named = [i for i, one in enumerate(curves) if one.path.order != "random"] or list(range(len(curves)))
    return max(named, key=lambda i: (knee(curves[i], most).removed, float(np.nanmean(curves[i].score))))


def _model(key: str) -> Model:
    from analysis.models import Model

    _set_threads(max((os.cpu_count() or 2) - 1, 1))  # one core stays for the pages
    model = cache.source(*cache.parts_of(key))
    if not isinstance(model, Model):
        raise HeadroomError("The toy has nothing to be scored on. Choose a pretrained model.")
    return model


def _set_threads(count: int) -> None:
    import torch

    torch.set_num_threads(count)


def timing_rows(timings: Sequence[Timing]) -> list[dict[str, object]]:
    """Return a row a batch size: medians in milliseconds, the share saved with its quartiles, what arithmetic allows."""
    return [
        {
            _("batch"): one.batch,
            _("whole (ms)"): round(one.whole.median, 1),
            _("smaller (ms)"): round(one.small.median, 1),
            _("saved, median [quartiles]"): (
                written(f"{one.saved.median:.1%} [{one.saved.low:.1%}, {one.saved.high:.1%}]").replace(
                    "-", "−"
                )
            ),
            _("arithmetic"): written(f"{one.allowed:.1%}"),
        }
        for one in timings
    ]
