"""The title of a Learn page, which stands before the heavy libraries are loaded."""

from __future__ import annotations

import sys

import streamlit as st

from dashboard import cache, panels
from dashboard.learn.prose import prose
from dashboard.text import _, language


def heading(name: str) -> None:
    """Draw the title of a page and the question it answers, then load what computes it."""
    words = prose(name, language())
    panels.title(words.title, words.question)
    if "torch" not in sys.modules:
        with st.spinner(_("Loading the libraries …")):
            cache.libraries()
