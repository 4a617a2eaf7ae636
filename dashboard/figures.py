"""Numbers into Plotly figures: pure functions with fixed ranges.

Axes are categories named by place and token, so that a repeated token keeps its row; tokens are escaped,
because Plotly reads its texts as a kind of HTML.
"""

from __future__ import annotations

import html
import math
import unicodedata
from typing import Any

import numpy as np
import plotly.graph_objects as go

from analysis.maps import AttentionMaps, Floats
from analysis.tokens import Tokens, clip
from dashboard.colours import (
    Stop,
    attention_scale,
    attention_stops,
    difference_scale,
    difference_stops,
    root_ticks,
)
from dashboard.text import _, written

MOST_MARKERS = 1600  # cells that can be clicked; above, a figure would weigh too much
MOST_TICKS, MOST_TICKS_ACROSS, MOST_TICKS_NARROW = 48, 30, 18
LONGEST_TICK = 14
ATTENTION_TICKS = (0, 0.02, 0.1, 0.25, 0.5, 1)
DIFFERENCE_TICKS = (-1, -0.25, 0, 0.25, 1)
OUTLINE = "#d55e00"
MARGIN = {"l": 10, "r": 10, "t": 10, "b": 10}


def head_map(
    one: AttentionMaps,
    *,
    query: int | None = None,
    key: int | None = None,
    narrow: bool = False,
    colour_name: str | None = None,
) -> go.Figure:
    """Return the heatmap of one head, query x key, with exact values on hover.

    ``one`` holds a single head, [1, 1, query, key]. The row of ``query`` and its cell at ``key`` are
    outlined. ``narrow`` names fewer keys, for a figure beside others. ``colour_name`` says what the colour is, if
    not attention. Up to 1,600 cells can be clicked: their points are numbered row by row.
    """
    weights = one.weights[0, 0]
    traces = [_heat(weights, one.queries, one.keys, attention_scale(), (0, 1))]
    if 0 < weights.size <= MOST_MARKERS:
        traces.append(_markers(weights, one.queries, one.keys))
    traces.append(colour_bar(attention_stops(), (0, 1), ATTENTION_TICKS, colour_name or _("attention")))
    outlines = []
    if query is not None:
        outlines.append(_outline((-0.5, len(one.keys) - 0.5), query))
        if key is not None:
            outlines.append(_outline((key - 0.5, key + 0.5), query))
    return go.Figure(traces, _map_layout(one.queries, one.keys, narrow) | {"shapes": outlines})


def difference_map(first: AttentionMaps, second: AttentionMaps) -> go.Figure:
    """Return the heatmap of one head minus another, query x key, in -1 to 1: blue where the first is more."""
    values = first.weights[0, 0] - second.weights[0, 0]
    traces = [
        _heat(values, first.queries, first.keys, difference_scale(), (-1, 1)),
        colour_bar(difference_stops(), (-1, 1), DIFFERENCE_TICKS, _("difference")),
    ]
    return go.Figure(traces, _map_layout(first.queries, first.keys, narrow=True))


def _heat(
    values: Floats, queries: Tokens, keys: Tokens, scale: list[Stop], limits: tuple[float, float]
) -> go.Heatmap:
    return go.Heatmap(
        z=np.ascontiguousarray(values, dtype=np.float32),
        x=_names(keys),
        y=_names(queries),
        zmin=limits[0],
        zmax=limits[1],
        colorscale=scale,
        showscale=False,
        xgap=1 if len(keys) <= MOST_TICKS else 0,
        ygap=1 if len(queries) <= MOST_TICKS else 0,
        hovertemplate="%{y} → %{x}: %{z:.4f}<extra></extra>",
    )


def _markers(weights: Floats, queries: Tokens, keys: Tokens) -> go.Scatter:
    """Transparent points over the cells: Plotly reports clicks on points, not on heatmaps."""
    rows, columns = np.indices(weights.shape)
    x, y = _names(keys), _names(queries)
    return go.Scatter(
        x=[x[i] for i in columns.ravel()],
        y=[y[i] for i in rows.ravel()],
        mode="markers",
        marker={"size": 18, "symbol": "square", "opacity": 0},
        selected={"marker": {"opacity": 0}},
        unselected={"marker": {"opacity": 0}},
        customdata=np.ascontiguousarray(weights.ravel(), dtype=np.float32),
        hovertemplate="%{y} → %{x}: %{customdata:.4f}<extra></extra>",
        showlegend=False,
    )


