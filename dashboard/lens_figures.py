"""The figure of why a query looks at a key: two vectors, and their products by dimension."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from analysis.maps import Floats
from dashboard.colours import colour
from dashboard.text import _

MORE, LESS = "#0072b2", "#d55e00"


def why_figure(query: Floats, key: Floats, products: Floats) -> go.Figure:
    """Return the vectors of a query and a key as strips, and below each dimension its product as a bar.

    query, key, products: [head_dim]; the products sum to the score. A bar upwards draws the query to the key.
    """
    most = float(max(np.abs(query).max(), np.abs(key).max(), 1e-9))
    dims = list(range(len(products)))
    strips = go.Heatmap(
        z=np.stack([key, query]).astype(np.float32),
        x=dims,
        y=[_("key"), _("query")],
        zmin=-most,
        zmax=most,
        colorscale=[[i / 16, colour("RdBu", i / 16)] for i in range(17)],
        colorbar={"len": 0.35, "y": 0.83, "thickness": 10, "outlinewidth": 0, "nticks": 3},
        yaxis="y2",
        hovertemplate=_("%{y}, dimension %{x}: %{z:.3f}<extra></extra>"),
    )
    bars = go.Bar(
        x=dims,
        y=products.astype(np.float32),
        marker={"color": [MORE if value > 0 else LESS for value in products]},
        hovertemplate=_("dimension %{x}: %{y:.3f}<extra></extra>"),
        showlegend=False,
    )
    layout = {
        "xaxis": {
            "title": {"text": _("dimension of the head")},
            "ticks": "",
            "zeroline": False,
            "anchor": "y",
        },
        "yaxis": {
            "title": {"text": _("query × key, scaled")},
            "domain": [0, 0.62],
            "ticks": "",
            "zeroline": True,
        },
        "yaxis2": {"domain": [0.7, 0.96], "ticks": "", "anchor": "x"},
        "height": 340,
        "bargap": 0.25,
        "margin": {"l": 60, "r": 10, "t": 6, "b": 42},
    }
    return go.Figure([strips, bars], layout)
