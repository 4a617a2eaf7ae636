"""Ablation experiments as jobs: each is a run folder, so that one that was done is found and one cut off goes on."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pandas as pd

from analysis.messages import HeadroomError, message
from dashboard import cache, jobs

if TYPE_CHECKING:
    from analysis.control import Control
    from analysis.datasets import Data
    from analysis.experiment import Experiment, Options
    from analysis.importance import Importance
    from analysis.models import Model
    from analysis.outcome import DraftError
    from analysis.problems import Predictions
    from analysis.significance import Changes

AFTER = 0.25  # of the sweep's share of the progress, for what follows it


@dataclass(frozen=True, eq=False)
class Found:
    """What an experiment found.

    whole: by metric, the whole model's score and the ends of its 95% interval; the main one first
    changes: by metric
    importance: on the first of `analysis.outcome.halves`, None for a task that has none
    layers, pairs: of the protocols "all-but-one" and "pairs"
    """

    experiment: Experiment
    data: Data
    folder: str
    predictions: Predictions
    whole: dict[str, tuple[float, float, float]]
    changes: dict[str, Changes]
    table: pd.DataFrame
    importance: Importance | None
    layers: pd.DataFrame | None
    pairs: pd.DataFrame | None
    draft: DraftError | None


def is_default(options: Options) -> bool:
    """Whether this is what the page starts with: the bundled model, data that ships, nothing else chosen."""
    from analysis.experiment import SAMPLE, Options

    return options == Options(data=f"{SAMPLE}en", task="similarity")


def key_of(options: Options, data: Data) -> tuple[object, ...]:
    """Return the key of an experiment's job; the data is known by its name and what it is of."""
    return ("ablation", options, data.name, hash(data.texts), len(data))


def find(options: Options, data: Data) -> jobs.Job | None:
    """Return the job of an experiment, or None where it was not asked for."""
    return jobs.find(key_of(options, data))


def start(options: Options, data: Data, model_key: str) -> jobs.Job:
    """Start an experiment, or go on with it where its folder is found; or return the job that is there.

    Raises HeadroomError for heads that the model does not have, or none where the protocol needs some.
    """
    from analysis.experiment import masks_of

    variants = masks_of(options, _model(model_key).gone)[1]

    def work(report: jobs.Report) -> Found:
        _threads()
        model = _model(model_key)
        return run(options, data, model, report, total)

    total = round(len(data) * (1 + AFTER))
    title = message("Ablating: {variants} variants on {count:,} examples", variants=variants, count=len(data))
    return jobs.start(key_of(options, data), title, total, work)


def run(options: Options, data: Data, model: Model, report: jobs.Report, total: int) -> Found:
    """Do an experiment from its start to its record. Raises HeadroomError for what cannot be done."""
    from analysis import experiment, outcome, runs
    from analysis.significance import interval_of_score

    made = experiment.prepare(options, model, data)
    examples = len(made.problem.examples)
    whole = round(total / (1 + AFTER))

    def told(done: int) -> None:
        report(done * whole // examples)

    facts = experiment.facts(made, data)
    there = runs.find(facts)
    record = (
        runs.resume(there)
        if there is not None
        else runs.begin(runs.folder_for(f"{options.task}-{options.protocol}"), facts)
    )
    predictions = experiment.sweep(made, record, told)

    def check(_done: int) -> None:
        report(whole)

    changes = {
        metric.name: outcome.judge(made, predictions, number, on_progress=check)
        for number, metric in enumerate(made.problem.metrics)
    }
    whole_scores = {
        metric.name: interval_of_score(
            metric, predictions[metric.name][0], made.problem.gold, seed=options.seed
        )
        for metric in made.problem.metrics
    }
    table = outcome.result(made, changes[made.problem.metrics[0].name])
    outcome.save(record.folder, table)
    return Found(
        experiment=made,
        data=data,
        folder=str(record.folder),
        predictions=predictions,
        whole=whole_scores,
        changes=changes,
        table=table,
        importance=_importance(made, check) if options.protocol == "single" else None,
        layers=outcome.best_by_layer(made, predictions, check) if options.protocol == "all-but-one" else None,
        pairs=outcome.interactions(made, predictions, check) if options.protocol == "pairs" else None,
        draft=outcome.draft_error(made, predictions) if options.precision == "draft" else None,
    )


def _importance(made: Experiment, check: Callable[[int], None]) -> Importance | None:
    """Return the gradient scores on the half of the examples that the change beside them is not reported on."""
    from analysis.importance import importance
    from analysis.outcome import halves

    problem = made.problem
    if problem.loss is None:
        return None
    return importance(problem, which=halves(made)[0].tolist(), on_progress=check)


def control(report: jobs.Report) -> tuple[Control, Experiment, Changes]:
    """Do the positive control: a network set by hand, of whose heads it is known what each does."""
    from analysis.control import control
    from analysis.experiment import Experiment, Options, masks_of, sweep
    from analysis.outcome import judge
    from analysis.tasks import set_up

    _threads()
    planted = control()
    options = Options(data="control", task="classification", model="control")
    problem = set_up("classification", planted.model, planted.data)
    masks, reported = masks_of(options, problem.model.gone)
    made = Experiment(options, problem, masks, None, "all", reported)
    return planted, made, judge(made, sweep(made, None, report))


def ask_control() -> tuple[Control, Experiment, Changes] | None:
    """Return what the positive control found, or None until it is there."""
    job = jobs.start(CONTROL, message("The positive control"), CONTROL_EXAMPLES, control)
    return jobs.result(job)  # type: ignore[return-value]


CONTROL = ("control",)
CONTROL_EXAMPLES = 300


def keep_data(data: Data, task: str) -> Data:
    """Keep a copy of a person's own data beside the runs, so that a run of it can be repeated; return it under that name.

    Raises HeadroomError where it cannot be written.
    """
    from analysis import runs

    columns = {"text": [text if isinstance(text, str) else text[0] for text in data.texts]}
    if any(not isinstance(text, str) for text in data.texts):
        columns["pair"] = [text[1] for text in data.texts if not isinstance(text, str)]
    if data.gold is not None:
        name = "score" if task == "similarity" else "label"
        columns[name] = [data.labels[int(g)] for g in data.gold] if data.labels else data.gold.tolist()
    digest = runs.hash_of_texts(columns)[:16]
    path = runs.root() / "data" / f"{digest}.csv"
    if not path.is_file():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            # Quoted, as a text may hold line ends; what no file in UTF-8 can hold becomes a question mark.
            table = pd.DataFrame(columns, dtype=object)
            table.to_csv(part, index=False, quoting=csv.QUOTE_NONNUMERIC, errors="replace")
            os.replace(part, path)
        except OSError as error:
            raise HeadroomError(
                "The copy of the data cannot be written into {folder}: {reason}.",
                folder=str(path.parent),
                reason=error.strerror or str(error),
            ) from error
    return replace(data, name=str(path))


def columns_of(path: str) -> tuple[str, ...]:
    """Return the names of the columns of a copy that `keep_data` wrote."""
    return tuple(pd.read_csv(path, nrows=0).columns)


def _threads() -> None:
    import torch

    torch.set_num_threads(max((os.cpu_count() or 2) - 1, 1))  # one core stays for the pages


def _model(key: str) -> Model:
    from analysis.models import Model

    model = cache.source(*cache.parts_of(key))
    if not isinstance(model, Model):
        raise HeadroomError("The toy has nothing to be scored on. Choose a pretrained model.")
    return model
