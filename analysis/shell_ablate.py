"""The verbs ``ablate`` and ``importance``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.messages import OptionError
from analysis.shell import COLUMNS, DATA, DEVICE, MODEL, REVISION, app, checked, columns_of, told

if TYPE_CHECKING:
    import pandas as pd

    from analysis.experiment import Experiment
    from analysis.problems import Predictions
    from analysis.significance import Changes


@app.command()
def ablate(
    data: DATA,
    task: Annotated[str, typer.Option(help="similarity, classification, masked or fidelity.")],
    model: MODEL = "bundled",
    revision: REVISION = None,
    protocol: Annotated[str, typer.Option(help="single, all-but-one, set or pairs.")] = "single",
    heads: Annotated[str, typer.Option(help="Of set and pairs: layer.head, such as 5.8,3.2.")] = "",
    replace: Annotated[str, typer.Option(help="What stands for a head: zero, mean or uniform.")] = "zero",
    columns: COLUMNS = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the split, of masked words and of the intervals.")] = 0,
    precision: Annotated[str, typer.Option(help="full, or draft: twice as fast and less exact.")] = "full",
    device: DEVICE = "cpu",
    out: Annotated[Path | None, typer.Option(help="The run folder; else runs/<time>-<name>/.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
) -> None:
    """Switch heads off and score the model again: the change of score of each, with its interval and its test."""
    from analysis import experiment, outcome, runs
    from analysis.models import open_model, quiet_libraries

    if resume is not None and out is not None:
        raise OptionError("A run that is resumed stays in its folder: give --resume or --out, not both.")
    options = experiment.Options(
        data=data,
        task=checked("task", task, experiment.TASKS),
        columns=columns_of(columns),
        model=model,
        revision=revision,
        protocol=checked("protocol", protocol, experiment.PROTOCOLS),
        heads=heads,
        replacement=checked("replacement", replace, experiment.REPLACEMENTS),
        precision=checked("precision", precision, tuple(experiment.PRECISIONS)),
        seed=seed,
    )
    read = experiment.read(options)
    quiet_libraries()
    made = experiment.prepare(options, open_model(model, revision=revision, device=device), read)
    for note in (*read.notes, *made.problem.notes):
        typer.echo(f"note: {note}", err=True)
    if resume is not None:
        run = runs.resume(resume)
        experiment.check_same(run, made, read)
    else:
        run = runs.begin(out or runs.folder_for(f"{task}-{protocol}"), experiment.facts(made, read))
    total = len(made.problem.examples)
    predictions = experiment.sweep(made, run, lambda done: told(done, total, "examples"))
    typer.echo("", err=True)
    found = outcome.judge(made, predictions)
    table = outcome.result(made, found)
    outcome.save(run.folder, table)
    say_found(made, predictions, found, table)
    typer.echo(f"{run.folder}/result.csv")


def say_found(made: Experiment, predictions: Predictions, found: Changes, table: pd.DataFrame) -> None:
    """Say what an experiment found: the whole model's scores, the largest falls, and how sure they are."""
    from analysis import outcome

    typer.echo(f"whole model: {found.metric} {found.score:.6f} on {found.examples} examples ({made.split})")
    for metric in made.problem.metrics[1:]:
        scores = metric.score(predictions[metric.name][:1], made.problem.gold)
        typer.echo(f"whole model: {metric.name} {float(scores[0]):.6f}")
    if made.options.precision == "draft":
        wrong = outcome.draft_error(made, predictions)
        typer.echo(
            f"draft: changes off by at most {wrong.change:.6f}, predictions by {wrong.prediction:.6f}, on "
            f"{wrong.variants} variants x {wrong.examples} examples"
        )
    for line in outcome.worst(table):
        typer.echo(line)
    if made.problem.task == "fidelity":
        typer.echo("fidelity can only fall: no test, beyond noise is an interval without 0")
    undefined = int(table["delta"].isna().sum())
    if undefined:
        typer.echo(f"undefined for {undefined} of {len(table)}: all their predictions are equal")
    clear = int((~found.noise & table["delta"].notna()).sum())
    typer.echo(f"beyond noise: {clear} of {len(table)}")


@app.command()
def importance(
    data: DATA,
    task: Annotated[str, typer.Option(help="similarity, classification or masked.")],
    out: Annotated[Path, typer.Option(help="Write the table: .csv or .parquet.")],
    model: MODEL = "bundled",
    revision: REVISION = None,
    columns: COLUMNS = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the split and of masked words.")] = 0,
    device: DEVICE = "cpu",
) -> None:
    """Write the gradient score of every head: layer, head, importance, importance_normalised, signed."""
    from analysis import experiment
    from analysis.export import check_table, save_table
    from analysis.importance import importance as scores_of
    from analysis.models import open_model, quiet_libraries

    check_table(out)
    options = experiment.Options(
        data, checked("task", task, experiment.TASKS), columns_of(columns), model, revision, seed=seed
    )
    read = experiment.read(options)
    quiet_libraries()
    made = experiment.prepare(options, open_model(model, revision=revision, device=device), read)
    total = len(made.problem.examples)
    found = scores_of(made.problem, on_progress=lambda done: told(done, total, "examples"))
    typer.echo("", err=True)
    save_table(found.frame(), out)
    typer.echo(f"{out}: {found.absolute.size} heads, {total} examples")
