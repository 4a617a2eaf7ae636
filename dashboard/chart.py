"""A figure on the page: its numbers are written as the session's language writes them."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import streamlit as st

from dashboard.text import DEFAULT, language, separators


def chart(figure: go.Figure, **options: Any) -> None:
    """Draw a figure, see `st.plotly_chart`."""
    spoken = language()
    if spoken != DEFAULT:
        figure = go.Figure(figure).update_layout(separators=separators(spoken))
    st.plotly_chart(figure, **options)
