"""The verbs of Headroom from a shell: ``python -m analysis attention "TEXT"``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.messages import HeadroomError

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
