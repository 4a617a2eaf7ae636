"""The pictures of the Ablation page by its protocols: all changes ranked, the layers, the pairs."""

from __future__ import annotations

import streamlit as st

from analysis.maps import Head, read_heads
from dashboard import ablation_figures as figures
from dashboard import state
from dashboard.ablation_panels import View, notes_of, variant_name
from dashboard.chart import chart
from dashboard.naming import interval, metric_name, number
from dashboard.pictures import CHART, Figure, clicked
from dashboard.text import _


def ranked_bars(view: View) -> list[Figure]:
    """Draw all changes from the worst to the best; a click chooses a head."""
    found = view.changes
    masks = view.found.experiment.masks[1:]
    names = [variant_name(view, masks[i]) for i in range(len(found.delta))]
    is_grid = view.protocol in ("single", "all-but-one")
    figure = figures.ranked(
        names,
        found.delta,
        found.low,
        found.high,
        found.noise,
        notes_of(view),
        chosen=view.place if is_grid else None,
        axis=view.axis(),
    )
    at = figures.order(found.delta)

    def choose() -> None:
        point = clicked("ablation.ranked", len(at))
        if point is not None and is_grid:
            head = view.heads[at[point]]
            state.choose_head(head.layer, head.index)

    worst = ", ".join(f"{names[i]} {number(float(found.delta[i]))}" for i in at[:3])
    chart(
        figure,
        key="ablation.ranked",
        on_select=choose,
        selection_mode="points",
        config=CHART,
        alt=_("{axis} of {count} variants, ranked, with 95% intervals; worst: {worst}.").format(
            axis=view.axis(), count=len(names), worst=worst
        ),
    )
    _say_intervals(view, view.axis())
    return [(view.axis(), figure)]


def _say_intervals(view: View, axis: str) -> None:
    """Say what ranked bars show, and of what their intervals are."""
    st.caption(
        _(
            "{axis}, {under}, with 95% intervals (paired bootstrap, {replicates:,} replicates). Grey: smaller than noise."
        ).format(axis=axis, under=view.under(), replicates=view.changes.replicates)
    )


def layers_picture(view: View) -> list[Figure]:
    """Draw the best head that each layer can be left with, chosen on one half and reported on the other."""
    table = view.found.layers
    assert table is not None
    names = [str(Head(int(row.layer), int(row.kept))) for row in table.itertuples()]
    delta, low, high = (table[name].to_numpy(dtype=float) for name in ("delta", "ci_low", "ci_high"))
    noise = table["noise"].to_numpy(dtype=bool)
    main = view.found.experiment.problem.metrics[0].name
    axis = _("change of {metric}").format(metric=metric_name(main))
    figure = figures.layer_bars(names, delta, low, high, noise, axis)
    st.markdown(
        _("**{count} of {all} layers** can be left with one head at a change smaller than noise.").format(
            count=int(noise.sum()), all=len(noise)
        )
    )
    chart(
        figure,
        key="ablation.layers",
        config=CHART,
        alt=_("{axis} of each layer that keeps its best head alone.").format(axis=axis),
    )
    st.caption(
        _(
            "Michel et al. 2019, table 2, but honest: each layer’s head was chosen on one random half of the examples, "
            "its change is of the other half, with its 95% interval."
        )
        + f" {view.under()}."
    )
    return [(axis, figure)]


def pairs_picture(view: View) -> list[Figure]:
    """Draw what each pair does beyond what its heads do alone."""
    table = view.found.pairs
    assert table is not None
    beyond, low, high = (table[name].to_numpy(dtype=float) for name in ("beyond", "ci_low", "ci_high"))
    noise = table["noise"].to_numpy(dtype=bool)
    names = [" ".join(str(head) for head in read_heads(heads)) for heads in table["heads"]]
    notes = [
        _("{pair}: together {together}, alone in sum {apart}, beyond {beyond}").format(
            pair=name,
            together=number(row.together),
            apart=number(row.apart),
            beyond=interval(row.beyond, row.ci_low, row.ci_high),
        )
        for name, row in zip(names, table.itertuples(), strict=True)
    ]
    axis = _("change beyond the two alone")
    figure = figures.ranked(names, beyond, low, high, noise, notes, chosen=None, axis=axis)
    stand_in, together = int((~noise & (beyond < 0)).sum()), int((~noise & (beyond > 0)).sum())
    st.markdown(
        _(
            "**{stand_in} of {all} pairs** stand in for each other: both off costs more than the two alone. {together} "
            "work together: with one off, the other has little left to lose."
        ).format(stand_in=stand_in, all=len(noise), together=together)
    )
    chart(
        figure,
        key="ablation.pairs",
        config=CHART,
        alt=_("What each pair changes beyond the two heads alone, ranked."),
    )
    _say_intervals(view, axis)
    return [(axis, figure)]
