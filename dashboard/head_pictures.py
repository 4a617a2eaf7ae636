"""The pictures of many heads on the Heads page: the map of heads, their distances, the profile by layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from analysis.maps import Head
from dashboard import keys, state
from dashboard.chart import chart
from dashboard.head_figures import by_layer, distance_matrix, head_map_2d
from dashboard.head_view import View
from dashboard.naming import (
    INDUCTION,
    measure_name,
    number,
    role_name,
)
from dashboard.pictures import CHART, Figure, clicked
from dashboard.text import _

if TYPE_CHECKING:
    from analysis.distance import HeadDistances


def map_picture(view: View, apart: HeadDistances) -> list[Figure]:
    """Draw the map of heads; a click chooses one."""
    from analysis.distance import place

    layers, heads = view.shape
    points, stress = place(apart)
    letters = ["" if letter == "·" else letter for letter in view.letters().ravel()]
    notes = [f"{Head(*divmod(i, heads))}: {role_name(role)}" for i, role in enumerate(view.roles.ravel())]
    figure = head_map_2d(points, layers, heads, letters, notes, view.head)
    chart(
        figure,
        key="heads.map",
        on_select=_chooser("heads.map", layers * heads, heads),
        selection_mode="points",
        config=CHART,
        alt=_("Map of {count} heads: near ones attend alike. {head} is chosen.").format(
            count=view.count, head=view.head
        ),
    )
    st.caption(
        _(
            "Near heads attend alike: Jensen-Shannon divergence over {queries:,} tokens, laid out by metric scaling; "
            "stress {stress} (0: all distances are exact; above 0.2: read it with care)."
        ).format(queries=apart.queries, stress=number(stress))
    )
    return [(_("map of heads"), figure)]


def matrix_picture(view: View, apart: HeadDistances) -> list[Figure]:
    """Draw the distances between all heads, clusters together."""
    from analysis.distance import order

    figure = distance_matrix(apart.mean, order(apart), view.shape[1])
    chart(
        figure,
        key="heads.matrix",
        config=CHART,
        alt=_("Distances between {count} heads in bits; heads of a cluster stand together.").format(
            count=view.count
        ),
    )
    st.caption(
        _(
            "Jensen-Shannon divergence per token in bits: 0 the same, 1 nothing in common. Rows and columns stand in "
            "the order of their clusters, so blocks along the diagonal are heads that do alike."
        )
    )
    return [(_("distances"), figure)]


def layer_picture(view: View) -> list[Figure]:
    """Draw the measure that colours the grid by layer."""
    name = st.session_state[keys.MEASURE.key]
    if name in INDUCTION:
        st.caption(_("Induction is measured on random tokens, not on these texts: choose another colour."))
        return []
    layers, heads = view.shape
    figure = by_layer(view.found, name, view.head)
    chart(
        figure,
        key="heads.layers",
        on_select=_chooser("heads.layers", layers * heads, heads),
        selection_mode="points",
        config=CHART,
        alt=_("{measure} by layer, every head a dot, with the mean of each layer.").format(
            measure=measure_name(name)
        ),
    )
    return [(_("{measure} by layer").format(measure=measure_name(name)), figure)]


def _chooser(chart: str, count: int, heads: int) -> Callable[[], None]:
    def choose() -> None:
        point = clicked(chart, count)
        if point is not None:
            state.choose_head(*divmod(point, heads))

    return choose
