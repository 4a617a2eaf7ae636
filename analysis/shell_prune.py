"""The verbs ``prune`` and ``shrink``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.messages import OptionError
from analysis.shell import COLUMNS, DATA, DEVICE, MODEL, REVISION, app, checked, columns_of, told

if TYPE_CHECKING:
    from analysis.models import Model
    from analysis.tokens import Bools


@app.command()
def prune(
    data: DATA,
    task: Annotated[str, typer.Option(help="similarity, classification, masked or fidelity.")],
    out: Annotated[Path, typer.Option(help="Write the curves: .csv or .parquet.")],
    order: Annotated[
        str,
        typer.Option(
            help="importance, importance-once, signed, ablation, greedy, fisher, entropy or random; "
            "several with commas."
        ),
    ] = "importance",
    report: Annotated[
        str | None, typer.Option(help="Data that is scored on; without it one random half of the data.")
    ] = None,
    model: MODEL = "bundled",
    revision: REVISION = None,
    columns: COLUMNS = "",
    seeds: Annotated[int, typer.Option(min=1, help="How many random orders.")] = 20,
    step: Annotated[
        float, typer.Option(help="Share of all heads that goes at a step; 0 for one head.")
    ] = 0.1,
    keep: Annotated[int, typer.Option(min=0, help="Heads that each layer keeps at least.")] = 0,
    protect: Annotated[str, typer.Option(help="Heads that never go: layer.head, with commas.")] = "",
    raw: Annotated[
        bool, typer.Option(help="Importance as it is, not divided by its layer's length.")
    ] = False,
    loss: Annotated[
        float, typer.Option(help="Allowed loss of score, for the number of heads that can go.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(min=0, help="Of the split, of random orders and of intervals.")] = 0,
    device: DEVICE = "cpu",
) -> None:
    """Remove heads step by step in one or several orders, and score what is left on data that chose nothing."""
    from analysis import trial
    from analysis.curves import check_loss
    from analysis.export import check_table, save_table
    from analysis.maps import read_heads
    from analysis.models import open_model, quiet_libraries
    from analysis.problems import TASKS
    from analysis.pruning import ORDERS, Limits

    check_table(out)
    check_loss(loss)
    if not out.resolve().parent.is_dir():  # said before the work, not after it
        raise OptionError("There is no folder {folder} to write into. Make it first.", folder=str(out.parent))
    asked = tuple(checked("order", name, ORDERS) for name in columns_of(order))
    options = trial.Options(
        data=data,
        report=report,
        task=checked("task", task, TASKS),
        columns=columns_of(columns),
        model=model,
        revision=revision,
        orders=asked,
        seeds=seeds,
        limits=Limits(step=step, keep=keep, protected=tuple(read_heads(protect))),
        normalised=not raw,
        seed=seed,
    )
    read = trial.read(options)
    quiet_libraries()
    made = trial.prepare(options, open_model(model, revision=revision, device=device), *read)
    for note in (*read[0].notes, *made.choosing.notes):
        typer.echo(f"note: {note}", err=True)
    total = len(made.paths())
    found = []
    for number, one in enumerate(made.paths()):
        found.append(made.curve(*one))
        told(number + 1, total, "orders")
    typer.echo("", err=True)
    save_table(trial.frame(found), out)
    trial.record(out, options, made.choosing.model)
    for line in trial.sentences(found, loss):
        typer.echo(line)


@app.command()
def shrink(
    out: Annotated[Path, typer.Option(help="A new or empty folder for the smaller model.")],
    model: MODEL = "bundled",
    revision: REVISION = None,
    heads: Annotated[str, typer.Option(help="Heads to remove: layer.head, such as 5.8,3.2.")] = "",
    from_: Annotated[
        Path | None, typer.Option("--from", help="A curve that prune wrote, in place of --heads.")
    ] = None,
    share: Annotated[
        float,
        typer.Option(
            help="With --from: at most this share of the heads goes, in the first order of the file."
        ),
    ] = 0.0,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write model.onnx into the folder too.")] = False,
    zeros: Annotated[
        bool, typer.Option("--zeros", help="Keep the shape and write zeros: loads anywhere, no faster.")
    ] = False,
) -> None:
    """Remove heads for good and save the smaller model, checked against the masked one."""
    import numpy as np

    from analysis import saving, trial
    from analysis.ablation import one_set
    from analysis.maps import read_heads
    from analysis.models import open_model, quiet_libraries
    from analysis.onnx_file import check_packages

    check_shrink(heads, from_, share, onnx=onnx, zeros=zeros)
    saving.check_empty(out)
    if onnx:
        check_packages()
    named = read_heads(heads if from_ is None else saving.heads_of_curve(from_, share))
    quiet_libraries()
    whole = open_model(model, revision=revision)
    if from_ is not None:
        trial.check_model(from_, whole)
    shape = (whole.geometry.layers, whole.geometry.heads)
    mask = one_set(named, shape)[0] if named else np.zeros(shape, dtype=bool)
    if zeros:
        saving.save_model(whole, out, whole=whole, full_shape=mask)
        typer.echo(f"{out}: {int(mask.sum())} heads are zero; the model is as large as before")
    else:
        save_smaller(whole, mask, out, onnx=onnx)


def check_shrink(heads: str, curve: Path | None, share: float, *, onnx: bool, zeros: bool) -> None:
    """Raise OptionError for options of ``shrink`` that say too little, or too much."""
    if bool(heads) == (curve is not None):
        raise OptionError("Say which heads go: with --heads 5.8,3.2, or with --from curve.csv --share 0.4.")
    if not 0 <= share <= 1:
        raise OptionError("{share} is no share of the heads: give 0 to 1.", share=share)
    if onnx and zeros:
        raise OptionError("ONNX is written of the smaller model only: give --onnx or --zeros, not both.")


def save_smaller(whole: Model, mask: Bools, out: Path, *, onnx: bool) -> None:
    """Remove the heads, check the smaller model, save it, and say what it costs."""
    from analysis import saving
    from analysis.checks import apart
    from analysis.onnx_file import export
    from analysis.surgery import sizes

    small = saving.smaller(whole, mask)
    difference = apart(whole, mask, small)
    saving.save_model(
        small, out, whole=whole, numbers={"largest difference from the masked model": f"{difference:.1e}"}
    )
    if onnx:
        typer.echo(f"model.onnx: differs by {export(small, out / 'model.onnx'):.1e} of the largest output")
    before, after = sizes(whole.network), sizes(small.network)
    there = ~whole.gone
    typer.echo(
        f"{out}: {int((mask & there).sum())} of {int(there.sum())} heads removed, {after.parameters:,} of "
        f"{before.parameters:,} parameters, {after.products / before.products:.1%} of the multiply-adds at 64 tokens"
    )
    typer.echo(f"largest difference from the masked model: {difference:.1e}")
