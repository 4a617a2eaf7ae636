"""The verbs of Headroom from a shell: ``python -m analysis attention "TEXT"``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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


@app.callback()
def verbs() -> None:
    """What each attention head of a BERT-like encoder does."""


@app.command()
def attention(
    text: Annotated[str, typer.Argument(help="The sentence.")],
    pair: Annotated[str | None, typer.Option(help="A second sentence, read together with the first.")] = None,
    model: Annotated[
        str, typer.Option(help='"bundled", "toy", the id of a model on the hub, or a local folder.')
    ] = "bundled",
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda or mps where torch offers it.")] = "cpu",
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
    model: Annotated[
        str, typer.Option(help='"bundled", "toy", the id of a model on the hub, or a local folder.')
    ] = "bundled",
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda or mps where torch offers it.")] = "cpu",
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

    def tell(done: int) -> None:
        typer.echo(f"\r{done} of {len(texts)} texts", err=True, nl=False)

    found = summarise(opened, texts, specials=specials, on_progress=tell)  # type: ignore[arg-type]
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
