"""An ablation experiment from its data to all predictions, recorded as it goes and resumed where it ended.

The examples are cut into shards of similar length. A unit is what the variants that differ first in one layer
predict on one shard; finished units are in the run folder, and a resumed run computes the others only.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
import torch

from analysis.ablation import (
    all_but_one,
    count_units,
    evaluate,
    mean_contexts,
    one_set,
    pairs_of,
    single_heads,
)
from analysis.datasets import Data, read_data, shipped, split
from analysis.maps import read_heads
from analysis.messages import OptionError
from analysis.models import Model
from analysis.probe import Replacement
from analysis.problems import TASKS, Problem, Task
from analysis.runs import Run, RunError, hash_of, hash_of_texts
from analysis.tasks import set_up
from analysis.tokens import Bools

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

    masks: [variant, layer, head] True where a head is off; the first switches nothing off, then come those that are
        reported, then what they are compared with
    reported: how many variants are reported
    means: mean contexts of the other part of the data, for the replacement "mean"
    split: how the data was used, in a word: "all", or "half" where something is estimated on the other half
    """

    options: Options
    problem: Problem
    masks: np.ndarray
    means: np.ndarray | None
    split: str
    reported: int


def read(options: Options) -> Data:
    """Return the data of an experiment: a file's, or what ships for its task (``sample:en``, ``sample:id``)."""
    if options.data.startswith(SAMPLE):
        return shipped(options.task, options.data.removeprefix(SAMPLE))
    return read_data(options.data, options.task, options.columns)


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
    masks, reported = masks_of(options, problem.model.gone)
    return Experiment(options, problem, masks, means, used, reported)


def masks_of(options: Options, gone: Bools) -> tuple[np.ndarray, int]:
    """Return [variant, layer, head] what is switched off, first nothing at all, and how many are reported.

    gone: [layer, head] heads that the model does not have any more; no variant is about them

    After pairs come their heads alone: what a pair does beyond the two is what it is looked at for.
    """
    shape = (gone.shape[0], gone.shape[1])
    heads = read_heads(options.heads)
    if options.protocol in ("set", "pairs") and len(heads) < (1 if options.protocol == "set" else 2):
        raise OptionError(
            "The protocol {protocol} needs heads: name them, such as 5.8,3.2.", protocol=options.protocol
        )
    away = [
        head
        for head in heads
        if head.layer < shape[0] and head.index < shape[1] and gone[head.layer, head.index]
    ]
    if away:
        raise OptionError("Head {head} was removed from this model. Name heads that are there.", head=away[0])
    made = {
        "single": lambda: single_heads(*shape)[~gone.ravel()],
        "all-but-one": lambda: all_but_one(*shape)[~gone.ravel()] & ~gone,
        "set": lambda: one_set(heads, shape),
        "pairs": lambda: pairs_of(heads, shape),
    }[options.protocol]()
    alone = [one_set([head], shape) for head in heads] if options.protocol == "pairs" else []
    return np.concatenate([np.zeros((1, *shape), dtype=bool), made, *alone]), len(made)


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
        "variants": experiment.reported,
    }


def check_same(run: Run, experiment: Experiment, data: Data) -> None:
    """Raise RunError unless the run in a folder was of the same weights, data and options."""
    wanted = facts(experiment, data)
    asked, said = wanted.pop("options"), run.facts.get("options")
    named: dict[str, tuple[object, object]] = {
        name: (run.facts.get(name), _as_json(value)) for name, value in wanted.items() if name != "command"
    }
    if isinstance(asked, dict) and isinstance(said, dict):
        named = {name: (said.get(name), _as_json(value)) for name, value in asked.items()} | named
    for name, (was, value) in named.items():
        if was != value:
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

        def tell(share: float, done: int = done, count: int = len(which)) -> None:
            if on_progress is not None:
                on_progress(done + int(share * count))

        for variants, part in _shard(experiment, run, number, which, tell):
            for name, table in part.items():
                kind = np.int64 if np.issubdtype(table.dtype, np.integer) else np.float64
                whole = found.setdefault(name, np.zeros((len(masks), len(problem.examples)), dtype=kind))
                whole[np.ix_(variants, np.array(which))] = table
        done += len(which)
        if on_progress is not None:
            on_progress(done)
    return found


def _shard(
    experiment: Experiment,
    run: Run | None,
    number: int,
    which: Sequence[int],
    tell: Callable[[float], None],
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
        predicted = predict(experiment, variants, which, tell)
        start = 0
        for layer in left:
            rows = slice(start, start + len(groups[layer]))
            parts[layer] = {name: table[rows] for name, table in predicted.items()}
            start = rows.stop
            if run is not None:
                run.keep(names[layer], parts[layer])
    return [(groups[layer], parts[layer]) for layer in groups]


def predict(
    experiment: Experiment,
    variants: np.ndarray,
    which: Sequence[int],
    tell: Callable[[float], None] | None = None,
) -> dict[str, np.ndarray]:
    """Return the predictions of some variants on some examples, [variant, example] for each metric.

    tell: called with the share that is done, 0 to 1
    """
    problem = experiment.problem
    places, rows = problem.rows_of(which)
    inputs, masks = [problem.inputs[i] for i in places], experiment.masks[variants]
    total = count_units(inputs, masks)
    kept = evaluate(
        problem.model,
        inputs,
        lambda outputs, batch, at: problem.read(outputs, batch, [places[i] for i in at]),
        masks,
        replacement=experiment.options.replacement,
        means=experiment.means,
        dtype=PRECISIONS[experiment.options.precision],
        on_progress=None if tell is None else lambda done: tell(done / total),
    )
    return problem.predict(kept, rows, which)


def groups_of(masks: np.ndarray) -> dict[int, np.ndarray]:
    """Return the variants by the first layer in which they switch something off; by the number of layers for none."""
    layers = masks.shape[1]
    first = np.where(masks.any((1, 2)), masks.any(2).argmax(1), layers)
    return {int(layer): np.flatnonzero(first == layer) for layer in np.unique(first)}
