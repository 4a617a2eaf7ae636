"""The verbs of Headroom from a shell: ``python -m analysis attention "TEXT"``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis import shell_ablate, shell_prune
from analysis.messages import HeadroomError
from analysis.shell import DEVICE, MODEL, REVISION, app, check_specials, told

__all__ = ["app", "shell_ablate", "shell_prune"]  # importing them registers their verbs

if TYPE_CHECKING:
    from analysis.maps import AttentionMaps


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


def head_lines(maps: AttentionMaps) -> list[str]:
    """Return a header and one tab-separated line a head."""
    from analysis.maps import strongest
    from analysis.statistics import head_entropy

    bits, normalised = head_entropy(maps)
    lines = ["layer\thead\tentropy\tnormalised\tstrongest"]
    for layer in range(maps.layers):
        for head in range(maps.heads):
            if maps.gone is not None and maps.gone[layer, head]:
                lines.append(f"{layer}\t{head}\tremoved\t\t")
                continue
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
        typer.echo(f"error: {error.format_message()}", err=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
