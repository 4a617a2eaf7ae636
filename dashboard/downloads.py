"""Results as files, built when the button is pressed."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from functools import partial

import plotly.graph_objects as go
import streamlit as st

from analysis.export import to_bytes
from analysis.maps import AttentionMaps, Head
from dashboard.text import _

MOST_ROWS = 2_000_000  # weights in the long form; above, a file that no spreadsheet opens
# No button that sends the figure to a cloud.
EXPORT_CONFIG = {"showSendToCloud": False, "displaylogo": False}


def attention_menu(
    one: AttentionMaps, every: AttentionMaps, head: Head, figures: Sequence[go.Figure]
) -> None:
    """Offer the chosen head's map as it is shown, all heads, and the picture."""
    with st.popover(_("Download"), icon=":material/download:"):
        st.markdown(_("**{head}**, as shown").format(head=head))
        with st.container(horizontal=True):
            for suffix in (".csv", ".json", ".npz"):
                _button(suffix, partial(to_bytes, one, suffix), _file(every, str(head)))
            _button(".html", partial(to_html, figures, f"{every.source} {head}"), _file(every, str(head)))
        st.markdown(_("**All heads**, special tokens kept"))
        with st.container(horizontal=True):
            _button(".npz", partial(to_bytes, every, ".npz"), _file(every, "all"))
            if every.weights.size <= MOST_ROWS:
                for suffix in (".csv", ".json"):
                    _button(suffix, partial(to_bytes, every, suffix), _file(every, "all"))
            else:
                st.caption(
                    _("{count:,} weights are too many for a table: NPZ holds them all.").format(
                        count=every.weights.size
                    )
                )


def to_html(figures: Sequence[go.Figure], name: str) -> bytes:
    """Return the figures as one HTML page that needs no network."""
    parts = []
    for i, figure in enumerate(figures):
        page = go.Figure(figure).update_layout(template="plotly_white")
        parts.append(page.to_html(include_plotlyjs=i == 0, full_html=False, config=EXPORT_CONFIG))
    title = html.escape(name)
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{title}</title></head>'
        f'<body style="font-family: sans-serif"><h1>{title}</h1>{"".join(parts)}</body></html>'
    ).encode()


def _button(suffix: str, data: Callable[[], bytes], name: str) -> None:
    kinds = {
        ".csv": "text/csv",
        ".json": "application/json",
        ".npz": "application/octet-stream",
        ".html": "text/html",
    }
    st.download_button(
        suffix[1:].upper(),
        data=data,
        file_name=name + suffix,
        mime=kinds[suffix],
        key=f"download.{name}{suffix}",
        on_click="ignore",
    )


def _file(maps: AttentionMaps, part: str) -> str:
    model = re.sub(r"[^\w.-]+", "-", maps.source)
    return f"attention-{model}-{part.replace('·', '-')}"
