"""The panels of the Pruning page: its settings, the curves, the slider along one of them, the smaller model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import streamlit as st

from analysis.maps import read_heads
from analysis.messages import HeadroomError
from dashboard import boxes, keys, panels, pruning_jobs, state
from dashboard.chart import chart
from dashboard.naming import interval, metric_name, number, order_name
from dashboard.pictures import CHART, Figure
from dashboard.pruning_figures import curves_figure
from dashboard.text import _, language, say_markdown, written

if TYPE_CHECKING:
    from analysis.curves import Curve, Knee
    from analysis.datasets import Data
    from analysis.models import Model
    from analysis.tokens import Bools
    from analysis.trial import Options

MOST_SEEDS = 100
NEED_LOSS = ("importance", "importance-once", "signed", "fisher")


@dataclass(frozen=True, eq=False)
class View:
    """What the page looks at: the curves that are there, one of them, a step of it, and the loss that is allowed."""

    curves: list[Curve]
    chosen: int
    step: int
    loss: float

    @property
    def curve(self) -> Curve:
        return self.curves[self.chosen]

    @property
    def mask(self) -> np.ndarray:
        """Return [layer, head] which heads are gone at the step."""
        return self.curve.path.masks[self.step]


def order_box(task: str) -> tuple[str, ...]:
    """Draw the choice of the orders, of those that the task has, and return them."""
    from analysis.pruning import ORDERS

    offered = [name for name in ORDERS if task != "fidelity" or name not in NEED_LOSS]
    said = (st.session_state[keys.ORDERS] or ",".join(keys.FIRST_ORDERS)).split(",")
    chosen = [name for name in offered if name in said] or ["random"]

    def take(picked: Sequence[str]) -> None:
        st.session_state[keys.ORDERS] = ",".join(name for name in offered if name in picked) or None

    boxes.draw(
        st.multiselect,
        _("Orders of removal"),
        offered,
        key=f"pruning.orders.{language()}",
        shown=chosen,
        take=take,
        format_func=order_name,
        help=_(
            "Which heads go first. Importance: the gradient of the loss by the head’s gate (Michel et al. 2019), estimated "
            "once or before each step. Ablation: the exact loss of score. Fisher: squared gradients, rearranged within a "
            "layer (Kwon et al. 2022). Entropy: the least certain first. Random: the baseline that an order must beat."
        ),
    )
    return tuple(chosen)


def limits_boxes(heads: int) -> None:
    """Draw the choices that are rarely changed: steps, random orders, and which heads stay."""
    with st.popover(_("More"), icon=":material/tune:"):
        names = {"0.1": "10%", "0.05": "5%", "0.25": "25%", "0": _("one head")}
        boxes.choose(keys.STEP, _("At each step"), names)
        _number_input(_("Random orders"), keys.SEEDS, keys.FIRST_SEEDS, 1, MOST_SEEDS)
        _number_input(_("Heads that each layer keeps"), keys.KEEP, 0, 0, heads)
        boxes.heads_box(_("Heads that never go"), keys.PROTECT, "pruning.protect")


def _number_input(label: str, key: str, first: int, low: int, high: int) -> None:
    value = st.session_state[key]
    shown = min(max(first if value is None else value, low), high)
    boxes.draw(
        st.number_input,
        label,
        low,
        high,
        key=f"{key}.input",
        shown=shown,
        take=boxes.into(key),
        step=1,
    )


def options(ablation: object, orders: tuple[str, ...], heads: int) -> Options:
    """Return what is asked, in the terms of the shell. Raises OptionError for heads that are none.

    ablation: the same of the Ablation page, which names the data and the model
    """
    from analysis.experiment import Options as Ablation
    from analysis.pruning import Limits
    from analysis.trial import Options

    assert isinstance(ablation, Ablation)
    seeds, kept = st.session_state[keys.SEEDS], st.session_state[keys.KEEP]
    return Options(
        data=ablation.data,
        task=ablation.task,
        columns=ablation.columns,
        model=ablation.model,
        revision=ablation.revision,
        orders=orders,  # type: ignore[arg-type]
        seeds=min(max(keys.FIRST_SEEDS if seeds is None else seeds, 1), MOST_SEEDS),
        limits=Limits(
            step=float(st.session_state[keys.STEP.key]),
            keep=min(kept or 0, heads),
            protected=tuple(read_heads(st.session_state[keys.PROTECT] or "")),
        ),
    )


def view_of(curves: list[Curve]) -> View:
    """Return the view of a session: the order and step that are chosen, or the best order at its knee."""
    from analysis.curves import knee

    loss = float(st.session_state[keys.LOSS.key])
    named = [i for i, one in enumerate(curves) if one.path.order == st.session_state[keys.ORDER]]
    chosen = named[0] if named else pruning_jobs.best(curves, loss)
    along = st.session_state[keys.ALONG]
    removed = curves[chosen].path.removed
    if (
        along is None
    ):  # start where the most heads are gone at the loss that is allowed, or at a third of them
        along = int(removed[knee(curves[chosen], loss).step]) or removed[-1] / 3
    step = int(np.abs(removed - along).argmin())
    return View(curves, chosen, step, loss)


def summary(view: View) -> None:
    """Say how many heads can go, in words that a report can quote."""
    from analysis.curves import knee

    curve = view.curve
    found = knee(curve, view.loss)
    examples = curve.changes.examples
    st.markdown(
        _(
            "**{removed} of {all} heads ({share:.0%})** can go by {order} with a loss of {metric} of at most {loss}, at 95% "
            "({examples:,} examples that chose nothing)."
        ).format(
            removed=found.removed,
            all=curve.path.there,
            share=found.share,
            order=order_name(curve.path.order),
            metric=metric_name(curve.metric),
            loss=written(f"{view.loss:g}"),
            examples=examples,
        )
        + _against_random(view, found)
    )


def _against_random(view: View, found: Knee) -> str:
    """Return how the order stands against the random ones, at half of the heads."""
    from analysis.trial import band

    random = band(view.curves)
    if random is None or view.curve.path.order == "random":
        return ""
    half = int(np.abs(random.share - 0.5).argmin())
    score, share = float(view.curve.score[min(half, len(view.curve.score) - 1)]), float(random.share[half])
    low, high = float(random.low[half]), float(random.high[half])
    where = _("above all") if score > high else _("below all") if score < low else _("among")
    return " " + _(
        "With {share:.0%} gone it scores {score}, {where} {count} random orders ({low} to {high})."
    ).format(
        share=share, score=number(score), where=where, count=random.count, low=number(low), high=number(high)
    )


def curves_picture(view: View) -> list[Figure]:
    """Draw all curves."""
    from analysis.trial import band

    figure = curves_figure(view.curves, band(view.curves), view.chosen, view.step)
    named = dict.fromkeys(order_name(one.path.order) for one in view.curves)
    chart(
        figure,
        key="pruning.curves",
        config=CHART,
        alt=_("{metric} against the heads that are removed, by {orders}, with 95% intervals.").format(
            metric=metric_name(view.curve.metric), orders=", ".join(named)
        ),
    )
    st.caption(
        _(
            "Heads are chosen on one random half of the data and scored on the other. Dotted line: the whole model. Bars: 95% "
            "intervals of the change from it, paired by example; grey: the range of random orders."
        )
    )
    return [(_("pruning"), figure)]


def along(view: View) -> None:
    """Draw the slider along one curve, and what is gone there."""
    curve = view.curve
    orders = list(dict.fromkeys(one.path.order for one in view.curves))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        boxes.select(
            _("Along"),
            orders,
            key=f"pruning.order.{language()}",
            shown=curve.path.order,
            take=boxes.into(keys.ORDER),
            format_func=order_name,
            width=200,
        )
        losses = {value: value for value in sorted(keys.LOSS.options, key=float)}
        boxes.choose(keys.LOSS, _("Loss allowed"), losses, widget=st.selectbox, width=110)
    counts = [int(count) for count in curve.path.removed]
    boxes.draw(
        st.select_slider,
        _("Heads removed"),
        counts,
        key="pruning.along",
        shown=counts[view.step],
        take=boxes.into(keys.ALONG),
    )
    score = interval(float(curve.score[view.step]), float(curve.low[view.step]), float(curve.high[view.step]))
    st.markdown(
        _("**{removed} of {all} heads gone**: {metric} {score}{change}").format(
            removed=counts[view.step],
            all=curve.path.there,
            metric=metric_name(curve.metric),
            score=score,
            change=_change(view),
        )
    )
    panels.gone_grid(
        view.mask | curve.path.gone,
        meaning=_("heads that are removed"),
        key="pruning.grid",
        chosen=state.chosen_head(*view.mask.shape),
        on_choose=state.choose_head,
    )
    st.caption(_("Hatched: gone."))


def _change(view: View) -> str:
    if not view.step:
        return ""
    found, i = view.curve.changes, view.step - 1
    said = interval(float(found.delta[i]), float(found.low[i]), float(found.high[i]))
    return (
        " · "
        + _("change {change}").format(change=said)
        + (", " + _("smaller than noise") if found.noise[i] else "")
    )


def table(view: View) -> pd.DataFrame:
    """Return a row a step of every curve."""
    from analysis.trial import frame

    return frame(view.curves)


def say_failures(jobs_of: list) -> None:
    """Say why some orders have no curve."""
    for job in jobs_of:
        if job is not None and job.state == "failed" and job.error is not None:
            st.error(say_markdown(job.error))
        elif job is not None and job.state == "cancelled":
            st.info(_("{title}: cancelled. Run starts it anew.").format(title=say_markdown(job.title)))


def default_folder(model: Model, mask: np.ndarray) -> str:
    """Return where a smaller model is saved unless someone says otherwise."""
    from analysis.runs import root

    return str(root() / "models" / f"{model.name.replace('/', '-')}-without-{int(mask.sum())}-heads")


def check_options(options: Options, data: Data, gone: Bools) -> HeadroomError | None:
    """Return what is wrong with the options before anything runs, or None.

    gone: [layer, head] heads that the model lacks already
    """
    from analysis.datasets import split
    from analysis.pruning import steps

    try:
        steps(gone, options.limits)
        split(data, seed=options.seed)
    except HeadroomError as error:
        return error
    return None
