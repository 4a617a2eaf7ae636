"""Controls that follow what the session remembers, as those of the other pages do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import streamlit as st

from analysis.maps import Floats
from analysis.tokens import clip
from dashboard import state
from dashboard.components.words import Word, words
from dashboard.learn import keys
from dashboard.text import _, decimals, language


def number(key: str, first: int, low: int, high: int) -> int:
    """Return the number that is chosen for ``key``, within its limits; ``first`` until one is."""
    value = st.session_state.get(key)
    return min(max(first if value is None else value, low), high)


def slider(label: str, key: str, first: int, low: int, high: int, *, help: str | None = None) -> None:
    """Draw a slider for a whole number."""
    box = f"{key}.slider.{language()}"
    st.session_state[box] = number(key, first, low, high)

    def keep() -> None:
        state.acted()
        st.session_state[key] = st.session_state[box]

    st.slider(label, low, high, key=box, on_change=keep, help=help)


def box(label: str, key: str, first: int, low: int, high: int) -> None:
    """Draw a box for a whole number, with a button to each side."""
    name = f"{key}.number.{language()}"
    st.session_state[name] = number(key, first, low, high)

    def keep() -> None:
        state.acted()
        st.session_state[key] = st.session_state[name]

    st.number_input(label, low, high, key=name, on_change=keep, width=130)


def switches(label: str, key: str, names: Sequence[str]) -> None:
    """Draw a switch for each of some heads; those pressed are off."""
    name = f"{key}.pills.{language()}"
    chosen = off(key, len(names))
    st.session_state[name] = [i for i in range(len(names)) if chosen[i]]

    def keep() -> None:
        state.acted()
        st.session_state[key] = ",".join(map(str, sorted(st.session_state[name]))) or None

    st.pills(
        label,
        range(len(names)),
        selection_mode="multi",
        format_func=lambda i: names[i],
        key=name,
        on_change=keep,
    )


def off(key: str, count: int) -> np.ndarray:
    """Return [head] which heads are off."""
    found = np.zeros(count, dtype=bool)
    for part in (st.session_state.get(key) or "").split(","):
        if part.isascii() and part.isdigit() and int(part) < count:
            found[int(part)] = True
    return found


def sentence(labels: Sequence[str], row: Floats | None, chosen: int, *, key: str = "learn.words") -> None:
    """Draw the words as buttons that choose the query, shaded by the ``row`` [key] of what it looks at."""
    shades = np.zeros(len(labels)) if row is None else row
    items = [
        Word(clip(label), float(np.sqrt(weight)), False, "" if row is None else decimals(float(weight), 3))
        for label, weight in zip(labels, shades, strict=True)
    ]
    words(items, chosen=chosen, label=_("Words: choose the query"), key=key, on_choose=choose_word)


def choose_word(place: int) -> None:
    """Choose the query."""
    state.acted()
    st.session_state[keys.WORD] = place


def reset(label: str, key: str, *forget: str, then: Callable[[], None] | None = None) -> None:
    """Draw a button that puts choices back to what they were at first."""

    def back() -> None:
        state.acted()
        for name in forget:
            st.session_state[name] = None
        if then is not None:
            then()

    st.button(label, key=key, on_click=back, icon=":material/undo:")
