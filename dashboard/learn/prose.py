"""The words of the Learn pages: one Markdown file a page and language, read into titles, texts and tasks.

# Title of the page
its question
## name | Title of a step
text
### name | A task of this step
what is said when it is solved
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dashboard.text import DEFAULT

if TYPE_CHECKING:
    from dashboard.learn.lesson import Page

FOLDER = Path(__file__).parent / "prose"
HEADING = re.compile(r"^(##|###) ([\w-]+) \| (.+)$", flags=re.MULTILINE)


@dataclass(frozen=True)
class Task:
    """Something to do with a step's figure, and what is said of it once it is done; both Markdown."""

    asks: str
    explains: str


@dataclass(frozen=True)
class Section:
    """The words of one step: Markdown."""

    title: str
    text: str
    tasks: dict[str, Task]


@dataclass(frozen=True)
class Prose:
    """The words of one page."""

    title: str
    question: str
    sections: dict[str, Section]


@lru_cache
def prose(page: str, language: str = DEFAULT) -> Prose:
    """Return the words of a page in a language, in English where they are in no other."""
    path = FOLDER / language / f"{page}.md"
    if not path.is_file():
        path = FOLDER / DEFAULT / f"{page}.md"
    return parse(path.read_text(encoding="utf-8"))


def further(page: Page, words: Prose) -> list[str]:
    """Return the names of the sections that are no step."""
    steps = {step.name for step in page.steps}
    return [name for name in words.sections if name not in steps]


def parse(text: str) -> Prose:
    """Return what a file of the form above says."""
    head, *parts = HEADING.split(text)  # what stands before, then kind, name, title and body of each
    title, question = (line.strip() for line in head.removeprefix("# ").strip().split("\n", 1))
    sections: dict[str, Section] = {}
    for kind, name, said, body in zip(*(parts[i::4] for i in range(4)), strict=True):
        if kind == "##":
            sections[name] = Section(said.strip(), body.strip(), {})
        else:
            list(sections.values())[-1].tasks[name] = Task(said.strip(), body.strip())
    return Prose(title, question, sections)
