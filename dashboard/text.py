"""The language of the page: every visible string goes through `_`.

Catalogues are gettext ``.po`` files in ``locale/``, one a language, with the English sentence as its own
id; Babel reads them. The language is looked up at each call, so two sessions stay apart.
"""

from __future__ import annotations

import gettext
import io
import numbers
import re
import string
import unicodedata
from functools import lru_cache
from pathlib import Path

import streamlit as st
from babel import Locale
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from analysis.messages import Message

LOCALE = Path(__file__).parent / "locale"
DEFAULT = "en"
LANGUAGE_KEY = "language"
TURNING = {"R", "AL", "AN", "RLE", "LRE", "RLO", "LRO", "PDF", "RLI", "LRI", "FSI", "PDI"}


def languages() -> list[str]:
    """Return the languages that have a catalogue, English first."""
    return [DEFAULT, *_catalogues(LOCALE)]


@lru_cache
def _catalogues(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.po")))


def language() -> str:
    """Return the language of this session: the one chosen, else the link's, else the browser's."""
    chosen = st.session_state.get(LANGUAGE_KEY) or st.query_params.get("lang")
    return chosen if chosen in languages() else browser_language()


def browser_language() -> str:
    """Return the browser's language where there is a catalogue for it, else English."""
    asked = (st.context.locale or DEFAULT).split("-")[0]
    return asked if asked in languages() else DEFAULT


class Sentence(str):
    """A sentence in a language: the numbers that are put into it are written as that language writes them."""

    __slots__ = ("spoken",)
    spoken: str

    def format(self, *args: object, **values: object) -> str:
        """Return the sentence with its values, see `str.format`."""
        return _formatter(self.spoken).vformat(self, args, values)


class _Formatter(string.Formatter):
    """`str.format` with the signs of a language between the digits of numbers."""

    def __init__(self, language: str) -> None:
        self.signs = str.maketrans(dict(zip(".,", separators(language), strict=True)))

    def format_field(self, value: object, spec: str) -> str:
        said = super().format_field(value, spec)
        return said.translate(self.signs) if isinstance(value, numbers.Real) else said


@lru_cache
def _formatter(language: str) -> _Formatter:
    return _Formatter(language)


@lru_cache
def separators(language: str) -> str:
    """Return the signs of a language before the decimals and between thousands, as Plotly wants them: ``.,``."""
    symbols = Locale.parse(language).number_symbols["latn"]
    return str(symbols["decimal"]) + str(symbols["group"])


def decimals(value: float, digits: int) -> str:
    """Return a number with so many decimals, as the language of this session writes it."""
    return written(f"{value:.{digits}f}")


def written(number: str) -> str:
    """Return a number that was written with a point and commas as the language of this session writes it."""
    return number.translate(_formatter(language()).signs)


def _(text: str) -> str:
    """Return ``text`` in the language of this session."""
    spoken = language()
    said = Sentence(_catalogue(spoken).gettext(text))
    said.spoken = spoken
    return said


def say(message: Message) -> str:
    """Return a computed sentence in the language of this session, its values filled in."""
    values = {
        key: say(value) if isinstance(value, Message) else value for key, value in message.values.items()
    }
    return _(message.template).format(**values)


@lru_cache
def _catalogue(name: str) -> gettext.NullTranslations:
    if name == DEFAULT:
        return gettext.NullTranslations()
    with open(LOCALE / f"{name}.po", "rb") as file:
        catalogue = read_po(file, locale=name)
    compiled = io.BytesIO()
    write_mo(compiled, catalogue)
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)


def escape(text: str) -> str:
    """Return ``text`` so that Markdown shows it literally, whatever signs it holds."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", isolate(text))


def isolate(text: str) -> str:
    """Return ``text`` so that letters or controls written from right to left turn nothing around it."""
    if all(unicodedata.bidirectional(char) not in TURNING for char in text):
        return text
    return f"\u2068{text}\u2069"


def say_markdown(message: Message) -> str:
    """Return a computed sentence for a place that reads Markdown: its values are shown literally."""
    values = {
        key: escape(value) if isinstance(value, str) else say(value) if isinstance(value, Message) else value
        for key, value in message.values.items()
    }
    return _(message.template).format(**values)
