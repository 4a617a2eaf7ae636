"""What is said to a person, kept apart from the language it is said in.

A sentence is a template in English plus its values, so that the screen can translate the template and
fill in the values afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Message:
    """A sentence for the reader: ``template`` in ``str.format`` style and the ``values`` that fill it."""

    template: str
    values: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.template.format(**self.values)


def message(template: str, **values: object) -> Message:
    """Return the sentence ``template`` with its ``values``; the first argument is what gets translated."""
    return Message(template, values)


def first_line(error: Exception) -> str:
    """Return what an error of a library says, in one line without its full stop, or else its kind."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0].rstrip(".")[:200] if lines else "") or type(error).__name__


class HeadroomError(Exception):
    """Input that cannot be used: one sentence with the value, the limit and the remedy."""

    def __init__(self, template: str, **values: object) -> None:
        self.message = Message(template, values)
        super().__init__(str(self.message))


class ModelError(HeadroomError):
    """A model that cannot be opened, or that would give wrong answers."""


class TextError(HeadroomError):
    """A text that cannot be read by the model."""


class OptionError(HeadroomError):
    """A setting outside its range."""
