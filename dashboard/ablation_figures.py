"""Figures of ablation: changes ranked, with their intervals; and a number of every head against its change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from analysis.maps import Floats
from analysis.tokens import Bools
from dashboard.figures import OUTLINE, literal
from dashboard.head_figures import OTHERS, SECOND
from dashboard.text import _

MOST_NAMES = 24  # of bars that are named along the axis
QUIET: dict[str, Any] = {"ticks": "", "zeroline": True, "zerolinewidth": 1}


def ranked(
    names: Sequence[str],
    delta: Floats,
    low: Floats,
    high: Floats,
    noise: Bools,
    notes: Sequence[str],
    *,
    chosen: int | None,
    axis: str,
) -> go.Figure:
    """Return changes [variant] as bars with their 95% intervals, the worst first; pale where smaller than noise.

    The points are numbered as they stand: `order` gives the variant of each.
    """
    at = order(delta)
    shades = [OUTLINE if i == chosen else OTHERS if noise[i] else SECOND for i in at]
    step = max(1, math.ceil(len(at) / MOST_NAMES))
    labels = [literal(names[i]) for i in at]
    bars = go.Bar(
        x=labels,
        y=delta[at],
        marker={"color": shades, "opacity": [0.45 if noise[i] else 1 for i in at]},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": np.maximum(high - delta, 0)[at],
            "arrayminus": np.maximum(delta - low, 0)[at],
            "thickness": 1,
            "width": 2 if len(at) <= MOST_NAMES else 0,
            "color": OTHERS,
        },
        hovertext=[literal(notes[i]) for i in at],
        hovertemplate="%{hovertext}<extra></extra>",
        selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 0.8}},
        showlegend=False,
    )
    layout = {
        "xaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": labels,
            "tickvals": labels[::step],
            "tickangle": -60,
            "ticks": "",
        },
        "yaxis": {"title": {"text": axis}, **QUIET},
        "height": 360,
        "margin": {"l": 70, "r": 10, "t": 10, "b": 64},
    }
    return go.Figure([bars], layout)


def order(delta: Floats) -> list[int]:
    """Return the variants from the worst change to the best, those without one last."""
    return np.argsort(delta, kind="stable").tolist()


def against(
    x: Floats,
    delta: Floats,
    notes: Sequence[str],
    letters: Sequence[str],
    noise: Bools,
    *,
    chosen: int | None,
    axes: tuple[str, str],
) -> go.Figure:
    """Return a number of every head [head] against its change: full where it is more than noise, hollow where not."""
    colours = [OUTLINE if i == chosen else OTHERS if pale else SECOND for i, pale in enumerate(noise)]
    dots = go.Scatter(
        x=x,
        y=delta,
        mode="markers+text",
        text=list(letters),
        textposition="top center",
        textfont={"size": 10},
        marker={
            "size": [13 if i == chosen else 9 for i in range(len(x))],
            "symbol": [
                ("diamond" if i == chosen else "circle") + ("-open" if pale else "")
                for i, pale in enumerate(noise)
            ],
            "color": colours,
            "line": {"width": 1.5},
        },
        selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 1}},
        hovertext=[literal(note) for note in notes],
        hovertemplate="%{hovertext}<extra></extra>",
        showlegend=False,
    )
    layout = {
        "xaxis": {"title": {"text": axes[0]}, **QUIET},
        "yaxis": {"title": {"text": axes[1]}, **QUIET},
        "height": 380,
        "margin": {"l": 70, "r": 10, "t": 10, "b": 44},
    }
    return go.Figure([dots], layout)


def layer_bars(
    names: Sequence[str], delta: Floats, low: Floats, high: Floats, noise: Bools, axis: str
) -> go.Figure:
    """Return the change of each layer that keeps one head, in the order of the layers."""
    bars = go.Bar(
        x=[literal(name) for name in names],
        y=delta,
        marker={
            "color": [OTHERS if pale else SECOND for pale in noise],
            "opacity": [0.45 if pale else 1 for pale in noise],
        },
        error_y={
            "type": "data",
            "symmetric": False,
            "array": np.maximum(high - delta, 0),
            "arrayminus": np.maximum(delta - low, 0),
            "thickness": 1.5,
            "width": 5,
            "color": OTHERS,
        },
        hovertemplate=_("%{x} kept: %{y:.4f}") + "<extra></extra>",
        showlegend=False,
    )
    layout = {
        "xaxis": {"type": "category", "ticks": ""},
        "yaxis": {"title": {"text": axis}, **QUIET},
        "height": 320,
        "margin": {"l": 70, "r": 10, "t": 10, "b": 40},
    }
    return go.Figure([bars], layout)
