"""Numbers into Plotly figures: pure functions with fixed ranges.

Axes are categories named by place and token, so that a repeated token keeps its row; tokens are escaped,
because Plotly reads its texts as a kind of HTML.
"""

from __future__ import annotations

import html
import math

import numpy as np
import plotly.graph_objects as go

from analysis.maps import AttentionMaps, Floats, Head
from analysis.tokens import Tokens
from dashboard.colours import Stop, attention_scale, colour, difference_scale, root_ticks
from dashboard.text import _

MOST_MARKERS = 1600  # cells that can be clicked; above, a figure would weigh too much
MOST_TICKS = 48
LONGEST_TICK = 14
ATTENTION_TICKS = (0, 0.02, 0.1, 0.25, 0.5, 1)
DIFFERENCE_TICKS = (-1, -0.25, 0, 0.25, 1)
OUTLINE = "#d55e00"
MARGIN = {"l": 10, "r": 10, "t": 10, "b": 10}
QUIET = {"showgrid": False, "zeroline": False, "ticks": ""}


def head_map(one: AttentionMaps, *, query: int | None = None, key: int | None = None) -> go.Figure:
    """Return the heatmap of one head, query x key, with exact values on hover.

    ``one`` holds a single head, [1, 1, query, key]. The row of ``query`` and its cell at ``key`` are
    outlined. Up to 1,600 cells can be clicked: their points are numbered row by row.
    """
    weights = one.weights[0, 0]
    figure = go.Figure(_heat(weights, one.queries, one.keys, attention_scale(), (0, 1)))
    if 0 < weights.size <= MOST_MARKERS:
        figure.add_trace(_markers(weights, one.queries, one.keys))
    figure.add_trace(_bar(attention_stops(), (0, 1), ATTENTION_TICKS, _("attention")))
    _finish_map(figure, one.queries, one.keys)
    if query is not None:
        _outline(figure, (-0.5, len(one.keys) - 0.5), query)
        if key is not None:
            _outline(figure, (key - 0.5, key + 0.5), query)
    return figure


def difference_map(first: AttentionMaps, second: AttentionMaps) -> go.Figure:
    """Return the heatmap of one head minus another, query x key, in -1 to 1: blue where the first is more."""
    values = first.weights[0, 0] - second.weights[0, 0]
    figure = go.Figure(_heat(values, first.queries, first.keys, difference_scale(), (-1, 1)))
    figure.add_trace(_bar(difference_stops(), (-1, 1), DIFFERENCE_TICKS, _("difference")))
    _finish_map(figure, first.queries, first.keys)
    return figure


