"""What a session remembers, each key named once here, and what a link carries.

A link carries the model, the head and the choices, and a shipped example by its number; never a sentence
of one's own. Everything is kept in keys of our own, which widgets follow and the link is written from:
Streamlit's bound widgets would write translated names, and leave out what was chosen while they were not
on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from analysis.maps import Head
from dashboard.examples import EXAMPLES
from dashboard.text import LANGUAGE_KEY, language

LAYER, HEAD = "layer", "head"
LAYER_B, HEAD_B = "layer2", "head2"
NUMBERS = (LAYER, HEAD, LAYER_B, HEAD_B)  # None until chosen
TEXT, PAIR, EXAMPLE = "text", "pair", "example"
QUERY, KEY = "query", "key"  # places in the model's input, None until a text has been read
MODEL, MODEL_ASKED, MODEL_ERROR, MODEL_READY = "model", "model.asked", "model.error", "model.ready"

ARRIVAL = Head(3, 1)  # what the first example's link leads to, on the bundled model


@dataclass(frozen=True)
class Choice:
    """A choice between a few named options, kept in the session and, unless default, in the link."""

    key: str
    options: tuple[str, ...]

    @property
    def default(self) -> str:
        return self.options[0]


COLOUR = Choice("colour", ("link", "entropy"))
VIEW = Choice("view", ("map", "heads", "beside"))
SCOPE = Choice("scope", ("layer", "model"))
SPECIALS = Choice("specials", ("keep", "hide", "renormalise"))
UNITS = Choice("units", ("words", "pieces"))
BLOCK = Choice("block", ("all", "AA", "AB", "BA", "BB"))
CHOICES = (COLOUR, VIEW, SCOPE, SPECIALS, UNITS, BLOCK)


def start() -> None:
    """Give every key its first value: from the link where it says a valid one, else the default."""
    st.session_state.setdefault(LANGUAGE_KEY, language())
    for choice in CHOICES:
        asked = st.query_params.get(choice.key)
        st.session_state.setdefault(choice.key, asked if asked in choice.options else choice.default)
    for key in NUMBERS:
        st.session_state.setdefault(key, _number(st.query_params.get(key), 0, 10_000))
    if TEXT not in st.session_state:
        number = _number(st.query_params.get(EXAMPLE), 1, len(EXAMPLES)) or 1
        take_example(number)
        st.session_state[QUERY] = _number(st.query_params.get(QUERY), 0, 10_000)
        st.session_state[KEY] = _number(st.query_params.get(KEY), 0, 10_000)


def take_example(number: int) -> None:
    """Read the shipped example ``number``, counted from 1."""
    example = EXAMPLES[number - 1]
    take_text(example.text, example.pair)
    st.session_state[EXAMPLE] = number


def take_text(text: str, pair: str | None) -> None:
    """Read a text of one's own: it stays in this session."""
    st.session_state[TEXT], st.session_state[PAIR] = text, pair
    st.session_state[EXAMPLE] = st.session_state[QUERY] = st.session_state[KEY] = None


def choose_head(layer: int, head: int) -> None:
    """Choose a head, wherever it was clicked."""
    st.session_state[LAYER], st.session_state[HEAD] = layer, head


def chosen_head(layers: int, heads: int) -> Head:
    """Return the chosen head, within a model of ``layers`` x ``heads``."""
    return Head(_within(LAYER, layers, ARRIVAL.layer), _within(HEAD, heads, ARRIVAL.index))


def number_box(label: str, key: str, count: int, first: int, *, width: int = 88) -> int:
    """Draw a box for one of ``count`` numbers; ``first`` where none is chosen yet."""
    box = f"{key}.box"
    st.session_state[box] = _within(key, count, first)

    def keep() -> None:
        st.session_state[key] = st.session_state[box]

    st.selectbox(label, range(count), key=box, on_change=keep, width=width)
    return int(st.session_state[box])


def choose(
    choice: Choice,
    label: str,
    names: Mapping[str, str],
    *,
    widget: Callable[..., object] = st.segmented_control,
    **options: object,
) -> str:
    """Draw a widget for ``choice`` with translated ``names``, and return what is chosen."""
    key = f"{choice.key}.{language()}"
    st.session_state[key] = st.session_state[choice.key]

    def keep() -> None:
        if st.session_state[key] in choice.options:
            st.session_state[choice.key] = st.session_state[key]

    if widget is st.segmented_control:
        options["required"] = True
    offered = [option for option in choice.options if option in names]
    widget(label, offered, format_func=names.get, key=key, on_change=keep, **options)
    return str(st.session_state[choice.key])


def write_link(names: Sequence[str], extra: Mapping[str, object] | None = None) -> None:
    """Write the page's choices into the link; defaults leave it, and so does everything unsaid."""
    by_key = {choice.key: choice for choice in CHOICES}
    wanted: dict[str, object] = dict(extra or {})
    for name in names:
        value = st.session_state.get(name)
        if value is not None and not (name in by_key and value == by_key[name].default):
            wanted[name] = value
    for name in (*by_key, *NUMBERS, EXAMPLE, QUERY, KEY, MODEL):
        value = wanted.get(name)
        if value is not None and st.query_params.get(name) != str(value):
            st.query_params[name] = str(value)
        elif value is None and name in st.query_params:
            del st.query_params[name]


def _within(key: str, count: int, first: int) -> int:
    value = st.session_state[key]
    return min(first if value is None else value, count - 1)


def _number(text: str | None, low: int, high: int) -> int | None:
    if text is None or len(text) > 9 or not (text.isascii() and text.isdigit()):
        return None
    return int(text) if low <= int(text) <= high else None
