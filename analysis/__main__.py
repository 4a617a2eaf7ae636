"""The verbs of Headroom from a shell: ``python -m analysis attention "TEXT"``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.messages import HeadroomError, OptionError

if TYPE_CHECKING:
    from analysis.maps import AttentionMaps

app = typer.Typer(
    help="What each attention head of a BERT-like encoder does.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


MODEL = Annotated[
    str, typer.Option(help='"bundled", "toy", the id of a model on the hub, or a local folder.')
]
REVISION = Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")]
DEVICE = Annotated[str, typer.Option(help="cpu, or cuda or mps where torch offers it.")]


@app.callback()
def verbs() -> None:
    """What each attention head of a BERT-like encoder does."""


@app.command()
def attention(
    text: Annotated[str, typer.Argument(help="The sentence.")],
    pair: Annotated[str | None, typer.Option(help="A second sentence, read together with the first.")] = None,
    model: MODEL = "bundled",
    revision: REVISION = None,
    device: DEVICE = "cpu",
    out: Annotated[Path | None, typer.Option(help="Write the maps: .npz, .json or .csv.")] = None,
) -> None:
    """Print a line for each head: mean entropy in bits and as a share of its maximum, and its strongest link."""
    from analysis.capture import capture, open_source  # heavy: torch and transformers, so not for --help
    from analysis.export import check_suffix, save
    from analysis.models import quiet_libraries

    if out is not None:
        check_suffix(out)
    quiet_libraries()
    maps = capture(open_source(model, revision=revision, device=device), text, pair)
    if out is not None:
        save(maps, out)
    for note in maps.notes:
        typer.echo(f"note: {note}", err=True)
    for line in head_lines(maps):
        typer.echo(line)


@app.command()
def statistics(
    file: Annotated[str, typer.Argument(help="Texts: one a line, or .csv, .tsv, .jsonl, .parquet.")],
    column: Annotated[
        list[str] | None,
        typer.Option(help="Column of the texts in a table: name or number; twice for pairs."),
    ] = None,
    model: MODEL = "bundled",
    revision: REVISION = None,
    device: DEVICE = "cpu",
    specials: Annotated[str, typer.Option(help="Special tokens: keep, hide or renormalise.")] = "keep",
    out: Annotated[Path | None, typer.Option(help="Write the table: .csv or .parquet.")] = None,
) -> None:
    """Measure every head over many texts, with 95% intervals over the texts, and name its role."""
    from analysis.capture import open_source
    from analysis.collection import summarise
    from analysis.export import check_table, save_table
    from analysis.models import quiet_libraries
    from analysis.roles import roles
    from analysis.texts import read_texts

    if out is not None:
        check_table(out)
    check_specials(specials)
    texts = read_texts(file, column or [])
    quiet_libraries()
    opened = open_source(model, revision=revision, device=device)

    found = summarise(
        opened,
        texts,
        specials=specials,  # type: ignore[arg-type]
        on_progress=lambda done: told(done, len(texts), "texts"),
    )
    typer.echo("", err=True)
    frame = found.frame().assign(role=roles(found).ravel())
    if out is not None:
        save_table(frame, out)
    shown = [
        "layer",
        "head",
        "role",
        "entropy",
        "entropy_low",
        "entropy_high",
        "confidence",
        "previous",
        "next",
    ]
    typer.echo(frame[[*shown, "cls", "sep"]].to_csv(sep="\t", index=False, float_format="%.3f").rstrip())


@app.command()
def ablate(
    data: Annotated[
        str, typer.Argument(help="A table, a text file, or sample:en or sample:id for what ships.")
    ],
    task: Annotated[str, typer.Option(help="similarity, classification, masked or fidelity.")],
    model: MODEL = "bundled",
    revision: REVISION = None,
    protocol: Annotated[str, typer.Option(help="single, all-but-one, set or pairs.")] = "single",
    heads: Annotated[str, typer.Option(help="Of set and pairs: layer.head, such as 5.8,3.2.")] = "",
    replace: Annotated[str, typer.Option(help="What stands for a head: zero, mean or uniform.")] = "zero",
    columns: Annotated[
        str, typer.Option(help="Names or numbers, with commas: texts, then grade or label.")
    ] = "",
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
        columns=tuple(column.strip() for column in columns.split(",") if column.strip()),
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
    typer.echo(f"whole model: {found.metric} {found.score:.6f} on {found.examples} examples ({made.split})")
    for metric in made.problem.metrics[1:]:
        scores = metric.score(predictions[metric.name][:1], made.problem.gold)
        typer.echo(f"whole model: {metric.name} {float(scores[0]):.6f}")
    if options.precision == "draft":
        wrong = outcome.draft_error(made, predictions)
        typer.echo(
            f"draft: changes off by at most {wrong.change:.6f}, predictions by {wrong.prediction:.6f}, on "
            f"{wrong.variants} variants x {wrong.examples} examples"
        )
    undefined = int(table["delta"].isna().sum())
    if undefined:
        typer.echo(f"undefined for {undefined} of {len(table)}: all their predictions are equal")
    clear = int((~found.noise & table["delta"].notna()).sum())
    typer.echo(f"beyond noise: {clear} of {len(table)} · {run.folder}/result.csv")


@app.command()
def importance(
    data: Annotated[
        str, typer.Argument(help="A table, a text file, or sample:en or sample:id for what ships.")
    ],
    task: Annotated[str, typer.Option(help="similarity, classification or masked.")],
    out: Annotated[Path, typer.Option(help="Write the table: .csv or .parquet.")],
    model: MODEL = "bundled",
    revision: REVISION = None,
    columns: Annotated[
        str, typer.Option(help="Names or numbers, with commas: texts, then grade or label.")
    ] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the split and of masked words.")] = 0,
    device: DEVICE = "cpu",
) -> None:
    """Write the gradient score of every head: layer, head, importance, importance_normalised, signed."""
    from analysis import experiment
    from analysis.export import check_table, save_table
    from analysis.importance import importance as scores_of
    from analysis.models import open_model, quiet_libraries

    check_table(out)
    named = tuple(column.strip() for column in columns.split(",") if column.strip())
    options = experiment.Options(
        data, checked("task", task, experiment.TASKS), named, model, revision, seed=seed
    )
    read = experiment.read(options)
    quiet_libraries()
    made = experiment.prepare(options, open_model(model, revision=revision, device=device), read)
    total = len(made.problem.examples)
    found = scores_of(made.problem, on_progress=lambda done: told(done, total, "examples"))
    typer.echo("", err=True)
    save_table(found.frame(), out)
    typer.echo(f"{out}: {found.absolute.size} heads, {total} examples")


def told(done: int, total: int, what: str) -> None:
    """Tell how far a verb is, on one line of stderr."""
    typer.echo(f"\r{done} of {total} {what}", err=True, nl=False)


def checked(name: str, given: str, allowed: Sequence[str]) -> Any:
    """Return ``given``. Raises OptionError unless it is one of ``allowed``."""
    if given not in allowed:
        raise OptionError(
            "There is no {name} {given}. Choose one of: {allowed}.",
            name=name,
            given=given,
            allowed=", ".join(allowed),
        )
    return given


def check_specials(specials: str) -> None:
    """Raise OptionError unless ``specials`` is one of the ways to treat special tokens."""
    if specials not in ("keep", "hide", "renormalise"):
        raise OptionError(
            "Special tokens can be kept, hidden or renormalised, not {given}: choose keep, hide or renormalise.",
            given=specials,
        )


def head_lines(maps: AttentionMaps) -> list[str]:
    """Return a header and one tab-separated line a head."""
    from analysis.maps import strongest
    from analysis.statistics import head_entropy

    bits, normalised = head_entropy(maps)
    lines = ["layer\thead\tentropy\tnormalised\tstrongest"]
    for layer in range(maps.layers):
        for head in range(maps.heads):
            weights = maps.weights[layer, head]
            query, key = strongest(weights)
            link = f"{maps.queries.labels[query]} -> {maps.keys.labels[key]} {weights[query, key]:.3f}"
            lines.append(f"{layer}\t{head}\t{bits[layer, head]:.3f}\t{normalised[layer, head]:.3f}\t{link}")
    return lines


def main() -> int:
    """Run a verb; print one line on stderr and return 2 for input that cannot be used."""
    try:
        app(standalone_mode=False)
    except HeadroomError as error:
        typer.echo(f"error: {error}", err=True)
        return 2
    except typer.TyperException as error:
        typer.echo(f"error: {error}", err=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