def all_heads(tiles: np.ndarray, names: list[list[Head]], notes: list[list[str]], chosen: Head) -> go.Figure:
    """Return many heads as small maps in one picture, one heatmap with gutters between.

    tiles: [row, column, query, key] uint8, the roots of the weights as 0 to 254
    names, notes: [row][column] the head of each small map, and what its hover says
    Each map has one point that can be clicked; they are numbered row by row.
    """
    rows, columns, n, m = tiles.shape
    named_by_axes = all(
        head == Head(names[0][0].layer + r, c) for r, row in enumerate(names) for c, head in enumerate(row)
    )
    height, width = n + max(1, n // (10 if named_by_axes else 4)), m + max(1, m // 10)
    picture = np.full((rows * height, columns * width), 255, dtype=np.uint8)
    for row in range(rows):
        for column in range(columns):
            picture[row * height : row * height + n, column * width : column * width + m] = tiles[row, column]
    centres = [
        (c * width + (m - 1) / 2, r * height + (n - 1) / 2) for r in range(rows) for c in range(columns)
    ]
    heads = [head for row in names for head in row]
    figure = go.Figure(
        go.Heatmap(z=picture, zmin=0, zmax=255, colorscale=_tile_scale(), showscale=False, hoverinfo="skip")
    )
    figure.add_trace(
        go.Scatter(
            x=[x for x, _y in centres],
            y=[y for _x, y in centres],
            mode="markers",
            marker={"size": max(12, 560 // max(rows, columns)), "symbol": "square", "opacity": 0},
            hovertext=[_literal(note) for row in notes for note in row],
            hoverinfo="text",
            showlegend=False,
        )
    )
    figure.add_trace(_bar(attention_stops(), (0, 1), ATTENTION_TICKS, _("attention")))
    for (x, y), head in zip(centres, heads, strict=True):
        if head == chosen:
            figure.add_shape(
                type="rect", x0=x - m / 2 - 0.3, x1=x + m / 2 + 0.3, y0=y - n / 2 - 0.3, y1=y + n / 2 + 0.3,
                line={"color": OUTLINE, "width": 3},
            )  # fmt: skip
    figure.update_xaxes(QUIET, range=[-0.5 - m / 40, columns * width - 0.5])
    figure.update_yaxes(QUIET, range=[rows * height - 0.5, -0.5 - (height - n)])
    if named_by_axes:
        _name_by_axes(figure, names, centres)
    else:
        _name_each(figure, names, centres, n)
    figure.update_layout(height=110 + round(rows * min(130, 560 / columns)), margin=MARGIN)
    return figure


def attention_stops() -> list[Stop]:
    """Return the colour bar of `attention_scale`: even steps of the root."""
    return [(i / 16, colour("Viridis", i / 16)) for i in range(17)]


def difference_stops() -> list[Stop]:
    """Return the colour bar of `difference_scale`: even steps of the signed root."""
    return [(i / 16, colour("RdBu", i / 16)) for i in range(17)]


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


def _bar(
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
                "title": {"text": title, "side": "right"},
                "tickvals": root_ticks(ticks),
                "ticktext": [f"{tick:g}".replace("-", "−") for tick in ticks],
                "tickangle": 0,
                "thickness": 10,
                "y": 0,
                "yanchor": "top",
                "ypad": 8,
                "outlinewidth": 0,
            },
        },
    )


def _finish_map(figure: go.Figure, queries: Tokens, keys: Tokens) -> None:
    title = {"text": _("key (looked at)"), "standoff": 6}
    figure.update_xaxes(_axis(keys), tickangle=-55, side="top", title=title, range=[-0.5, len(keys) - 0.5])
    figure.update_yaxes(_axis(queries), title={"text": _("query")}, range=[len(queries) - 0.5, -0.5])
    height = min(max(170 + 20 * len(queries), 300), 430 if len(queries) <= 24 else 760)
    figure.update_layout(height=height, margin=MARGIN)


def _axis(tokens: Tokens) -> dict[str, object]:
    step = max(1, math.ceil(len(tokens) / MOST_TICKS))
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
        "automargin": True,
    }


def _names(tokens: Tokens) -> list[str]:
    return [f"{i} {_literal(label)}" for i, label in enumerate(tokens.labels)]


def _tick(label: str) -> str:
    short = label if len(label) <= LONGEST_TICK else label[: LONGEST_TICK - 1] + "…"
    return _literal(short)


def _literal(text: str) -> str:
    """Return ``text`` so that Plotly shows it as it is: it knows tags and &amp; &lt; &gt;, but no &quot;."""
    return html.escape(text, quote=False)


def _outline(figure: go.Figure, across: tuple[float, float], query: int) -> None:
    figure.add_shape(
        type="rect", x0=across[0], x1=across[1], y0=query - 0.5, y1=query + 0.5,
        line={"color": OUTLINE, "width": 2},
    )  # fmt: skip


def _tile_scale() -> list[tuple[float, str]]:
    """Viridis over 0 to 254, then nothing: 255 is the gutter."""
    last = 254 / 255
    stops = [(share * last, shade) for share, shade in attention_stops()]
    return [*stops, (254.5 / 255, "rgba(0,0,0,0)"), (1.0, "rgba(0,0,0,0)")]


def _name_by_axes(figure: go.Figure, names: list[list[Head]], centres: list[tuple[float, float]]) -> None:
    """Heads across, layers down: the axes name them, as in the grid."""
    columns = len(names[0])
    figure.update_xaxes(
        side="top",
        tickvals=[x for x, _y in centres[:columns]],
        ticktext=[f"H{head.index}" for head in names[0]],
    )
    figure.update_yaxes(
        tickvals=[y for _x, y in centres[::columns]],
        ticktext=[f"L{row[0].layer}" for row in names],
    )


def _name_each(
    figure: go.Figure, names: list[list[Head]], centres: list[tuple[float, float]], n: int
) -> None:
    """The heads of one layer in rows: each map carries its name above it."""
    figure.update_xaxes(showticklabels=False)
    figure.update_yaxes(showticklabels=False)
    heads = [head for row in names for head in row]
    for (x, y), head in zip(centres, heads, strict=True):
        figure.add_annotation(x=x, y=y - n / 2, text=str(head), yanchor="bottom", showarrow=False)
