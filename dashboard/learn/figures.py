"""The numbers of the Learn pages as Plotly figures: pure functions, with the values written in while they fit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.colors import qualitative

from analysis.maps import Floats
from dashboard.colours import attention_scale, colour, difference_scale, ink
from dashboard.figures import MARGIN, literal, rectangle
from dashboard.text import _, decimals, written

MOST_WRITTEN = 12  # columns whose values are still written into their cells
MOST_NAMED = 40
COLOURS = qualitative.Safe
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
ROW, TITLE = 26, 56  # pixels of a row of a matrix, and of what stands over it
GAP = 0.13  # between two matrices, a share of the width


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix to draw.

    rows, columns: their names; None for their numbers
    shares: whether the values are weights of 0 to 1; else they are coloured around 0
    chosen: the row that is outlined
    """

    title: str
    values: Floats
    rows: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    shares: bool = False
    chosen: int | None = None


def matrices(items: Sequence[Matrix], across: int = 2, *, digits: int = 3) -> go.Figure:
    """Return matrices beside and below each other, ``across`` in a row."""
    across = min(across, len(items))
    rows = [items[start : start + across] for start in range(0, len(items), across)]
    widths = [max(row[i].values.shape[1] + 1 for row in rows if i < len(row)) for i in range(across)]
    pixels = [ROW * max(*(item.values.shape[0] for item in row), 2) for row in rows]
    total = sum(pixels) + TITLE * len(rows)
    traces: list[go.Heatmap] = []
    texts: list[go.Scatter] = []
    layout: dict[str, Any] = {"shapes": [], "annotations": []}
    top = float(total)
    for row, height in zip(rows, pixels, strict=True):
        top -= TITLE
        left = 0.0
        for item, width in zip(row, widths, strict=False):
            share = width / sum(widths) * (1 - GAP * (across - 1))
            place = f"{len(traces) + 1}" if traces else ""
            _add(layout, item, place, (left, left + share), ((top - height) / total, top / total))
            traces.append(_heat(item, place))
            if item.values.shape[1] * across <= MOST_WRITTEN + 4:
                texts += _written(item, place, digits)
            left += share + GAP
        top -= height
    return go.Figure(
        [*traces, *texts], layout | {"height": total + 16, "margin": {"l": 10, "r": 10, "t": 8, "b": 8}}
    )


def _add(
    layout: dict[str, Any],
    item: Matrix,
    place: str,
    across: tuple[float, float],
    down: tuple[float, float],
) -> None:
    """Add the axes, the title and the outline of a matrix to a layout."""
    n, m = item.values.shape
    quiet: dict[str, Any] = {"showgrid": False, "zeroline": False, "ticks": ""}
    layout[f"xaxis{place}"] = (
        quiet
        | {"side": "top", "range": [-0.5, m - 0.5], "tickangle": 0 if m <= 8 else -55}
        | {"domain": list(across), "anchor": f"y{place}"}
        | _ticks(_names(item.columns, m))
    )
    layout[f"yaxis{place}"] = (
        quiet
        | {"range": [n - 0.5, -0.5], "domain": list(down), "anchor": f"x{place}"}
        | _ticks(_names(item.rows, n))
    )
    layout["annotations"].append(
        {
            "text": f"<b>{literal(item.title)}</b>",
            "x": across[0],
            "y": down[1],
            "xref": "paper",
            "yref": "paper",
            "xanchor": "left",
            "yanchor": "bottom",
            "yshift": 20 if m <= 8 else 34,
            "showarrow": False,
            "font": {"size": 13},
        }
    )
    if item.chosen is not None and item.chosen < n:
        chosen = rectangle((-0.5, m - 0.5), (item.chosen - 0.5, item.chosen + 0.5), width=2)
        layout["shapes"].append(chosen | {"xref": f"x{place}", "yref": f"y{place}"})


def _limits(item: Matrix) -> tuple[float, float]:
    """Return the ends of a matrix's colours."""
    most = float(np.abs(item.values[np.isfinite(item.values)]).max(initial=0)) or 1.0
    return (0.0, 1.0) if item.shares else (-most, most)


def _written(item: Matrix, place: str, digits: int) -> list[go.Scatter]:
    """Return the values of a matrix as text, in the ink that can be read on each cell; nothing where there are many."""
    n, m = item.values.shape
    if m > MOST_WRITTEN or n > 2 * MOST_WRITTEN:
        return []
    low, high = _limits(item)
    rows, columns = np.indices((n, m))
    values = [float(value) for value in item.values.ravel()]
    inks = []
    for value in values:
        share = (value - low) / (high - low) if np.isfinite(value) else 0.5
        if item.shares:
            fill = colour("Viridis", share**0.5)
        else:
            fill = colour("RdBu", 0.5 + math.copysign(abs(2 * share - 1) ** 0.5, share - 0.5) / 2)
        inks.append(ink(fill) if np.isfinite(value) else "grey")
    return [
        go.Scatter(
            x=columns.ravel(),
            y=rows.ravel(),
            xaxis=f"x{place}",
            yaxis=f"y{place}",
            mode="text",
            text=[_cell(value, digits) for value in values],
            textfont={"size": 11, "color": inks},
            hoverinfo="skip",
            showlegend=False,
        )
    ]


def _heat(item: Matrix, place: str) -> go.Heatmap:
    values = np.asarray(item.values, dtype=float)
    n, m = values.shape
    shown = np.where(np.isfinite(values), values, np.nan)
    low, high = _limits(item)
    columns, rows = _names(item.columns, m), _names(item.rows, n)
    return go.Heatmap(
        z=shown,
        xaxis=f"x{place}",
        yaxis=f"y{place}",
        zmin=low,
        zmax=high,
        colorscale=attention_scale() if item.shares else difference_scale(),
        showscale=False,
        xgap=1,
        ygap=1,
        customdata=[[f"{query} → {name}" for name in columns] for query in rows],
        hovertemplate="%{customdata}: %{z:.4f}<extra></extra>",
    )


