"""Beside the grid of changes: importance, another measure, and the positive control; below it tables and files."""

from __future__ import annotations

import io
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from analysis.maps import Floats
from analysis.roles import NO_ROLE, RULES, roles
from dashboard import ablating, boxes, cache, jobs, keys, measuring, panels, sidebar, state
from dashboard import ablation_figures as figures
from dashboard.ablation_panels import View, notes_of
from dashboard.chart import chart
from dashboard.corpus import corpus
from dashboard.downloads import file_button, file_name, to_html
from dashboard.naming import INDUCTION, gradient_name, interval, measure_name, number, role_name
from dashboard.pictures import CHART, Figure, clicked
from dashboard.text import _, say


def view_box(view: View) -> str:
    """Draw the choice of the picture beside the grid."""
    names = {
        "ranked": _("ranked"),
        "importance": _("importance"),
        "measure": _("measure"),
        "control": _("control"),
    }
    if view.found.importance is None:
        del names["importance"]
    return boxes.choose(keys.AGAINST, _("View"), names)


def importance_picture(view: View) -> list[Figure]:
    """Draw gradient importance against the exact change, each of its own half of the examples."""
    from analysis.outcome import halves, judge_plain

    found = view.found
    assert found.importance is not None
    names = {name: gradient_name(name) for name in keys.GRADIENT.options}
    which = boxes.choose(keys.GRADIENT, _("Gradient score"), names, widget=st.selectbox, width=230)
    frame = found.importance.frame()
    x = frame[which].to_numpy(dtype=float)[~view.gone.ravel()]
    metric = [one.name for one in found.experiment.problem.metrics].index(view.metric)
    delta = judge_plain(found.experiment, found.predictions, halves(found.experiment)[1], metric)
    return _scatter(
        view,
        x,
        delta,
        names[which],
        _(
            "Importance (Michel et al. 2019, eq. 2) from the gradients of one half of the examples, the exact change on the "
            "other. The signed score predicts the change: below 0 the head helps."
        ),
        sign=1 if which == "signed" else -1,
    )


def measure_picture(view: View) -> list[Figure]:
    """Draw a measure of every head over the same texts against its change, with roles as letters."""
    names = {name: measure_name(name) for name in keys.MEASURE.options if name not in INDUCTION}
    which = boxes.choose(keys.MEASURE, _("Measure"), names, widget=st.selectbox, width=230)
    texts = corpus(view.found.data.name, list(view.found.experiment.problem.data.texts))
    asked = (sidebar.model_key(), texts, "keep", "queries")
    found = measuring.statistics(*asked)  # type: ignore[arg-type]
    if found is None:
        measuring.say_state(measuring.statistics_key(*asked))  # type: ignore[arg-type]
        return []
    named = roles(found)[~view.gone]
    letter = {rule.role: rule.letter for rule in RULES}
    letters = ["" if role == NO_ROLE else letter[role] for role in named]
    said = _("Letters: {roles}.").format(
        roles=", ".join(
            f"{letter[role]} {role_name(role)}" for role in dict.fromkeys(named) if role != NO_ROLE
        )
        or "–"
    )
    x = found.table(which)[~view.gone]
    return _scatter(view, x, view.changes.delta, names[which], said, sign=-1, letters=letters)


def _scatter(
    view: View,
    x: Floats,
    delta: Floats,
    name: str,
    about: str,
    *,
    sign: int,
    letters: list[str] | None = None,
) -> list[Figure]:
    """Draw a number of every head against its change; ``sign`` -1 correlates it with the loss, 1 with the change."""
    st.markdown(_correlation(x, sign * delta, name, sign))
    shown = [f"{note} · {name} {number(float(value))}" for note, value in zip(notes_of(view), x, strict=True)]
    figure = figures.against(
        x,
        delta,
        shown,
        letters or [""] * len(x),
        view.changes.noise,
        chosen=view.place,
        axes=(name, view.axis()),
    )

    def choose() -> None:
        point = clicked("ablation.against", len(x))
        if point is not None:
            head = view.heads[point]
            state.choose_head(head.layer, head.index)

    chart(
        figure,
        key="ablation.against",
        on_select=choose,
        selection_mode="points",
        config=CHART,
        alt=_("{name} of {count} heads against the {axis}; {head} is chosen.").format(
            name=name, count=len(x), axis=view.axis(), head=view.head
        ),
    )
    st.caption(about + " " + _("Hollow: smaller than noise.") + " " + view.under() + ".")
    return [(f"{name} / {view.axis()}", figure)]


def _correlation(x: Floats, y: Floats, name: str, sign: int) -> str:
    """Return the rank correlation in a sentence, with the 95% interval of a bootstrap over heads."""
    kept = np.isfinite(x) & np.isfinite(y)
    x, y = x[kept], y[kept]
    if len(x) < 3 or not np.ptp(x) or not np.ptp(y):
        return _("Rank correlation: not defined, all values are equal.")
    value, low, high = cache.rank_correlation(x, y)
    what = _("the loss of score") if sign < 0 else _("the change of score")
    return _("Rank correlation of {name} with {what}: **{value}** over {count} heads.").format(
        name=name, what=what, value=interval(value, low, high), count=len(x)
    )


