"""An ablation experiment from its data to the table of changes, recorded as it goes and resumed where it ended.

The examples are cut into shards of similar length. A unit is what the variants that differ first in one layer
predict on one shard; finished units are in the run folder, and a resumed run computes the others only.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch

from analysis.ablation import all_but_one, evaluate, mean_contexts, one_set, pairs_of, single_heads
from analysis.datasets import Data, read_data, shipped, split
from analysis.maps import Head
from analysis.messages import OptionError
from analysis.models import Model
from analysis.probe import Replacement
from analysis.problems import TASKS, Problem, Task
from analysis.runs import Run, RunError, hash_of, hash_of_texts
from analysis.significance import Changes, changes
from analysis.tasks import set_up

__all__ = ["TASKS"]
Protocol = Literal["single", "all-but-one", "set", "pairs"]
PROTOCOLS: tuple[Protocol, ...] = ("single", "all-but-one", "set", "pairs")
REPLACEMENTS: tuple[Replacement, ...] = ("zero", "mean", "uniform")
PRECISIONS = {"full": torch.float32, "draft": torch.bfloat16}
SHARD = 64  # examples
SAMPLE = "sample:"


@dataclass(frozen=True)
class Options:
    """What an experiment is asked to do; together with the data and the weights it gives one result.

    heads: of the protocols "set" and "pairs", as "5.8,3.2"
    """

    data: str
    task: Task
    columns: tuple[str, ...] = ()
    model: str = "bundled"
    revision: str | None = None
    protocol: Protocol = "single"
    heads: str = ""
    replacement: Replacement = "zero"
    precision: str = "full"
    seed: int = 0

    def command(self) -> str:
        """Return the shell command that repeats the experiment."""
        words = ["python", "-m", "analysis", "ablate", self.data, "--task", self.task]
        named = {"columns": ",".join(self.columns), "model": self.model, "revision": self.revision,
                 "protocol": self.protocol, "heads": self.heads, "replace": self.replacement,
                 "precision": self.precision, "seed": str(self.seed)}  # fmt: skip
        for name, value in named.items():
            words += [f"--{name}", value] if value else []
        return shlex.join(words)


@dataclass(frozen=True, eq=False)
class Experiment:
    """A problem, the sets of heads that are switched off, and what replaces them.

    masks: [variant, layer, head] True where a head is off; the first switches nothing off
    means: mean contexts of the other part of the data, for the replacement "mean"
    split: how the data was used, in a word: "all", or "half" where something is estimated on the other half
    """

    options: Options
    problem: Problem
    masks: np.ndarray
    means: np.ndarray | None
    split: str


def read(options: Options) -> Data:
    """Return the data of an experiment: a file's, or what ships for its task (``sample:en``, ``sample:id``)."""
    if options.data.startswith(SAMPLE):
        return shipped(options.task, options.data.removeprefix(SAMPLE))
    return read_data(options.data, options.task, options.columns)


def read_heads(text: str) -> list[Head]:
    """Return the heads of a list such as ``5.8,3.2``. Raises OptionError for anything else."""
    found = []
    for part in (part.strip() for part in text.split(",") if part.strip()):
        numbers = part.split(".")
        if len(numbers) != 2 or not all(number.isascii() and number.isdigit() for number in numbers):
            raise OptionError(
                "{part} names no head. Write layer.head, such as 5.8, with commas between.", part=part
            )
        found.append(Head(int(numbers[0]), int(numbers[1])))
    return found


def write_heads(mask: np.ndarray) -> str:
    """Return the heads of a mask [layer, head] as `read_heads` reads them."""
    return ",".join(f"{layer}.{head}" for layer, head in zip(*np.nonzero(mask), strict=True))


def prepare(options: Options, model: Model, data: Data) -> Experiment:
    """Set an experiment up. Raises OptionError for what the model, the data or the options cannot do.

    Where something is estimated (mean contexts, a classifier), it is on one random half of the data, and the other
    half is reported on; else all of it is.
    """
    fits = options.task == "classification" and model.readout.kind != "classification"
    if options.replacement == "mean" or fits:
        estimate, report = split(data, seed=options.seed)
        used = "half"
    else:
        estimate, report, used = None, data, "all"
    problem = set_up(options.task, model, report, estimate=estimate, seed=options.seed)
    means = None
    if options.replacement == "mean":
        assert estimate is not None
        other = set_up("fidelity", model, replace(estimate, gold=None))
        means = mean_contexts(other.model, other.inputs)
    return Experiment(options, problem, masks_of(options, problem), means, used)


def masks_of(options: Options, problem: Problem) -> np.ndarray:
    """Return [variant, layer, head] what is switched off, first nothing at all."""
    shape = (problem.model.geometry.layers, problem.model.geometry.heads)
    heads = read_heads(options.heads)
    if options.protocol in ("set", "pairs") and len(heads) < (1 if options.protocol == "set" else 2):
        raise OptionError(
            "The protocol {protocol} needs heads: name them, such as 5.8,3.2.", protocol=options.protocol
        )
    made = {
        "single": lambda: single_heads(*shape),
        "all-but-one": lambda: all_but_one(*shape),
        "set": lambda: one_set(heads, shape),
        "pairs": lambda: pairs_of(heads, shape),
    }[options.protocol]()
    return np.concatenate([np.zeros((1, *shape), dtype=bool), made])


def facts(experiment: Experiment, data: Data) -> dict[str, object]:
    """Return what identifies an experiment, for its record."""
    model = experiment.problem.model
    return {
        "options": asdict(experiment.options),
        "command": experiment.options.command(),
        "model": model.name,
        "weights": hash_of(model.folder),
        "data": hash_of_texts(data.texts, None if data.gold is None else data.gold.tolist(), data.labels),
        "split": experiment.split,
        "examples": len(experiment.problem.examples),
        "variants": len(experiment.masks) - 1,
    }


