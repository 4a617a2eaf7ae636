"""The pictures of Ablate live: what the model says before and after, and where attention moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from analysis.answers import Line, distances
from analysis.maps import Floats, Head, in_units, largest, strongest, with_specials
from analysis.tokens import clip
from dashboard import boxes, keys, panels, state
from dashboard.chart import chart
from dashboard.figures import difference_map, head_map, literal
from dashboard.live_panels import View, line_names, number_names
from dashboard.naming import number
from dashboard.pictures import CHART, Figure
from dashboard.text import _, escape

if TYPE_CHECKING:
    from analysis.maps import AttentionMaps

BEFORE, AFTER = "#8a8f98", "#0072b2"


def prediction(view: View) -> list[Figure]:
    """Draw what the model says before and after, and return the figure where there is one."""
    kind = view.before.kind
    if len(view.lines) == 1:
        one = view.lines[0]
        st.markdown(
            f"{number_names(kind)}  \n"
            + _("### {before} → {after} :gray[:small[change {change}]]").format(
                before=number(one.before), after=number(one.after), change=number(one.after - one.before)
            )
        )
        if kind == "similarity":
            each = distances(view.before, view.after)
            st.caption(
                _(
                    "Each sentence is read alone. Their embeddings move by {first} and {second} (1 − cosine)."
                ).format(first=number(float(each[0])), second=number(float(each[1])))
            )
        elif kind == "embedding":
            st.caption(
                _(
                    "This checkpoint has no task head: what it gives is an embedding. Distance: 1 − cosine; add a second "
                    "sentence to see their similarity."
                )
            )
        return []
    figure = bars(view.lines)
    alt = _("What the model says, before and after: {lines}.").format(
        lines="; ".join(
            f"{name} {number(one.before)} → {number(one.after)}"
            for name, one in list(zip(line_names(view.lines), view.lines, strict=True))[:6]
        )
    )
    chart(figure, key="live.said", config=CHART, alt=alt)
    return [(_("what the model says"), figure)]


def bars(lines: list[Line]) -> go.Figure:
    """Return the numbers before and after as bars beside each other, 0 to 1."""
    names = [literal(clip(name)) for name in line_names(lines)]
    places = [f"{i} {name}" for i, name in enumerate(names)]  # equal names are different guesses
    traces = [
        go.Bar(
            y=places,
            x=[getattr(one, side) for one in lines],
            orientation="h",
            name=title,
            marker={"color": shade},
            text=[number(getattr(one, side)) for one in lines],
            textposition="outside",
            cliponaxis=False,
            customdata=names,
            hovertemplate="%{customdata}: %{x:.4f}<extra>" + title + "</extra>",
        )
        for side, title, shade in (("after", _("after"), AFTER), ("before", _("before"), BEFORE))
    ]
    layout = {
        "barmode": "group",
        "xaxis": {"range": [0, 1.08], "ticks": "", "zeroline": False, "side": "top"},
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": places[::-1],
            "tickvals": places,
            "ticktext": names,
            "ticks": "",
        },
        "legend": {"orientation": "h", "traceorder": "reversed", "y": -0.02, "yanchor": "top"},
        "height": 76 + 36 * len(lines),
        "margin": {"l": 90, "r": 24, "t": 26, "b": 30},
    }
    return go.Figure(traces, layout)


def seen(view: View) -> tuple[Floats, Head, Head] | None:
    """Return how far the attention of each head moved, which moved most, and which is watched; None with all on."""
    if not view.off.any():
        return None
    values = view.moved
    best = largest(values) or view.head
    return values, best, state.watched(*view.shape) or best


def moved_grid(view: View, values: Floats, best: Head, head: Head) -> None:
    """Draw how far the attention of each head moved; a click watches a head."""
    most = float(values[best.layer, best.index])
    if most > 0:
        said = _("Where does attention move most? **{best}**, {bits} bits")
        st.markdown(said.format(best=best, bits=number(most)))
    else:
        st.markdown(
            _(
                "No attention moves: what is off has no layer after it, or adds nothing. Only the output changes."
            )
        )
    panels.head_grid(
        values,
        meaning=_("attention moved (bits)"),
        chosen=head,
        key="live.moved",
        scale=panels.Scale(most=panels.top_of(values), root=True),
        gone=view.gone,
        on_choose=state.watch,
    )
    st.caption(
        _(
            "Colour: Jensen-Shannon divergence in bits between a head’s rows before and after, mean over the tokens. A "
            "head that is off still looks; what it sees is not passed on."
        )
    )
    if st.session_state[keys.WATCH] is not None:
        st.button(_("Watch what moves most"), key="live.watch", type="tertiary", on_click=state.watch_most)


def watched_map(view: View, head: Head) -> list[Figure]:
    """Draw the map of the watched head before and after, or the difference."""
    if view.is_gone(head):
        panels.say_removed(head)
        return []
    before, after = view.before.maps[view.side], view.after.maps[view.side]
    first, second = (
        with_specials(
            in_units(maps.at(head), st.session_state[keys.UNITS.key]), st.session_state[keys.SPECIALS.key]
        )
        for maps in (before, after)
    )
    names = {"difference": _("difference"), "first": _("before"), "second": _("after")}
    which = boxes.choose(keys.PICTURE, _("Attention of {head}").format(head=head), names)
    _say_strongest(first, second, head)
    if which == "difference":
        figure = difference_map(second, first)
        alt = _("Attention of {head}: after minus before.").format(head=head)
    else:
        figure = head_map(first if which == "first" else second)
        alt = _("Attention map of {head}, {when}.").format(head=head, when=names[which])
    chart(figure, key="live.map", config=CHART, alt=alt)
    if which == "difference":
        st.caption(_("Blue: more after; red: less."))
    return [(f"{head}: {names[which]}", figure)]


def _say_strongest(first: AttentionMaps, second: AttentionMaps, head: Head) -> None:
    """Say which weight of a head moved most."""
    change = np.abs(second.weights[0, 0] - first.weights[0, 0])
    if not change.size or change.max() < 0.005:
        st.markdown(_("The attention of **{head}** stays as it was.").format(head=head))
        return
    query, key = strongest(change)
    st.markdown(
        _("Moves most: **{query}** → **{key}**, {before:.2f} before, {after:.2f} after").format(
            query=escape(clip(first.queries.labels[query])),
            key=escape(clip(first.keys.labels[key])),
            before=first.weights[0, 0, query, key],
            after=second.weights[0, 0, query, key],
        )
    )
