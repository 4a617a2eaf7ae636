"""How a session's choices change, and how they get from the link and into it.

Everything is kept in keys of our own (`dashboard.keys`), which widgets follow and the link is written from:
Streamlit's bound widgets would write translated names, and leave out what was chosen while they were not
on the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import streamlit as st

from analysis.maps import Head
from analysis.tokens import Bools
from dashboard import keys, thresholds
from dashboard.examples import EXAMPLES, MINIMAL_PAIRS
from dashboard.text import DEFAULT, LANGUAGE_KEY, browser_language, language

LONGEST = 4_096  # letters of a part of a link


class PageEnd(Exception):
    """Raised by a page that has nothing more to draw. After `st.stop` nothing at all could be drawn, no progress."""


def start(page: str) -> None:
    """Give every key its value: from the link at the first run and after Back or Forward, else as it was.

    A link that differs from the one last written means that the browser went through its history, unless
    this run follows from a choice on the page (then the link is only late) or from a change of page (then
    Streamlit has cleared it, unless what was clicked says what the next page shows).
    """
    st.session_state.setdefault(LANGUAGE_KEY, language())
    seen = {name: st.query_params.get(name) for name in keys.LINK_NAMES}
    acted = st.session_state.pop(keys.ACTED, False)
    moved = st.session_state.get(keys.PAGE, page) != page
    st.session_state[keys.PAGE] = page
    if keys.WRITTEN not in st.session_state:
        _read_link(keys.LINK_NAMES)
    elif seen != st.session_state[keys.WRITTEN] and not acted and not (moved and not any(seen.values())):
        _read_link(keys.PAGE_LINKS.get(page, ()))


def acted() -> None:
    """Note that this run follows from a choice on the page, whatever the link says."""
    st.session_state[keys.ACTED] = True


def _read_link(names: Sequence[str]) -> None:
    """Take from the link what it says of ``names``, and of the model and the text; the rest stays as it was."""
    for choice in (choice for choice in keys.CHOICES if choice.key in names):
        asked = st.query_params.get(choice.key)
        if choice is keys.TEXTS and asked is None and st.session_state.get(choice.key) == keys.OWN_TEXTS:
            continue  # going back never leaves texts of one's own, which no link says
        st.session_state[choice.key] = asked if asked in choice.options else choice.default
    for key in (key for key in keys.NUMBERS if key in names):
        st.session_state[key] = _number(st.query_params.get(key), 0, 10_000)
    for key in (key for key in keys.WRITTEN_OUT if key in names):
        st.session_state[key] = (st.query_params.get(key) or "")[:LONGEST] or None
    if keys.RULES in names:
        st.session_state[keys.RULES] = thresholds.read(st.query_params.get(keys.RULES))
    asked_example = _number(st.query_params.get(keys.EXAMPLE), 1, len(EXAMPLES))
    own = st.session_state.get(keys.TEXT) is not None and st.session_state[keys.EXAMPLE] is None
    if asked_example is not None or not own:  # going back never throws a text of one's own away
        take_example(asked_example or 1)
        for key in (keys.QUERY, keys.KEY):
            st.session_state[key] = _number(st.query_params.get(key), 0, 10_000)
    minimal = _number(st.query_params.get(keys.MINIMAL), 1, len(MINIMAL_PAIRS))
    if minimal is not None or st.session_state.get(keys.MINIMAL, 1) is not None:
        take_minimal(minimal or 1)
    if keys.MODEL_B not in st.session_state or keys.MODEL_B in st.query_params:
        # What of it may be opened, the Compare page settles.
        st.session_state[keys.MODEL_B] = st.query_params.get(keys.MODEL_B)
    st.session_state.pop(keys.MODEL, None)  # the sidebar settles it anew from the link
    st.session_state.pop(keys.ACTED, None)
    st.session_state.setdefault(keys.WRITTEN, {name: st.query_params.get(name) for name in keys.LINK_NAMES})


def take_example(number: int) -> None:
    """Read the shipped example ``number``, counted from 1."""
    example = EXAMPLES[number - 1]
    take_text(example.text, example.pair)
    st.session_state[keys.EXAMPLE] = number


def take_text(text: str, pair: str | None) -> None:
    """Read a text of one's own: it stays in this session."""
    acted()
    st.session_state[keys.TEXT], st.session_state[keys.PAIR] = text, pair
    st.session_state[keys.EXAMPLE] = st.session_state[keys.QUERY] = st.session_state[keys.KEY] = None
    st.session_state[keys.FIRST_LINK] = (None, None)
    st.session_state[keys.LINES] = None


def take_minimal(number: int) -> None:
    """Compare the shipped minimal pair ``number``, counted from 1."""
    acted()
    st.session_state[keys.SIDES], st.session_state[keys.MINIMAL] = MINIMAL_PAIRS[number - 1], number


def take_sides(first: str, second: str) -> None:
    """Compare two sentences of one's own: they stay in this session."""
    acted()
    st.session_state[keys.SIDES], st.session_state[keys.MINIMAL] = (first, second), None


def complete_head(shown: Head) -> None:
    """Take the number of the head that was not chosen from the one that was shown."""
    for key, number in ((keys.LAYER, shown.layer), (keys.HEAD, shown.index)):
        if st.session_state[key] is None:
            st.session_state[key] = number


def choose_second_head(layer: int, head: int) -> None:
    """Choose the head that the first is compared with."""
    acted()
    st.session_state[keys.LAYER_B], st.session_state[keys.HEAD_B] = layer, head


