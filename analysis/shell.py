"""What the verbs of the shell have in common: the program, its options, and how it says how far it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from analysis.messages import OptionError

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


DATA = Annotated[str, typer.Argument(help="A table, a text file, or sample:en or sample:id for what ships.")]
COLUMNS = Annotated[str, typer.Option(help="Names or numbers, with commas: texts, then grade or label.")]


def columns_of(text: str) -> tuple[str, ...]:
    """Return the columns of a list with commas."""
    return tuple(column.strip() for column in text.split(",") if column.strip())


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
