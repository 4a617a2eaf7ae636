"""The thresholds of the roles, as a session moved them: those that differ from the written rules."""

from __future__ import annotations

import re

import streamlit as st

from analysis.roles import RULES as ROLES
from dashboard.keys import RULES


def of_session() -> dict[str, float]:
    """Return the threshold of every role, by its letter."""
    return {rule.letter: rule.threshold for rule in ROLES} | st.session_state[RULES]


def choose(letter: str, threshold: float) -> None:
    """Set the threshold of a role, by its letter; the written rule's own is not kept."""
    changed = st.session_state[RULES] | {letter: threshold}
    written = {rule.letter: rule.threshold for rule in ROLES}
    st.session_state[RULES] = {key: value for key, value in changed.items() if value != written[key]}


def reset() -> None:
    """Go back to the thresholds of the written rules."""
    st.session_state[RULES] = {}


def in_link() -> str | None:
    """Return the thresholds that differ from the written rules as a link says them: P60N40."""
    return "".join(f"{letter}{value * 100:.0f}" for letter, value in st.session_state[RULES].items()) or None


def read(text: str | None) -> dict[str, float]:
    """Return the thresholds that a link says, by the letter of the role; what it gets wrong is left out."""
    written = {rule.letter: rule.threshold for rule in ROLES}
    found = re.findall(r"([A-Z])(\d{1,3})", (text or "")[:100])
    asked = {letter: int(share) / 100 for letter, share in found if 5 <= int(share) <= 100}
    return {
        letter: value for letter, value in asked.items() if letter in written and value != written[letter]
    }
