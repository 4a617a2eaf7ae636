"""The curves of pruning in one figure: the score against the heads that are left, random orders as a band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dashboard.figures import OUTLINE
from dashboard.head_figures import OTHERS
from dashboard.naming import interval, metric_name, order_name
from dashboard.text import _

if TYPE_CHECKING:
    from analysis.curves import Curve
    from analysis.trial import Band

# Okabe and Ito's colours, the orange of what is chosen left out; each order has its own dash too.
SHADES = ("#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8a6d00", "#5b5bd6")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")


def curves_figure(curves: Sequence[Curve], random: Band | None, chosen: int, at: int) -> go.Figure:
    """Return the curves over the share of heads that is gone, with the 95% intervals of their paired changes.

    A point is chosen:

    chosen: which curve; at: which of its steps
    """
    traces: list[Any] = []
    if random is not None:
        traces += _band(random)
    named = [i for i, one in enumerate(curves) if one.path.order != "random"]
    for number, i in enumerate(named):
        traces.append(_curve(curves[i], number))
    one = curves[chosen]
    traces.append(
        go.Scatter(
            x=[100 * one.share[at]],
            y=[one.score[at]],
            mode="markers",
            marker={"size": 15, "symbol": "circle-open", "color": OUTLINE, "line": {"width": 3}},
            hoverinfo="skip",
            showlegend=False,
        )
    )
    whole = curves[0].whole
    layout = {
        "xaxis": {
            "title": {"text": _("heads removed (%)")},
            "range": [-2, 102],
            "ticks": "",
            "zeroline": False,
        },
        "yaxis": {"title": {"text": metric_name(curves[0].metric)}, "ticks": "", "zeroline": False},
        "shapes": [
            {
                "type": "line",
                "x0": 0,
                "x1": 100,
                "y0": whole,
                "y1": whole,
                "line": {"dash": "dot", "width": 1, "color": OTHERS},
            }
        ],
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "height": 360,
        "margin": {"l": 70, "r": 10, "t": 30, "b": 44},
    }
    return go.Figure(traces, layout)


def _curve(one: Curve, number: int) -> go.Scatter:
    shade = SHADES[number % len(SHADES)]
    delta, low, high = (
        np.append(0.0, part) for part in (one.changes.delta, one.changes.low, one.changes.high)
    )
    notes = [
        _("{order}: {removed} of {all} heads gone, {score}, change {change}").format(
            order=order_name(one.path.order),
            removed=int(one.path.removed[i]),
            all=one.path.there,
            score=interval(float(one.score[i]), float(one.low[i]), float(one.high[i])),
            change=interval(float(delta[i]), float(low[i]), float(high[i])),
        )
        for i in range(len(one.score))
    ]
    return go.Scatter(
        x=100 * one.share,
        y=one.score,
        mode="lines+markers",
        name=order_name(one.path.order),
        line={"color": shade, "width": 2.5, "dash": DASHES[number % len(DASHES)]},
        marker={"size": 8, "symbol": SYMBOLS[number % len(SYMBOLS)]},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": np.nan_to_num(high - delta),
            "arrayminus": np.nan_to_num(delta - low),
            "thickness": 1,
            "width": 3,
            "color": shade,
        },
        hovertext=notes,
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _band(random: Band) -> list[go.Scatter]:
    """Return the range of the random orders and their mean."""
    x = 100 * np.concatenate([random.share, random.share[::-1]])
    y = np.concatenate([random.high, random.low[::-1]])
    name = _("random ({count})").format(count=random.count)
    return [
        go.Scatter(
            x=x,
            y=y,
            fill="toself",
            fillcolor="rgba(138,143,152,0.28)",
            line={"width": 0},
            hoverinfo="skip",
            name=name,
        ),
        go.Scatter(
            x=100 * random.share,
            y=random.mean,
            mode="lines",
            line={"color": OTHERS, "width": 1.5, "dash": "dot"},
            hovertemplate=_("random, mean: %{y:.4f}") + "<extra></extra>",
            showlegend=False,
        ),
    ]
