"""What a step of a Learn page is, and what it shows: the same for the screen and for the file that is saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from analysis.messages import HeadroomError


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure, its title, and what it shows in words."""

    title: str
    figure: go.Figure
    alt: str


@dataclass(frozen=True, eq=False)
class Shown:
    """What a step shows of the session's choices.

    found: what was computed, from which tasks are judged
    says: the live numbers as sentences, Markdown
    tables: small ones that stand open, by their titles
    numbers: the numbers behind the pictures, by their titles
    """

    found: Any
    says: tuple[str, ...]
    pictures: tuple[Picture, ...]
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    numbers: Mapping[str, pd.DataFrame] = field(default_factory=dict)


Seen = Shown | HeadroomError  # the latter where the choices cannot be computed


@dataclass(frozen=True)
class Real:
    """Where the same is seen on a real BERT: a page, what it is called, and the choices that its link carries."""

    page: str
    label: str
    choices: Mapping[str, str]


@dataclass(frozen=True)
class Step:
    """One step.

    compute: from the session's choices to what is shown; raises HeadroomError for what cannot be computed
    controls: draws them; given what is shown, since words are shaded by it, or the error
    tasks: whether what is shown solves them, by the names that the prose gives them
    code: the functions that computed it
    real: the same on a real BERT
    after: draws what takes longer than a click, under the picture
    """

    name: str
    compute: Callable[[], Shown]
    controls: Callable[[Seen], None]
    tasks: Mapping[str, Callable[[Seen], bool]]
    code: tuple[object, ...]
    real: Callable[[], Real]
    after: Callable[[Seen], None] | None = None


@dataclass(frozen=True)
class Page:
    """A page: its name in links and files, and its steps in order.

    answers: the page and step that shows the answer to each further section of its prose
    """

    name: str
    steps: tuple[Step, ...]
    answers: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def look(step: Step) -> Seen:
    """Return what a step shows, or the error of what cannot be computed."""
    try:
        return step.compute()
    except HeadroomError as error:
        return error


def judged(test: Callable[[Any], bool]) -> Callable[[Seen], bool]:
    """Return a task's test of what was computed; an error solves nothing."""
    return lambda seen: isinstance(seen, Shown) and bool(test(seen.found))
