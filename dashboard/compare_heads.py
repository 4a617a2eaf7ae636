"""Compare: two heads over a collection of texts, or two models over the same."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from analysis.findings import HeadStatistics, difference
from analysis.findings import interval as ends_of
from analysis.maps import Head
from dashboard import boxes, keys, measuring, panels, state
from dashboard.chart import chart
from dashboard.corpus import Corpus
from dashboard.head_figures import Side, profile
from dashboard.head_panels import scale_of
from dashboard.naming import BITS, INDUCTION, TOKENS, interval, measure_definition, measure_name
from dashboard.pictures import CHART, Figure
from dashboard.text import _, escape


def measure_box() -> str:
    """Draw the choice of the measure that colours the grids, and return it; induction is not of these texts."""
    names = {name: measure_name(name) for name in keys.MEASURE.options if name not in INDUCTION}
    return boxes.choose(keys.MEASURE, _("Colour"), names, widget=st.selectbox, width=220)


def pick_grid(found: HeadStatistics, head: Head, other: Head) -> None:
    """Draw the grid of heads; a click chooses the first or the second, as the switch above says."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick = boxes.choose(
            keys.PICK, _("A click chooses"), {"first": _("the first"), "second": _("the second")}
        )
        name = measure_box()
    values = found.table(name)
    panels.head_grid(
        values,
        meaning=measure_name(name),
        chosen=head if pick == "first" else other,
        key="compare.heads",
        scale=scale_of(name, values),
        gone=found.gone,
        on_choose=state.choose_head if pick == "first" else state.choose_second_head,
    )
    st.caption(measure_definition(name))


def say_removed(sides: tuple[Side, Side], names: tuple[str, str] | None) -> bool:
    """Say which of two heads was removed from its model, and return whether any was; ``names`` of two models."""
    gone = [bool(side.found.gone[side.head.layer, side.head.index]) for side in sides]
    if any(gone):
        first = gone.index(True)
        panels.say_removed(sides[first].head, None if names is None else names[first])
    return any(gone)


def two_sides(sides: tuple[Side, Side], model: str | None, corpus: Corpus) -> list[Figure]:
    """Draw every measure of two heads, and say how far apart they are where both are of one ``model``."""
    first, second = sides
    said = f":orange[◆] **{escape(first.name)}** · :blue[●] **{escape(second.name)}**"
    if model is not None:
        said += _distance(first.found, first.head, second.head, model, corpus)
    st.markdown(said)
    st.caption(_("Grey: all heads of the first model.") if model is None else _("Grey: all heads."))
    figure = profile(first.found, sides)
    chart(
        figure,
        key="compare.profile",
        config=CHART,
        alt=_("Every measure of {first} and {second}, with intervals.").format(
            first=first.name, second=second.name
        ),
    )
    return [(f"{first.name} / {second.name}", figure)]


def _distance(found: HeadStatistics, head: Head, other: Head, model: str, corpus: Corpus) -> str:
    if head == other:
        return " · " + _("the same head: choose another")
    apart = measuring.distances(model, corpus, found.specials)
    if apart is None:
        return " · " + _("distance: not measured yet")
    heads = found.mean.shape[2]
    a, b = head.layer * heads + head.index, other.layer * heads + other.index
    value = interval(float(apart.mean[a, b]), float(apart.low[a, b]), float(apart.high[a, b]))
    return " · " + _("distance {value} bits (0 the same, 1 nothing in common)").format(value=value)


def difference_table(first: Side, second: Side) -> pd.DataFrame:
    """Return a row a measure: both sides, and the difference with its paired interval."""
    mean, low, high = difference(first.found, second.found, first.head, second.head)
    rows = []
    for i, name in enumerate(first.found.names):
        if np.isnan(mean[i]):
            continue
        rows.append(
            {
                _("measure"): measure_name(name),
                first.name: _value(first, i),
                second.name: _value(second, i),
                _("first minus second"): interval(mean[i], low[i], high[i]),
                _("beyond noise"): _("yes") if low[i] > 0 or high[i] < 0 else _("smaller than noise"),
            }
        )
    return pd.DataFrame(rows)


def _value(side: Side, measure: int) -> str:
    at = (measure, side.head.layer, side.head.index)
    return interval(side.found.mean[at], side.found.low[at], side.found.high[at])


def model_grids(
    first: HeadStatistics, second: HeadStatistics, names: tuple[str, str], head: Head, other: Head
) -> None:
    """Draw both models' grids of one measure, and their difference where they have the same shape."""
    same = first.mean.shape == second.mean.shape
    options = {"difference": _("difference"), "first": escape(names[0]), "second": escape(names[1])}
    if not same:
        del options["difference"]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = measure_box()
        which = boxes.choose(keys.GRID, _("Grid"), options)
    if which == "difference":
        _difference_grid(first, second, name, head)
        return
    is_first = which != "second"
    found = first if is_first else second
    values = found.table(name)
    panels.head_grid(
        values,
        meaning=f"{names[0] if is_first else names[1]}: {measure_name(name)}",
        chosen=head if is_first else other,
        key="compare.models",
        scale=scale_of(name, values),
        gone=found.gone,
        on_choose=state.choose_head if is_first else state.choose_second_head,
    )
    st.caption(measure_definition(name))


def _difference_grid(first: HeadStatistics, second: HeadStatistics, name: str, head: Head) -> None:
    at = first.names.index(name)
    layers, heads = first.mean.shape[1:]
    mean = first.mean[at] - second.mean[at]
    low, high = ends_of(first.replicates[:, at].astype(np.float64) - second.replicates[:, at])
    noise = (low <= 0) & (high >= 0)
    gone = first.gone | second.gone
    st.markdown(
        _("**{count} of {all} heads** differ beyond noise in {measure}.").format(
            count=int((~noise & ~np.isnan(mean)).sum()), all=int((~gone).sum()), measure=measure_name(name)
        )
    )
    has_unit = name in BITS + TOKENS  # all others lie within -1 to 1, and two pictures can be compared
    most = float(np.nanmax(np.append(np.abs(mean), 0))) or 1.0 if has_unit else 1.0
    panels.head_grid(
        mean,
        meaning=_("first minus second: {measure}").format(measure=measure_name(name)),
        chosen=head,
        key="compare.models",
        scale=panels.Scale(most=most, root=True, differences=True),
        pale=noise,
        gone=gone,
        notes=[[interval(mean[a, b], low[a, b], high[a, b]) for b in range(heads)] for a in range(layers)],
        on_choose=state.choose_both,
    )
    st.caption(
        _("Blue: more in the first model; red: less. Pale: smaller than noise (95% interval over the texts).")
    )
