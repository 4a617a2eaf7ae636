"""Small interface components: the grid of heads and the words of a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import streamlit as st


def asset(name: str) -> str:
    """Return the text of a file beside this one."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def heard(key: str) -> Mapping[str, object]:
    """Return what the component `key` just sent (empty if nothing) and remember its number for `seen`."""
    sent = st.session_state[key].get("choose")
    if not isinstance(sent, dict):
        return {}
    if isinstance(sent.get("number"), int):
        st.session_state[f"{key}.seen"] = sent["number"]
    return sent


def seen(key: str) -> int:
    """Return the number of the last choice heard from `key`: the browser ignores answers to older ones."""
    return int(st.session_state.get(f"{key}.seen", 0))


def index(value: object, count: int) -> int | None:
    """Return `value` if it is a whole number in 0..count-1, else None."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < count else None
