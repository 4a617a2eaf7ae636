"""Results as files, built when the button is pressed."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from functools import partial

import plotly.graph_objects as go
import streamlit as st

from analysis.export import to_bytes
from analysis.maps import AttentionMaps
from dashboard import lenses
from dashboard.text import _

MOST_ROWS = 2_000_000  # weights in the long form; above, a file that no spreadsheet opens
# No button that sends the figure to a cloud.
EXPORT_CONFIG = {"showSendToCloud": False, "displaylogo": False}


def attention_menu(
    shown: Sequence[AttentionMaps],
    every: AttentionMaps,
    figures: Sequence[tuple[str, go.Figure]],
    lens: str = "weights",
) -> None:
    """Offer the maps as they are shown, one head each and through a lens, the pictures, and all heads."""
    through = "" if lens == "weights" else f"-{lens}"
    with st.popover(_("Download"), icon=":material/download:"):
        for one in shown:
            st.markdown(_("**{head}**, as shown").format(head=lenses.title(lens, one.first)))
            with st.container(horizontal=True):
                for suffix in (".csv", ".json", ".npz"):
                    name = _attention_file(every, f"{one.first}{through}")
                    file_button(suffix, partial(to_bytes, one, suffix), name)
        if figures:
            st.markdown(_("**The pictures**, for a browser without a network"))
            heads = " ".join(str(one.first) for one in shown)
            title = f"{every.source}: {' / '.join(every.queries.texts)}"
            name = _attention_file(every, f"{heads}{through}")
            file_button(".html", partial(to_html, figures, title), name)
        st.markdown(_("**All heads**, special tokens kept"))
        with st.container(horizontal=True):
            file_button(".npz", partial(to_bytes, every, ".npz"), _attention_file(every, "all"))
            if every.weights.size <= MOST_ROWS:
                for suffix in (".csv", ".json"):
                    file_button(suffix, partial(to_bytes, every, suffix), _attention_file(every, "all"))
            else:
                st.caption(
                    _("{count:,} weights are too many for a table: NPZ holds them all.").format(
                        count=every.weights.size
                    )
                )


def to_html(figures: Sequence[tuple[str, go.Figure]], name: str) -> bytes:
    """Return the figures, each under its title, as one HTML page that needs no network."""
    parts = []
    for i, (title, figure) in enumerate(figures):
        page = go.Figure(figure).update_layout(template="plotly_white")
        parts.append(f"<h2>{html.escape(title)}</h2>")
        parts.append(page.to_html(include_plotlyjs=i == 0, full_html=False, config=EXPORT_CONFIG))
    title = html.escape(name)
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{title}</title></head>'
        f'<body style="font-family: sans-serif"><h1>{title}</h1>{"".join(parts)}</body></html>'
    ).encode()


def file_button(suffix: str, data: Callable[[], bytes], name: str) -> None:
    """Draw the button for one file, which is built when it is pressed."""
    kinds = {
        ".csv": "text/csv",
        ".json": "application/json",
        ".npz": "application/octet-stream",
        ".html": "text/html",
        ".parquet": "application/vnd.apache.parquet",
    }
    st.download_button(
        suffix[1:].upper(),
        data=data,
        file_name=name + suffix,
        mime=kinds[suffix],
        key=f"download.{name}{suffix}",
        on_click="ignore",
    )


def _attention_file(maps: AttentionMaps, part: str) -> str:
    return file_name("attention", maps.source, part)


def file_name(*parts: str) -> str:
    """Return a name for a file without its ending: letters, digits, dots and hyphens only."""
    return "-".join(re.sub(r"[^\w.-]+", "-", part).strip("-") for part in parts)
