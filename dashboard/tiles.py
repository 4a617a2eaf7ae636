"""Many heads as small maps in one figure: one heatmap with gutters, never a subplot a head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from analysis.maps import Head
from dashboard.cache import NOTHING
from dashboard.colours import attention_stops
from dashboard.figures import ATTENTION_TICKS, MARGIN, colour_bar, literal, rectangle
from dashboard.text import _

GUTTER = NOTHING  # the value between small maps; weights are 0 to 254
QUIET: dict[str, Any] = {"showgrid": False, "zeroline": False, "ticks": ""}


@dataclass(frozen=True)
class Tiling:
    """Where the small maps stand: ``rows`` x ``columns`` of n x m cells, a gutter after each."""

    rows: int
    columns: int
    n: int
    m: int
    below: int  # rows of the gutter, wide enough for names where each map carries its own
    right: int

    def centre(self, place: int) -> tuple[float, float]:
        """Return x and y of the middle of the map at ``place``, counted row by row."""
        row, column = divmod(place, self.columns)
        return column * (self.m + self.right) + (self.m - 1) / 2, row * (self.n + self.below) + (
            self.n - 1
        ) / 2


def all_heads(tiles: np.ndarray, names: list[list[Head]], notes: list[list[str]], chosen: Head) -> go.Figure:
    """Return many heads as small maps in one picture.

    tiles: [row, column, query, key] uint8, the roots of the weights as 0 to 254
    names, notes: [row][column] the head of each small map, and what its hover says
    Each map has one point that can be clicked; they are numbered row by row.
    """
    rows, columns, n, m = tiles.shape
    as_grid = all(
        head == Head(names[0][0].layer + row, column)
        for row, heads in enumerate(names)
        for column, head in enumerate(heads)
    )
    tiling = Tiling(rows, columns, n, m, max(1, n // (10 if as_grid else 4)), max(1, m // 10))
    traces = [
        go.Heatmap(
            z=_picture(tiles, tiling),
            zmin=0,
            zmax=255,
            colorscale=_scale(),
            showscale=False,
            hoverinfo="skip",
        ),
        _points(tiling, [note for row in notes for note in row]),
        colour_bar(attention_stops(), (0, 1), ATTENTION_TICKS, _("attention")),
    ]
    heads = [head for row in names for head in row]
    outlines = [_outline(tiling, place) for place, head in enumerate(heads) if head == chosen]
    layout = _named_by_axes(tiling, names) if as_grid else _named_each(tiling, heads)
    height = 110 + round(rows * min(130, 560 / columns))
    return go.Figure(traces, layout | {"shapes": outlines, "height": height, "margin": MARGIN})


def _picture(tiles: np.ndarray, tiling: Tiling) -> np.ndarray:
    """Return all maps in one array, each padded below and to the right with the gutter's value."""
    padding = ((0, 0), (0, 0), (0, tiling.below), (0, tiling.right))
    padded = np.pad(tiles, padding, constant_values=GUTTER)  # [row, column, query, key]
    rows, columns, height, width = padded.shape
    return padded.transpose(0, 2, 1, 3).reshape(rows * height, columns * width)


def _points(tiling: Tiling, notes: list[str]) -> go.Scatter:
    """A transparent point over each map: Plotly reports clicks on points, not on heatmaps."""
    centres = [tiling.centre(place) for place in range(tiling.rows * tiling.columns)]
    return go.Scatter(
        x=[x for x, _y in centres],
        y=[y for _x, y in centres],
        mode="markers",
        marker={"size": max(12, 560 // max(tiling.rows, tiling.columns)), "symbol": "square", "opacity": 0},
        selected={"marker": {"opacity": 0}},
        unselected={"marker": {"opacity": 0}},
        hovertext=[literal(note) for note in notes],
        hoverinfo="text",
        showlegend=False,
    )


def _outline(tiling: Tiling, place: int) -> dict[str, Any]:
    x, y = tiling.centre(place)
    half = tiling.m / 2 + 0.3, tiling.n / 2 + 0.3
    return rectangle((x - half[0], x + half[0]), (y - half[1], y + half[1]), width=3)


def _axes(tiling: Tiling) -> tuple[dict[str, Any], dict[str, Any]]:
    across = tiling.columns * (tiling.m + tiling.right)
    down = tiling.rows * (tiling.n + tiling.below)
    return (
        QUIET | {"range": [-0.5 - tiling.m / 40, across - 0.5]},
        QUIET | {"range": [down - 0.5, -0.5 - tiling.below]},
    )


def _named_by_axes(tiling: Tiling, names: list[list[Head]]) -> dict[str, Any]:
    """Heads across, layers down: the axes name them, as in the grid."""
    x, y = _axes(tiling)
    places = range(tiling.columns), range(0, tiling.rows * tiling.columns, tiling.columns)
    x |= {
        "side": "top",
        "tickvals": [tiling.centre(place)[0] for place in places[0]],
        "ticktext": [f"H{head.index}" for head in names[0]],
    }
    y |= {
        "tickvals": [tiling.centre(place)[1] for place in places[1]],
        "ticktext": [f"L{row[0].layer}" for row in names],
    }
    return {"xaxis": x, "yaxis": y}


def _named_each(tiling: Tiling, heads: list[Head]) -> dict[str, Any]:
    """The heads of one layer in rows: each map carries its name above it."""
    x, y = _axes(tiling)
    names = []
    for place, head in enumerate(heads):
        middle, centre = tiling.centre(place)
        top = centre - tiling.n / 2
        names.append({"x": middle, "y": top, "text": str(head), "yanchor": "bottom", "showarrow": False})
    hidden = {"showticklabels": False}
    return {"xaxis": x | hidden, "yaxis": y | hidden, "annotations": names}


def _scale() -> list[tuple[float, str]]:
    """Viridis over 0 to 254, then nothing: 255 is the gutter."""
    last = (GUTTER - 1) / GUTTER
    stops = [(share * last, shade) for share, shade in attention_stops()]
    return [*stops, ((GUTTER - 0.5) / GUTTER, "rgba(0,0,0,0)"), (1.0, "rgba(0,0,0,0)")]