def control_picture() -> list[Figure]:
    """Draw the positive control: the right answer beside the found one."""
    done = ablating.ask_control()
    if done is None:
        measuring.say_state(ablating.CONTROL)
        return []
    planted, _made, found = done
    layers, heads = planted.truth.shape
    matters = ~found.noise.reshape(layers, heads)
    right = int((matters == (planted.truth == "useful")).sum())
    st.markdown(
        _(
            "A small network set by hand, so that what each head does is known. Found right: **{right} of {all} heads**."
        ).format(right=right, all=matters.size)
    )
    letter = {"useful": _("use"), "idle": _("idle"), "twin": _("twin")}
    truth = (planted.truth == "useful").astype(float)
    st.caption(_("The right answer: which heads are useful, idle, or twins that stand in for each other"))
    notes = [[say(planted.does[a][b]) for b in range(heads)] for a in range(layers)]
    panels.head_grid(
        truth,
        meaning=_("useful"),
        chosen=None,
        key="ablation.truth",
        letters=np.vectorize(letter.__getitem__, otypes=[object])(planted.truth),
        notes=notes,
        on_choose=_ignore,
    )
    st.caption(_("Found: change of accuracy with that head alone off; pale: smaller than noise"))
    delta = found.delta.reshape(layers, heads)
    panels.head_grid(
        delta,
        meaning=_("change of accuracy"),
        chosen=None,
        key="ablation.found",
        scale=panels.Scale(most=panels.top_of(delta), differences=True),
        pale=~matters,
        notes=[
            [interval(float(found.delta[i]), float(found.low[i]), float(found.high[i])) for i in row]
            for row in np.arange(layers * heads).reshape(layers, heads)
        ],
        on_choose=_ignore,
    )
    st.caption(
        _(
            "Twins do the same work: either alone can go without a trace, so ablating single heads calls them idle. Pairs "
            "find them."
        )
    )
    return []


def _ignore(layer: int, head: int) -> None:
    """The control has no head to choose."""


def whole_table(view: View) -> pd.DataFrame:
    """Return the result by the shown metric, with importance where there is one."""
    found = view.changes
    table = view.found.table.copy()
    for name, values in {
        "score": found.scores,
        "delta": found.delta,
        "ci_low": found.low,
        "ci_high": found.high,
        "p": found.p,
        "q": found.q,
        "noise": found.noise,
    }.items():
        table[name] = values
    if view.found.importance is not None:
        frame = view.found.importance.frame()
        for name in ("importance", "importance_normalised", "signed"):
            table[name] = frame[name].to_numpy()[~view.gone.ravel()]
    return table


def tables(view: View, pictures: list[Figure]) -> None:
    """Offer all numbers as a table and as files, the run's folder, and the command that repeats it."""
    whole = whole_table(view)
    with st.container(horizontal=True):
        box = st.expander(_("Numbers as a table"), key="ablation.table", on_change="rerun")
        if box.open:
            shown = whole.copy()
            if view.protocol == "single":
                shown.insert(0, "name", [str(head) for head in view.heads])
            box.dataframe(shown.round(6), hide_index=True, width="stretch")
            for extra in (view.found.layers, view.found.pairs):
                if extra is not None:
                    box.dataframe(extra.round(6), hide_index=True, width="stretch")
        with st.popover(_("Download"), icon=":material/download:"):
            options = view.found.experiment.options
            base = file_name("ablation", options.task, options.protocol, view.metric)
            st.markdown(_("**All changes**, with intervals, p and q"))
            with st.container(horizontal=True):
                file_button(".csv", lambda: whole.to_csv(index=False).encode("utf-8"), base)
                file_button(".parquet", partial(_parquet, whole), base)
            for name, extra in ((_("layers"), view.found.layers), (_("pairs"), view.found.pairs)):
                if extra is not None:
                    st.markdown(f"**{name}**")
                    file_button(".csv", partial(_csv, extra), f"{base}-{name}")
            if pictures:
                st.markdown(_("**The pictures**, for a browser without a network"))
                file_button(".html", partial(to_html, pictures, base), base)
    _repeat(view)


def _csv(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False).encode("utf-8")


def _parquet(table: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _repeat(view: View) -> None:
    box = st.expander(_("Repeat it from a shell; all runs"), key="ablation.repeat", on_change="rerun")
    if not box.open:
        return
    from analysis.runs import listing

    with box:
        st.caption(
            _("This run is in {folder}. Whatever was finished of it is found there again.").format(
                folder=f"`{view.found.folder}`"
            )
        )
        st.code(view.found.experiment.options.command(), language="bash")
        st.markdown(
            _("**All runs**, the newest first; one that is not finished goes on when it is asked for again")
        )
        st.dataframe(listing(), hide_index=True, width="stretch")


def say_job(job: jobs.Job) -> None:
    """Say why an experiment's result is not there: under way, failed, or cancelled, which Run goes on with."""
    from dashboard.text import say_markdown

    if job.state == "failed" and job.error is not None:
        st.error(say_markdown(job.error))
    elif job.state == "cancelled":
        st.info(_("Cancelled. What was finished is kept: Run goes on from there."))
    else:
        st.caption(_("Under way: other pages can be used meanwhile."))
