"""Controls that follow what the session remembers, as those of the other pages do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import streamlit as st

from analysis.maps import Floats
from analysis.tokens import clip
from dashboard import boxes, state
from dashboard.components.words import Word, words
from dashboard.learn import keys
from dashboard.text import _, decimals, language


def number(key: str, first: int, low: int, high: int) -> int:
    """Return the number that is chosen for ``key``, within its limits; ``first`` until one is."""
    value = st.session_state.get(key)
    return min(max(first if value is None else value, low), high)


def slider(label: str, key: str, first: int, low: int, high: int, *, help: str | None = None) -> None:
    """Draw a slider for a whole number."""
    shown = number(key, first, low, high)
    name = f"{key}.slider.{language()}"
    boxes.draw(st.slider, label, low, high, key=name, shown=shown, take=boxes.into(key), help=help)


def box(label: str, key: str, first: int, low: int, high: int) -> None:
    """Draw a box for a whole number, with a button to each side."""
    shown = number(key, first, low, high)
    name = f"{key}.number.{language()}"
    boxes.draw(st.number_input, label, low, high, key=name, shown=shown, take=boxes.into(key), width=130)


def steps(label: str, options: Sequence[int], key: str, place: int) -> None:
    """Draw a slider along some ``options``, that at ``place`` chosen; the session keeps the place."""

    def take(option: int) -> None:
        st.session_state[key] = options.index(option)

    name = f"{key}.steps.{language()}"
    boxes.draw(st.select_slider, label, options, key=name, shown=options[place], take=take)


def switches(label: str, key: str, names: Sequence[str]) -> None:
    """Draw a switch for each of some heads; those pressed are off."""
    chosen = off(key, len(names))

    def take(pressed: list[int]) -> None:
        st.session_state[key] = ",".join(map(str, sorted(pressed))) or None

    boxes.draw(
        st.pills,
        label,
        range(len(names)),
        key=f"{key}.pills.{language()}",
        shown=[i for i in range(len(names)) if chosen[i]],
        take=take,
        selection_mode="multi",
        format_func=lambda i: names[i],
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