def _names(given: Sequence[str] | None, count: int) -> list[str]:
    return [str(i) for i in range(count)] if given is None else [literal(name) for name in given]


def _cell(value: float, digits: int) -> str:
    if np.isinf(value):
        return "−∞" if value < 0 else "∞"
    said = decimals(value, digits)
    zero = decimals(0, digits)
    return (zero if said == f"-{zero}" else said).replace("-", "−")


def _ticks(names: Sequence[str]) -> dict[str, Any]:
    step = max(1, len(names) // MOST_NAMED)
    places = list(range(0, len(names), step))
    return {"tickvals": places, "ticktext": [names[i] for i in places]}


@dataclass(frozen=True, eq=False)
class Line:
    """A line of a chart; ``marked`` writes points as well."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    marked: bool = True


def lines(
    items: Sequence[Line],
    *,
    x: str,
    y: str,
    logarithmic: tuple[bool, bool] = (False, False),
    mark: float | None = None,
    low: float | None = 0,
    height: int = 300,
) -> go.Figure:
    """Return lines told apart by colour and dashes.

    x, y: names of the axes
    logarithmic: of x and of y
    mark: where an upright line stands
    low: where y begins, None for what the values ask
    """
    traces = [
        go.Scatter(
            x=list(item.x),
            y=list(item.y),
            name=literal(item.name),
            mode="lines+markers" if item.marked else "lines",
            line={"color": colour, "dash": dash, "width": 2.5},
            hovertemplate="%{x}: %{y:.4g}<extra>%{fullData.name}</extra>",
        )
        for item, colour, dash in zip(items, itertools.cycle(COLOURS), itertools.cycle(DASHES), strict=False)
    ]
    figure = go.Figure(traces)
    figure.update_xaxes(title=x, type="log" if logarithmic[0] else "linear")
    figure.update_yaxes(title=y, type="log" if logarithmic[1] else "linear")
    if logarithmic[1]:
        values = [value for item in items for value in item.y]
        powers = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
        named = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
        figure.update_yaxes(tickvals=named, ticktext=[written(f"{value:,g}") for value in named])
    if low is not None and not logarithmic[1]:
        figure.update_yaxes(rangemode="tozero")
    if logarithmic[0] and items:
        figure.update_xaxes(tickvals=list(items[0].x), ticktext=[f"{value:g}" for value in items[0].x])
    if mark is not None:
        figure.add_vline(x=mark, line_dash="dot", line_color="#d55e00")
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
    return figure.update_layout(height=height, margin=MARGIN, legend=legend, showlegend=len(items) > 1)


def bars(
    names: Sequence[str], values: Sequence[float], *, x: str, hollow: Sequence[bool] | None = None
) -> go.Figure:
    """Return horizontal bars with their values; ``hollow`` ones are hatched, such as heads that are off."""
    away = hollow or [False] * len(names)
    figure = go.Figure(
        go.Bar(
            x=list(values),
            y=[literal(name) for name in names],
            orientation="h",
            text=[decimals(value, 3).replace("-", "−") for value in values],
            textposition="outside",
            cliponaxis=False,
            marker={
                "color": ["rgba(128,128,128,.25)" if one else COLOURS[1] for one in away],
                "pattern": {"shape": ["/" if one else "" for one in away]},
            },
            hovertemplate="%{y}: %{x:.4f}<extra></extra>",
        )
    )
    ends = [min(0.0, *values), max(0.0, *values)]
    room = 0.15 * ((ends[1] - ends[0]) or 1.0)
    figure.update_xaxes(title=x, range=[ends[0] - (room if ends[0] < 0 else 0), ends[1] + room])
    figure.update_yaxes(autorange="reversed", type="category", dtick=1)
    return figure.update_layout(height=90 + 28 * len(names), margin=MARGIN)


def blocks(values: Floats, bounds: Sequence[tuple[int, int]], names: Sequence[str], chosen: int) -> go.Figure:
    """Return contexts [query, model] side by side, each head's columns in a frame with its name."""
    most = float(np.abs(values).max()) or 1.0
    figure = go.Figure(
        go.Heatmap(
            z=values,
            zmin=-most,
            zmax=most,
            colorscale=difference_scale(),
            showscale=False,
            hovertemplate=_("dimension") + " %{x}: %{z:.3f}<extra></extra>",
        )
    )
    n, m = values.shape
    figure.update_layout(
        shapes=[
            *(rectangle((low - 0.5, high - 0.5), (-0.5, n - 0.5), width=2) for low, high in bounds),
            rectangle((-0.5, m - 0.5), (chosen - 0.5, chosen + 0.5), width=1),
        ],
        annotations=[
            {
                "x": (low + high - 1) / 2,
                "y": -0.5,
                "text": f"{head + 1}",
                "yanchor": "bottom",
                "yshift": 18,
                "showarrow": False,
            }
            for head, (low, high) in enumerate(bounds)
        ],
        height=90 + 34 * n,
        margin={"l": 10, "r": 10, "t": 44, "b": 10},
    )
    quiet: dict[str, Any] = {"showgrid": False, "zeroline": False, "ticks": ""}
    figure.update_xaxes(
        quiet | {"side": "top", "tickvals": [low for low, _high in bounds], "range": [-0.5, m - 0.5]}
    )
    figure.update_yaxes(quiet | {"range": [n - 0.5, -0.5]} | _ticks([literal(name) for name in names]))
    return figure
