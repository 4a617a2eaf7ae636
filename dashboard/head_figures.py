"""Figures of many heads at once: one head against all others, the map of heads, their distances, the layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from analysis.findings import HeadStatistics
from analysis.findings import interval as ends_of
from analysis.maps import Floats, Head
from analysis.tokens import Bools, Ints
from dashboard.colours import colour
from dashboard.figures import MARGIN, OUTLINE, literal
from dashboard.naming import BITS, TOKENS, interval, measure_name, number
from dashboard.text import _

OTHERS = "#8a8f98"  # grey that can be seen on light and on dark
SECOND = "#0072b2"
MOST_DOTS = 2_500  # points of a figure; above, the heads are drawn as ranges
MOST_NAMES = 24  # heads named along an axis
QUIET: dict[str, Any] = {"showgrid": False, "zeroline": False, "ticks": ""}


@dataclass(frozen=True, eq=False)
class Side:
    """One head of what was found, and what it is called beside another."""

    found: HeadStatistics
    head: Head
    name: str


def share_measures(found: HeadStatistics) -> list[str]:
    """Return the measures between 0 and 1 that any head has on these texts."""
    kept = [name for name in found.names if name not in BITS + TOKENS]
    return [name for name in kept if np.nanmax(np.append(np.abs(found.table(name)), 0)) > 0]


def profile(found: HeadStatistics, chosen: Sequence[Side]) -> go.Figure:
    """Return every measure between 0 and 1, a row each: all heads of ``found`` in grey, one or two chosen."""
    names = share_measures(found)
    labels = [measure_name(name) for name in names]
    tables = np.stack([found.table(name).ravel() for name in names])  # [measure, head]
    traces = [_all_heads(tables, labels)]
    for side, shade, symbol in zip(chosen, (OUTLINE, SECOND), ("diamond", "circle"), strict=False):
        traces.append(_one_head(side, names, labels, shade, symbol))
    layout = {
        "xaxis": {"range": [-0.03, 1.03], "side": "top", "ticks": "", "zeroline": False},
        "yaxis": {"type": "category", "categoryorder": "array", "categoryarray": labels[::-1], "ticks": ""},
        "height": 46 + 21 * len(names),
        "margin": {"l": 205, "r": 12, "t": 24, "b": 4},
        "showlegend": False,
        "hovermode": "closest",
    }
    return go.Figure(traces, layout)


def _all_heads(tables: Floats, labels: Sequence[str]) -> go.Scatter:
    if tables.size <= MOST_DOTS:
        y = [label for label in labels for _head in range(tables.shape[1])]
        return go.Scatter(
            x=tables.ravel().astype(np.float32),
            y=y,
            mode="markers",
            marker={"size": 6, "color": OTHERS, "opacity": 0.35},
            hoverinfo="skip",
        )
    x: list[float | None] = []
    y = []
    for row, label in zip(tables, labels, strict=True):
        x += [float(np.nanmin(row)), float(np.nanmax(row)), None]
        y += [label, label, label]
    return go.Scatter(
        x=x, y=y, mode="lines", line={"width": 7, "color": OTHERS}, opacity=0.45, hoverinfo="skip"
    )


def _one_head(side: Side, names: Sequence[str], labels: Sequence[str], shade: str, symbol: str) -> go.Scatter:
    found, head = side.found, side.head
    at = [found.names.index(name) for name in names]
    mean, low, high = (table[at, head.layer, head.index] for table in (found.mean, found.low, found.high))
    notes = []
    for i, name in enumerate(names):
        others = found.table(name).ravel()
        below = int((others < mean[i]).sum())
        notes.append(
            _("{head}: {value} · more than {below} of {all} other heads").format(
                head=side.name,
                value=interval(mean[i], low[i], high[i]),
                below=below,
                all=int((~np.isnan(others)).sum()) - 1,
            )
        )
    return go.Scatter(
        x=mean,
        y=list(labels),
        mode="markers",
        name=side.name,
        marker={"size": 11, "color": shade, "symbol": symbol, "line": {"width": 1, "color": "#ffffff"}},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": np.nan_to_num(high - mean),
            "arrayminus": np.nan_to_num(mean - low),
            "color": shade,
            "thickness": 2,
            "width": 4,
        },
        hovertext=notes,
        hovertemplate="%{hovertext}<extra></extra>",
    )


def head_map_2d(
    points: Floats, layers: int, heads: int, letters: Sequence[str], notes: Sequence[str], chosen: Head
) -> go.Figure:
    """Return the map of heads: near ones do alike; colour is the layer, a letter the role.

    points: [head, 2], heads counted layer by layer; NaN for those that are not drawn
    """
    each = [Head(*divmod(i, heads)) for i in range(layers * heads)]
    shades = [colour("Viridis", head.layer / max(layers - 1, 1)) for head in each]
    outlined = [head == chosen for head in each]
    every = go.Scatter(
        x=points[:, 0],
        y=points[:, 1],
        mode="markers+text",
        text=list(letters),
        textposition="top center",
        marker={
            "size": [15 if is_chosen else 11 for is_chosen in outlined],
            "color": shades,
            "line": {
                "width": [3 if is_chosen else 1 for is_chosen in outlined],
                "color": [OUTLINE if is_chosen else OTHERS for is_chosen in outlined],
            },
        },
        selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 1}},
        hovertext=[literal(note) for note in notes],
        hovertemplate="%{hovertext}<extra></extra>",
        showlegend=False,
    )
    hidden = QUIET | {"showticklabels": False}
    layout = {
        "xaxis": hidden,
        "yaxis": hidden | {"scaleanchor": "x", "scaleratio": 1},
        "height": 430,
        "margin": MARGIN,
    }
    return go.Figure([every, _layer_bar(layers)], layout)


def _layer_bar(layers: int) -> go.Scatter:
    step = max(1, math.ceil(layers / 12))
    return go.Scatter(
        x=[None],
        y=[None],
        mode="markers",
        hoverinfo="skip",
        showlegend=False,
        marker={
            "color": [0],
            "cmin": 0,
            "cmax": max(layers - 1, 1),
            "colorscale": [[i / 16, colour("Viridis", i / 16)] for i in range(17)],
            "showscale": True,
            "colorbar": {
                "orientation": "h",
                "title": {"text": _("layer") + "\u2002", "side": "right"},
                "tickvals": list(range(0, layers, step)),
                "thickness": 10,
                "y": 0,
                "yanchor": "top",
                "outlinewidth": 0,
            },
        },
    )


def distance_matrix(distances: Floats, order: Ints, heads: int) -> go.Figure:
    """Return the distances between all heads in bits, rows and columns in the order of their clusters."""
    names = [str(Head(*divmod(int(i), heads))) for i in order]
    step = max(1, math.ceil(len(names) / MOST_NAMES))
    axis = {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": names,
        "tickvals": names[::step],
        "ticktext": names[::step],
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
    }
    picture = go.Heatmap(
        z=np.ascontiguousarray(distances[np.ix_(order, order)], dtype=np.float32),
        x=names,
        y=names,
        zmin=0,
        zmax=1,
        colorscale=[[i / 16, colour("Viridis", 1 - i / 16)] for i in range(17)],
        colorbar={"orientation": "h", "thickness": 10, "y": 0, "yanchor": "top", "outlinewidth": 0,
                  "title": {"text": _("distance (bits)"), "side": "right"}},
        hovertemplate="%{y} – %{x}: %{z:.3f}<extra></extra>",
    )  # fmt: skip
    layout = {
        "xaxis": axis | {"side": "top", "tickangle": -60},
        "yaxis": axis | {"range": [len(names) - 0.5, -0.5]},
        "height": 470,
        "margin": {"l": 54, "r": 10, "t": 52, "b": 10},
    }
    return go.Figure([picture], layout)


def by_layer(found: HeadStatistics, name: str, chosen: Head) -> go.Figure:
    """Return one measure by layer: every head a dot, the layer's mean a line with its 95% interval."""
    table = found.table(name)
    limits = {} if name in BITS + TOKENS else {"range": [-0.02, 1.02]}
    quiet = {"ticks": "", "zeroline": False}
    layout = {
        "xaxis": {"title": {"text": _("layer")}, "dtick": max(1, len(table) // 12), **quiet},
        "yaxis": {"title": {"text": measure_name(name)}, **quiet, **limits},
        "height": 400,
        "margin": {"l": 60, "r": 10, "t": 10, "b": 40},
    }
    return go.Figure([_dots_by_layer(table, chosen), _means_by_layer(found, name)], layout)


def _means_by_layer(found: HeadStatistics, name: str) -> go.Scatter:
    table = found.table(name)  # a measure is defined for all heads that are there or for none
    there = ~found.gone
    replicates = found.replicates[:, found.names.index(name)].astype(np.float64)
    low, high = ends_of(_mean(replicates, there))
    mean = _mean(table, there)
    said = _("layer {layer}: mean {value}, spread over its heads {low} to {high}")
    notes = [
        said.format(
            layer=i,
            value=interval(mean[i], low[i], high[i]),
            low=number(float(np.fmin.reduce(row))),
            high=number(float(np.fmax.reduce(row))),
        )
        for i, row in enumerate(table)
    ]
    ends = {"type": "data", "symmetric": False, "array": high - mean, "arrayminus": mean - low}
    return go.Scatter(
        x=list(range(len(table))),
        y=mean,
        mode="lines+markers",
        line={"color": SECOND, "width": 2},
        marker={"size": 7, "symbol": "square"},
        error_y=ends | {"color": SECOND, "thickness": 2, "width": 5},
        hovertext=notes,
        hovertemplate="%{hovertext}<extra></extra>",
        showlegend=False,
    )


def _mean(tables: Floats, there: Bools) -> Floats:
    """Return the means [..., layer] of tables [..., layer, head] over the heads that are there; NaN where none is."""
    count = there.sum(axis=-1)
    return np.where(there, tables, 0.0).sum(axis=-1) / np.where(count, count, np.nan)


def _dots_by_layer(table: Floats, chosen: Head) -> go.Scatter:
    """Return a dot for every head, numbered layer by layer, the heads of a layer beside each other."""
    heads = table.shape[1]
    each = [Head(*divmod(i, heads)) for i in range(table.size)]
    is_chosen = [head == chosen for head in each]
    return go.Scatter(
        x=[head.layer + (head.index - (heads - 1) / 2) / heads * 0.5 for head in each],
        y=table.ravel(),
        mode="markers",
        marker={
            "size": [11 if one else 7 for one in is_chosen],
            "symbol": ["diamond" if one else "circle" for one in is_chosen],
            "color": [OUTLINE if one else OTHERS for one in is_chosen],
            "opacity": [1 if one else 0.6 for one in is_chosen],
        },
        selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 0.6}},
        hovertext=[
            f"{head}: {number(float(value))}" for head, value in zip(each, table.ravel(), strict=True)
        ],
        hovertemplate="%{hovertext}<extra></extra>",
        showlegend=False,
    )