def colour_bar(
    stops: list[Stop],
    limits: tuple[float, float],
    ticks: tuple[float, ...],
    title: str,
) -> go.Scatter:
    """A colour bar whose axis is the root of the value, as the colours are, drawn by a trace of nothing."""
    return go.Scatter(
        x=[None],
        y=[None],
        mode="markers",
        hoverinfo="skip",
        showlegend=False,
        marker={
            "color": [limits[0]],
            "cmin": limits[0],
            "cmax": limits[1],
            "colorscale": stops,
            "showscale": True,
            "colorbar": {
                "orientation": "h",
                "title": {"text": title + "\u2002", "side": "right"},
                "tickvals": root_ticks(ticks),
                "ticktext": [written(f"{tick:g}").replace("-", "−") for tick in ticks],
                "tickangle": 0,
                "thickness": 10,
                "y": 0,
                "yanchor": "top",
                "ypad": 8,
                "outlinewidth": 0,
            },
        },
    )


def _map_layout(queries: Tokens, keys: Tokens, narrow: bool) -> dict[str, Any]:
    height = min(max(170 + 20 * len(queries), 300), 430 if len(queries) <= 24 else 760)
    return {
        "xaxis": _axis(keys, MOST_TICKS_NARROW if narrow else MOST_TICKS_ACROSS)
        | {
            "title": {"text": _("key (looked at)"), "standoff": 6},
            "range": [-0.5, len(keys) - 0.5],
            "side": "top",
            "tickangle": -55,
        },
        "yaxis": _axis(queries, MOST_TICKS)
        | {"title": {"text": _("query")}, "range": [len(queries) - 0.5, -0.5]},
        "height": height,
        "margin": _margins(queries, keys),
    }


def _margins(queries: Tokens, keys: Tokens) -> dict[str, int]:
    """Return room for the tokens at both axes: Plotly's own measuring would draw every figure twice."""
    left, top = (max((_width(_short(label)) for label in side.labels), default=0) for side in (queries, keys))
    last = _width(_short(keys.labels[-1])) if len(keys) else 0
    return {"l": 34 + left, "t": 34 + round(0.82 * top), "r": 10 + round(0.57 * last), "b": 46}


def _width(text: str) -> int:
    """Return about how many pixels ``text`` takes as the name of a tick; ideographs and emoji are wide."""
    return sum(14 if unicodedata.east_asian_width(char) in "WF" else 7 for char in text)


def _axis(tokens: Tokens, most: int) -> dict[str, Any]:
    step = max(1, math.ceil(len(tokens) / most))
    names = _names(tokens)
    return {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": names,
        "tickvals": names[::step],
        "ticktext": [_tick(label) for label in tokens.labels[::step]],
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
        "automargin": False,
    }


def _names(tokens: Tokens) -> list[str]:
    return [f"{i} {literal(label)}" for i, label in enumerate(tokens.labels)]


def _tick(label: str) -> str:
    return literal(_short(label))


def _short(label: str) -> str:
    return clip(label, LONGEST_TICK)


def literal(text: str) -> str:
    """Return ``text`` so that Plotly shows it as it is: it knows tags and &amp; &lt; &gt;, but no &quot;."""
    return html.escape(text, quote=False)


def _outline(across: tuple[float, float], query: int) -> dict[str, Any]:
    """Return the outline of a part of the row of ``query``."""
    return rectangle(across, (query - 0.5, query + 0.5), width=2)


def rectangle(across: tuple[float, float], down: tuple[float, float], *, width: int) -> dict[str, Any]:
    """Return the outline of a rectangle in the units of the axes."""
    ends = {"x0": across[0], "x1": across[1], "y0": down[0], "y1": down[1]}
    return {"type": "rect", **ends, "line": {"color": OUTLINE, "width": width}}