def choose_head(layer: int, head: int) -> None:
    """Choose a head, wherever it was clicked."""
    acted()
    st.session_state[keys.LAYER], st.session_state[keys.HEAD] = layer, head


def choose_link(*, query: int | None = None, key: int | None = None) -> None:
    """Choose the places of the query, the key, or both."""
    acted()
    for name, place in ((keys.QUERY, query), (keys.KEY, key)):
        if place is not None:
            st.session_state[name] = int(place)
    if query is not None:
        st.session_state[keys.LINES] = None


def choose_lines(places: Sequence[int]) -> None:
    """Choose the places of the queries whose lines are drawn: one becomes the query, none is all."""
    if len(places) == 1:
        choose_link(query=places[0])
        return
    acted()
    st.session_state[keys.LINES] = [int(place) for place in places]


def choose_with(heads: Sequence[Head]) -> None:
    """Choose the further heads whose lines are drawn."""
    acted()
    st.session_state[keys.WITH] = ",".join(f"{head.layer}.{head.index}" for head in heads) or None


def with_heads(layers: int, heads: int) -> list[Head]:
    """Return the further heads whose lines are drawn, within a model of ``layers`` x ``heads``."""
    return _heads(st.session_state[keys.WITH], layers, heads)[: keys.MOST_STRANDS]


def watch(layer: int, head: int) -> None:
    """Choose the head whose attention is watched."""
    acted()
    st.session_state[keys.WATCH] = f"{layer}.{head}"


def watch_most() -> None:
    """Watch the head whose attention moves most, whichever that is."""
    acted()
    st.session_state[keys.WATCH] = None


def watched(layers: int, heads: int) -> Head | None:
    """Return the head that is watched, or None for the one that moves most."""
    found = _heads(st.session_state[keys.WATCH], layers, heads)
    return found[0] if found else None


def set_heads(layers: int, heads: int) -> list[Head]:
    """Return the heads of the session's set, within a model of ``layers`` x ``heads``."""
    return _heads(st.session_state[keys.SET], layers, heads)


def _heads(text: str | None, layers: int, heads: int) -> list[Head]:
    """Return the heads of a list such as ``5.8,3.2``, each once; what names no head of the model is left out."""
    parts = (text or "").split(",")
    found = [re.fullmatch(r"(\d{1,4})\.(\d{1,4})", part, flags=re.ASCII) for part in parts]
    each = dict.fromkeys(Head(int(one[1]), int(one[2])) for one in found if one)
    return [head for head in each if head.layer < layers and head.index < heads]


def choose_both(layer: int, head: int) -> None:
    """Choose the same head on both sides."""
    choose_head(layer, head)
    choose_second_head(layer, head)


def second_head(layers: int, heads: int, first: Head) -> Head:
    """Return the head that another is compared with, within ``layers`` x ``heads``; ``first`` until one is chosen."""
    return Head(within(keys.LAYER_B, layers, first.layer), within(keys.HEAD_B, heads, first.index))


def beside(head: Head, heads: int, gone: Bools | None = None) -> Head:
    """Return the right neighbour of a head, of the first again after the last; of those that are not ``gone``."""
    return _next_there(Head(head.layer, (head.index + 1) % heads), gone)


def chosen_head(layers: int, heads: int, gone: Bools | None = None) -> Head:
    """Return the chosen head, within a model of ``layers`` x ``heads``; until one is chosen, one that is not ``gone``."""
    head = Head(within(keys.LAYER, layers, keys.ARRIVAL.layer), within(keys.HEAD, heads, keys.ARRIVAL.index))
    is_chosen = None not in (st.session_state[keys.LAYER], st.session_state[keys.HEAD])
    return head if is_chosen else _next_there(head, gone)


def _next_there(head: Head, gone: Bools | None) -> Head:
    """Return ``head``, or the next of its layer that is not ``gone`` [layer, head], or else the next after it."""
    if gone is None or gone.all():
        return head
    layers, heads = gone.shape
    in_layer = [Head(head.layer, (head.index + step) % heads) for step in range(heads)]
    further = [Head((head.layer + step) % layers, index) for step in range(layers) for index in range(heads)]
    return next(one for one in (*in_layer, *further) if not gone[one.layer, one.index])


def write_link(names: Sequence[str], extra: Mapping[str, object] | None = None) -> None:
    """Write the page's choices into the link, at once; defaults leave it, and so does everything unsaid."""
    by_key = {choice.key: choice for choice in keys.CHOICES}
    said: dict[str, object] = {}
    for name in names:
        value = st.session_state.get(name)
        if not (name in by_key and value == by_key[name].default):
            said[name] = value
    said |= extra or {}
    wanted = {name: None if said.get(name) is None else str(said[name]) for name in keys.LINK_NAMES}
    link = {name: value for name, value in wanted.items() if value is not None}
    if {language(), browser_language()} != {DEFAULT}:  # what every reader starts from need not be said
        link["lang"] = language()
    if link != st.query_params.to_dict():
        st.query_params.from_dict(link)
    st.session_state[keys.WRITTEN] = wanted


def within(key: str, count: int, first: int) -> int:
    """Return the number kept under ``key``, ``first`` where there is none, and at most ``count`` - 1."""
    value = st.session_state[key]
    return min(first if value is None else value, count - 1)


def _number(text: str | None, low: int, high: int) -> int | None:
    if text is None or len(text) > 9 or not (text.isascii() and text.isdigit()):
        return None
    return int(text) if low <= int(text) <= high else None
