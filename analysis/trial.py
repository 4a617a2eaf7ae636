"""A pruning trial: one or several orders on one part of the data, their curves on the other, and what they say.

What chooses and what is reported on share no example: two files, or two random halves of one.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

from analysis.curves import Curve, curve, knee
from analysis.datasets import Data, split
from analysis.experiment import Options as Ablation
from analysis.experiment import read as read_data
from analysis.messages import OptionError
from analysis.models import Model
from analysis.problems import Problem, Task
from analysis.pruning import ORDERS, Limits, Order, Report, check, path
from analysis.runs import hash_of, write_whole
from analysis.tasks import set_up


@dataclass(frozen=True)
class Options:
    """What a trial is asked to do.

    report: data that is scored on; None for a random half of ``data``
    seeds: how many random orders; of all others there is one
    normalised: whether importance is divided by the length of its layer, as Michel et al. 2019 do
    """

    data: str
    task: Task
    report: str | None = None
    columns: tuple[str, ...] = ()
    model: str = "bundled"
    revision: str | None = None
    orders: tuple[Order, ...] = ("fisher", "random")
    seeds: int = 20
    limits: Limits = field(default_factory=Limits)
    normalised: bool = True
    seed: int = 0

    def command(self, out: str = "curve.csv") -> str:
        """Return the shell command that repeats the trial."""
        words = ["python", "-m", "analysis", "prune", self.data, "--task", self.task, "--out", out]
        protected = ",".join(f"{head.layer}.{head.index}" for head in self.limits.protected)
        named = {"report": self.report, "order": ",".join(self.orders), "columns": ",".join(self.columns),
                 "model": self.model, "revision": self.revision, "seeds": str(self.seeds),
                 "step": f"{self.limits.step:g}", "keep": str(self.limits.keep), "protect": protected,
                 "seed": str(self.seed)}  # fmt: skip
        for name, value in named.items():
            words += [f"--{name}", value] if value else []
        return shlex.join(words + ([] if self.normalised else ["--raw"]))


@dataclass(frozen=True, eq=False)
class Trial:
    """A trial set up: what chooses the heads, and what the curves are of."""

    options: Options
    choosing: Problem
    reporting: Problem

    def paths(self) -> list[tuple[Order, int]]:
        """Return every order with its seed: random ones as often as asked."""
        each: list[tuple[Order, int]] = []
        for order in dict.fromkeys(self.options.orders):
            count = self.options.seeds if order == "random" else 1
            each += [(order, self.options.seed + number) for number in range(count)]
        return each

    def curve(self, order: Order, seed: int, report: Report | None = None) -> Curve:
        """Return the curve of one order; ``report`` is called with the share that is done, 0 to 1."""
        tell = report or (lambda _share: None)
        options = self.options
        chosen = path(
            order,
            self.choosing,
            options.limits,
            seed=seed,
            normalised=options.normalised,
            report=lambda share: tell(share / 2),
        )
        return curve(chosen, self.reporting, seed=options.seed, report=lambda share: tell(0.5 + share / 2))


def read(options: Options) -> tuple[Data, Data]:
    """Return the data that chooses and the data that is reported on. Raises FileError."""
    ask = Ablation(options.data, options.task, options.columns)
    if options.report is None:
        return split(read_data(ask), seed=options.seed)
    return read_data(ask), read_data(replace(ask, data=options.report))


def prepare(options: Options, model: Model, choosing: Data, reporting: Data) -> Trial:
    """Set a trial up; a classifier that the checkpoint lacks is fitted on what chooses.

    Raises OptionError for what the model, the data, the limits or an order cannot do.
    """
    if model.readout.kind == "classification" or options.task != "classification":
        problems = [set_up(options.task, model, data, seed=options.seed) for data in (choosing, reporting)]
    else:
        reporting = _labelled_as(choosing, reporting)
        problems = [set_up(options.task, model, data, estimate=choosing) for data in (choosing, reporting)]
    if not options.orders:
        raise OptionError("No order is named. Choose one or several of: {orders}.", orders=", ".join(ORDERS))
    for order in options.orders:
        check(order, problems[0], options.limits)
    return Trial(options, *problems)


def _labelled_as(choosing: Data, reporting: Data) -> Data:
    """Return ``reporting`` with its labels numbered as in ``choosing``, which may have more of them."""
    unknown = sorted(set(reporting.labels) - set(choosing.labels))
    if unknown:
        raise OptionError(
            "The data to report on has the labels {unknown}, but the data that chooses has none of them, so no classifier "
            "can be fitted. Give both the same labels.",
            unknown=", ".join(unknown[:10]),
        )
    assert reporting.gold is not None
    numbers = np.array([choosing.labels.index(name) for name in reporting.labels])
    return replace(reporting, gold=numbers[reporting.gold], labels=choosing.labels)


def record(file: Path, options: Options, model: Model) -> None:
    """Write beside a file of curves what they are of: the weights, by their hash, and the command that repeats them."""
    said = {"model": model.name, "weights": hash_of(model.folder), "command": options.command(file.name)}
    text = json.dumps(said, indent=1, ensure_ascii=False)
    write_whole(record_of(file), lambda part: part.write_text(text, encoding="utf-8"))


def check_model(file: Path, model: Model) -> None:
    """Raise OptionError where the curves in a file are of other weights; one without a record is taken as it is."""
    try:
        said = json.loads(record_of(file).read_text(encoding="utf-8"))
        name, weights = said["model"], said["weights"]
    except (OSError, ValueError, TypeError, KeyError):
        return
    if weights != hash_of(model.folder):
        raise OptionError(
            "The curve in {path} is of {name}, not of {model}: its heads are others. Name its own with --model.",
            path=str(file),
            name=name,
            model=model.name,
        )


def record_of(file: Path) -> Path:
    """Return where the record of a file of curves stands."""
    return file.with_name(file.name + ".json")


def frame(curves: Sequence[Curve]) -> pd.DataFrame:
    """Return a row a step of every curve: order, seed, removed, share, score, ci_low, ci_high, heads."""
    return pd.concat([one.frame() for one in curves], ignore_index=True)


@dataclass(frozen=True, eq=False)
class Band:
    """What random orders score: the lowest, the mean and the highest at each step [step], over ``count`` of them."""

    share: np.ndarray
    low: np.ndarray
    mean: np.ndarray
    high: np.ndarray
    count: int


def band(curves: Sequence[Curve]) -> Band | None:
    """Return the band of the random orders among ``curves``, or None where there is none."""
    scores = [one.score for one in curves if one.path.order == "random"]
    if not scores:
        return None
    share = next(one.share for one in curves if one.path.order == "random")
    table = np.stack(scores)
    return Band(share, table.min(axis=0), table.mean(axis=0), table.max(axis=0), len(scores))


def sentences(curves: Sequence[Curve], most: float) -> list[str]:
    """Return what was found, a sentence an order, as a report can quote it."""
    first = curves[0]
    low, high = first.changes.score_ends
    said = [
        f"whole model: {first.metric} {first.whole:.6f} [{low:.4f}, {high:.4f}] on {first.changes.examples} examples "
        "that chose nothing"
    ]
    random = [knee(one, most) for one in curves if one.path.order == "random"]
    for one in curves:
        if one.path.order == "random":
            continue
        found = knee(one, most)
        if not found.removed:
            said.append(
                f"{one.path.order}: no step is sure to lose at most {most:g} at 95%, for so few examples"
            )
            continue
        said.append(
            f"{one.path.order}: {found.removed} of {one.path.there} heads ({found.share:.0%}) can go with a loss "
            f"of {one.metric} not above {most:g} at 95% (loss {found.loss:.4f}, at most {found.loss_high:.4f})"
        )
    if random:
        gone = sorted(one.removed for one in random)
        said.append(f"random, {len(gone)} orders: {gone[0]} to {gone[-1]} heads, median {median(gone):g}")
    return said
