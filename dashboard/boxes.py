"""Boxes and buttons that show a choice of the session and keep what is picked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dashboard import keys, state
from dashboard.text import language

T = TypeVar("T")


def draw(
    widget: Callable[..., object],
    label: str,
    *limits: object,
    key: str,
    shown: T,
    take: Callable[[T], object],
    offered: Sequence[T] | None = None,
    **looks: Any,
) -> None:
    """Draw a widget that shows ``shown`` of the session; ``take`` gets what a person chose in it.

    offered: what alone can be chosen, where that is a list; a box drawn before its options changed may still send
        the label of an old one

    The browser tells the value of every widget with every message. Those that no choice caused, the ticks of the
    progress of a job and the steps of Back, can still tell what was shown before: these choose nothing.
    """
    st.session_state[key] = shown

    def keep() -> None:
        chosen = st.session_state[key]
        if not _is_chosen() or (offered is not None and chosen not in offered):
            st.session_state[key] = shown
        elif chosen != shown:
            state.acted()
            take(chosen)

    widget(label, *limits, key=key, on_change=keep, **looks)


def _is_chosen() -> bool:
    """Whether this run may follow from a choice in a widget of the page."""
    run = get_script_run_ctx(suppress_warning=True)
    return run is None or not (run.fragment_ids_this_run or run.is_history_navigation)


def select(
    label: str,
    options: Sequence[T],
    *,
    key: str,
    shown: T | None,
    take: Callable[[T], object],
    **looks: Any,
) -> None:
    """Draw a box that shows ``shown`` of some ``options``, or none; ``take`` gets what is picked."""
    draw(st.selectbox, label, options, key=key, shown=shown, take=take, offered=options, **looks)  # type: ignore[arg-type]


def into(key: str) -> Callable[[object], None]:
    """Return a function that keeps what it gets under a key of the session."""

    def keep(picked: object) -> None:
        st.session_state[key] = picked

    return keep


def number_box(
    label: str,
    key: str,
    count: int,
    first: int,
    *,
    width: int = 88,
    on_keep: Callable[[], None] | None = None,
) -> int:
    """Draw a box for one of ``count`` numbers; ``first`` where none is chosen yet. ``on_keep`` runs after a choice."""
    shown = state.within(key, count, first)

    def take(picked: int) -> None:
        st.session_state[key] = picked
        if on_keep is not None:
            on_keep()

    select(label, range(count), key=f"{key}.box", shown=shown, take=take, width=width)
    return shown


def heads_box(label: str, kept: str, key: str, **looks: Any) -> None:
    """Draw a box for a list of heads such as ``5.8,3.2``, kept as it is typed under ``kept``."""

    def take(typed: str) -> None:
        st.session_state[kept] = typed.strip() or None

    draw(
        st.text_input,
        label,
        key=key,
        shown=st.session_state[kept] or "",
        take=take,
        placeholder="5.8,3.2",
        autocomplete="off",
        max_chars=state.LONGEST,
        **looks,
    )


def choose(
    choice: keys.Choice,
    label: str,
    names: Mapping[str, str],
    *,
    widget: Callable[..., object] = st.segmented_control,
    **options: Any,
) -> str:
    """Draw a widget for ``choice`` with translated ``names``, and return what is chosen."""
    offered = [option for option in choice.options if option in names]
    chosen = st.session_state[choice.key]
    shown = chosen if chosen in offered else offered[0]  # what is not offered here is kept for where it is
    if widget is st.segmented_control:
        options["required"] = True
    options["format_func"] = names.get
    key = f"{choice.key}.{language()}"
    draw(widget, label, offered, key=key, shown=shown, take=into(choice.key), offered=offered, **options)
    return shown