def check_same(run: Run, experiment: Experiment, data: Data) -> None:
    """Raise RunError unless the run in a folder was of the same weights, data and options."""
    for name, value in facts(experiment, data).items():
        was = run.facts.get(name)
        if name != "command" and was != _as_json(value):
            raise RunError(
                "The run in {folder} had another {name} ({was}, now {now}). Bring it back, or start a new run.",
                folder=str(run.folder),
                name=name,
                was=str(was)[:80],
                now=str(value)[:80],
            )


def _as_json(value: object) -> object:
    if isinstance(value, dict):
        return {key: _as_json(part) for key, part in value.items()}
    return [_as_json(part) for part in value] if isinstance(value, tuple) else value


def shards(problem: Problem) -> list[list[int]]:
    """Return the examples in shards of similar length, so that little is padded; always the same."""
    lengths = [max(len(problem.inputs[i]["input_ids"]) for i in places) for places in problem.examples]
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    return [order[i : i + SHARD] for i in range(0, len(order), SHARD)]


def sweep(
    experiment: Experiment, run: Run | None = None, on_progress: Callable[[int], None] | None = None
) -> dict[str, np.ndarray]:
    """Return the predictions of each metric [variant, example], computing only the units that ``run`` lacks.

    on_progress: called with the number of examples done; what it raises ends the sweep, and the run can be resumed
    """
    problem, masks = experiment.problem, experiment.masks
    found: dict[str, np.ndarray] = {}
    done = 0
    for number, which in enumerate(shards(problem)):
        for variants, part in _shard(experiment, run, number, which):
            for name, table in part.items():
                kind = np.int64 if np.issubdtype(table.dtype, np.integer) else np.float64
                whole = found.setdefault(name, np.zeros((len(masks), len(problem.examples)), dtype=kind))
                whole[np.ix_(variants, np.array(which))] = table
        done += len(which)
        if on_progress is not None:
            on_progress(done)
    return found


def _shard(
    experiment: Experiment, run: Run | None, number: int, which: Sequence[int]
) -> list[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Return for each layer its variants and their predictions on one shard, from the record where it has them."""
    groups = groups_of(experiment.masks)
    names = {layer: f"L{layer:03d}-S{number:05d}" for layer in groups}
    metrics = [metric.name for metric in experiment.problem.metrics]
    parts = {}
    if run is not None:
        for layer, variants in groups.items():
            if run.has(names[layer]):
                shape = (len(variants), len(which))
                parts[layer] = run.read(names[layer], dict.fromkeys(metrics, shape))
    left = [layer for layer in groups if layer not in parts]
    if left:
        variants = np.concatenate([groups[layer] for layer in left])
        predicted = predict(experiment, variants, which)
        start = 0
        for layer in left:
            rows = slice(start, start + len(groups[layer]))
            parts[layer] = {name: table[rows] for name, table in predicted.items()}
            start = rows.stop
            if run is not None:
                run.keep(names[layer], parts[layer])
    return [(groups[layer], parts[layer]) for layer in groups]


def predict(experiment: Experiment, variants: np.ndarray, which: Sequence[int]) -> dict[str, np.ndarray]:
    """Return the predictions of some variants on some examples, [variant, example] for each metric."""
    problem = experiment.problem
    places, rows = problem.rows_of(which)
    kept = evaluate(
        problem.model,
        [problem.inputs[i] for i in places],
        lambda outputs, batch, at: problem.read(outputs, batch, [places[i] for i in at]),
        experiment.masks[variants],
        replacement=experiment.options.replacement,
        means=experiment.means,
        dtype=PRECISIONS[experiment.options.precision],
    )
    return problem.predict(kept, rows, which)


def groups_of(masks: np.ndarray) -> dict[int, np.ndarray]:
    """Return the variants by the first layer in which they switch something off; by the number of layers for none."""
    layers = masks.shape[1]
    first = np.where(masks.any((1, 2)), masks.any(2).argmax(1), layers)
    return {int(layer): np.flatnonzero(first == layer) for layer in np.unique(first)}


def judge(
    experiment: Experiment,
    predictions: dict[str, np.ndarray],
    metric: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> Changes:
    """Return the change of a score under every variant, with its interval; the first metric is the task's main one."""
    problem = experiment.problem
    one = problem.metrics[metric]
    table = predictions[one.name]
    return changes(
        one,
        table[0],
        table[1:],
        problem.gold,
        seed=experiment.options.seed,
        can_only_fall=problem.task == "fidelity",
        on_progress=on_progress,
    )


def result(experiment: Experiment, found: Changes) -> pd.DataFrame:
    """Return a row a variant: layer, head (where one is off), heads, score, delta, ci_low, ci_high, p, q."""
    masks = experiment.masks[1:]
    single = masks.sum(axis=(1, 2)) == 1
    places = [
        Head(*map(int, np.argwhere(mask)[0])) if one else None
        for mask, one in zip(masks, single, strict=True)
    ]
    return pd.DataFrame(
        {
            "layer": pd.array([None if head is None else head.layer for head in places], dtype="Int64"),
            "head": pd.array([None if head is None else head.index for head in places], dtype="Int64"),
            "heads": [write_heads(mask) for mask in masks],
            "score": found.scores,
            "delta": found.delta,
            "ci_low": found.low,
            "ci_high": found.high,
            "p": found.p,
            "q": found.q,
        }
    )


def save(folder: Path, table: pd.DataFrame) -> None:
    """Write the result into a run folder, as CSV and as Parquet."""
    table.to_csv(folder / "result.csv", index=False)
    table.to_parquet(folder / "result.parquet", index=False)
