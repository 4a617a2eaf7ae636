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
from dashboard.text import LANGUAGE_KEY, browser_language, language

LAYER, HEAD = "layer", "head"
LAYER_B, HEAD_B = "layer2", "head2"
NUMBERS = (LAYER, HEAD, LAYER_B, HEAD_B)  # None until chosen
TEXT, PAIR, EXAMPLE = "text", "pair", "example"
QUERY, KEY = "query", "key"  # places in the model's input, None until a text has been read
MODEL, MODEL_ASKED, MODEL_ERROR, MODEL_READY = "model", "model.asked", "model.error", "model.ready"

FIRST_LINK = "link.first"  # the places of query and key that a text starts with, which a link need not say
PAGE, WRITTEN, ACTED = "page", "link.written", "acted"

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
LINK_NAMES = (*(choice.key for choice in CHOICES), *NUMBERS, EXAMPLE, QUERY, KEY, MODEL)


def start(page: str) -> None:
    """Give every key its value: from the link at the first run and after Back or Forward, else as it was.

    A link that differs from the one last written means that the browser went through its history, unless
    this run follows from a choice on the page (then the link is only late) or from a change of page (then
    Streamlit has cleared it).
    """
    st.session_state.setdefault(LANGUAGE_KEY, language())
    seen = {name: st.query_params.get(name) for name in LINK_NAMES}
    acted = st.session_state.pop(ACTED, False)
    moved = st.session_state.get(PAGE, page) != page
    st.session_state[PAGE] = page
    if WRITTEN not in st.session_state or (seen != st.session_state[WRITTEN] and not acted and not moved):
        _read_link()


def acted() -> None:
    """Note that this run follows from a choice on the page, whatever the link says."""
    st.session_state[ACTED] = True


def _read_link() -> None:
    for choice in CHOICES:
        asked = st.query_params.get(choice.key)
        st.session_state[choice.key] = asked if asked in choice.options else choice.default
    for key in NUMBERS:
        st.session_state[key] = _number(st.query_params.get(key), 0, 10_000)
    asked_example = _number(st.query_params.get(EXAMPLE), 1, len(EXAMPLES))
    own = st.session_state.get(TEXT) is not None and st.session_state[EXAMPLE] is None
    if asked_example is not None or not own:  # going back never throws a text of one's own away
        take_example(asked_example or 1)
        for key in (QUERY, KEY):
            st.session_state[key] = _number(st.query_params.get(key), 0, 10_000)
    st.session_state.pop(MODEL, None)  # the sidebar settles it anew from the link
    st.session_state.pop(ACTED, None)
    st.session_state.setdefault(WRITTEN, {name: st.query_params.get(name) for name in LINK_NAMES})


def take_example(number: int) -> None:
    """Read the shipped example ``number``, counted from 1."""
    example = EXAMPLES[number - 1]
    take_text(example.text, example.pair)
    st.session_state[EXAMPLE] = number


def take_text(text: str, pair: str | None) -> None:
    """Read a text of one's own: it stays in this session."""
    acted()
    st.session_state[TEXT], st.session_state[PAIR] = text, pair
    st.session_state[EXAMPLE] = st.session_state[QUERY] = st.session_state[KEY] = None
    st.session_state[FIRST_LINK] = (None, None)


def choose_head(layer: int, head: int) -> None:
    """Choose a head, wherever it was clicked."""
    acted()
    st.session_state[LAYER], st.session_state[HEAD] = layer, head


def choose_link(*, query: int | None = None, key: int | None = None) -> None:
    """Choose the places of the query, the key, or both."""
    acted()
    for name, place in ((QUERY, query), (KEY, key)):
        if place is not None:
            st.session_state[name] = int(place)


def chosen_head(layers: int, heads: int) -> Head:
    """Return the chosen head, within a model of ``layers`` x ``heads``."""
    return Head(_within(LAYER, layers, ARRIVAL.layer), _within(HEAD, heads, ARRIVAL.index))


def number_box(label: str, key: str, count: int, first: int, *, width: int = 88) -> int:
    """Draw a box for one of ``count`` numbers; ``first`` where none is chosen yet."""
    box = f"{key}.box"
    st.session_state[box] = _within(key, count, first)

    def keep() -> None:
        acted()
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
        acted()
        if st.session_state[key] in choice.options:
            st.session_state[choice.key] = st.session_state[key]

    if widget is st.segmented_control:
        options["required"] = True
    offered = [option for option in choice.options if option in names]
    widget(label, offered, format_func=names.get, key=key, on_change=keep, **options)
    return str(st.session_state[choice.key])


def write_link(names: Sequence[str], extra: Mapping[str, object] | None = None) -> None:
    """Write the page's choices into the link, at once; defaults leave it, and so does everything unsaid."""
    by_key = {choice.key: choice for choice in CHOICES}
    said: dict[str, object] = {}
    for name in names:
        value = st.session_state.get(name)
        if not (name in by_key and value == by_key[name].default):
            said[name] = value
    said |= extra or {}
    wanted = {name: None if said.get(name) is None else str(said[name]) for name in LINK_NAMES}
    link = {name: value for name, value in wanted.items() if value is not None}
    if language() != browser_language():  # what a reload starts from need not be said
        link["lang"] = language()
    if link != st.query_params.to_dict():
        st.query_params.from_dict(link)
    st.session_state[WRITTEN] = wanted


def _within(key: str, count: int, first: int) -> int:
    value = st.session_state[key]
    return min(first if value is None else value, count - 1)


def _number(text: str | None, low: int, high: int) -> int | None:
    if text is None or len(text) > 9 or not (text.isascii() and text.isdigit()):
        return None
    return int(text) if low <= int(text) <= high else None
