"""A choice between named options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """A choice between a few named options, kept in the session and, unless default, in the link.

    first: what is chosen until something else is; the first option where empty
    """

    key: str
    options: tuple[str, ...]
    first: str = ""

    @property
    def default(self) -> str:
        return self.first or self.options[0]
