"""Pruning: how many heads can go?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from analysis.datasets import Data
from analysis.messages import HeadroomError
from dashboard import (
    ablation_controls,
    jobs,
    keys,
    panels,
    pruning_jobs,
    pruning_model,
    pruning_panels,
    sidebar,
    state,
)
from dashboard.downloads import file_button, file_name, to_html
from dashboard.pictures import Figure
from dashboard.text import _, say_markdown

if TYPE_CHECKING:
    from analysis.models import Model
    from analysis.tokens import Bools
    from analysis.trial import Options

ASKED = "pruning.asked"  # whether this session asked for curves already


def finish() -> None:
    """Write what the page shows into its link; data of one's own is never in it."""
    extra: dict[str, object] = {keys.MODEL: sidebar.link_name()}
    if st.session_state[keys.DATA.key] == keys.OWN_DATA:
        extra[keys.DATA.key] = None
    state.write_link(keys.PAGE_LINKS["pruning"], extra)


def open_model() -> Model:
    """Return the chosen model; under the toy, say so and end the page."""
    model = panels.opened_model()
    from analysis.models import Model  # heavy: not before the title stands

    if isinstance(model, Model):
        return model
    st.info(
        _("The toy is untrained, so there is nothing it could lose. Choose a pretrained model at the left.")
    )
    finish()
    raise state.PageEnd


def run_button(options: Options, data: Data, model: str, gone: Bools) -> list[jobs.Job | None]:
    """Draw Run and return the job of each order; the first default runs by itself."""
    wrong = pruning_panels.check_options(options, data, gone)

    def run() -> None:
        state.acted()
        st.session_state[ASKED] = True
        pruning_jobs.start(options, data, model)

    found = pruning_jobs.find(options, data, model)
    if wrong is None and not any(found) and not st.session_state.get(ASKED) and is_default(options):
        st.session_state[ASKED] = True
        pruning_jobs.start(options, data, model)
        found = pruning_jobs.find(options, data, model)
    done = all(job is not None and job.state in ("waiting", "running", "done") for job in found)
    st.button(_("Run"), key="pruning.run", type="primary", on_click=run, disabled=done or wrong is not None)
    if wrong is not None:
        st.error(say_markdown(wrong.message))
    return found


def is_default(options: Options) -> bool:
    """Whether this is what the page starts with: the bundled model, data that ships, nothing else chosen."""
    from analysis.experiment import SAMPLE
    from analysis.trial import Options

    first = Options(data=f"{SAMPLE}en", task="similarity", seeds=keys.FIRST_SEEDS)
    return options == first and first.orders == keys.FIRST_ORDERS


def numbers(view: pruning_panels.View, options: Options, figures: list[Figure]) -> None:
    """Offer the curves as a table and as files, and the command that repeats them."""
    whole = pruning_panels.table(view)
    with st.container(horizontal=True):
        box = st.expander(_("Numbers as a table"), key="pruning.table", on_change="rerun")
        if box.open:
            box.dataframe(whole.round(6), hide_index=True, width="stretch")
            box.code(options.command(), language="bash")
        with st.popover(_("Download"), icon=":material/download:"):
            base = file_name("pruning", options.task)
            st.markdown(_("**The curves**: a row a step, with the heads that are gone"))
            file_button(".csv", lambda: whole.to_csv(index=False).encode("utf-8"), base)
            st.markdown(_("**The pictures**, for a browser without a network"))
            file_button(".html", partial(to_html, figures, base), base)


panels.title(_("Pruning"), _("How many heads can go?"))
model = open_model()
shape = model.geometry.layers, model.geometry.heads
key = sidebar.model_key()
with st.container(horizontal=True, vertical_alignment="bottom"):
    task = ablation_controls.task_box(model)
    data = ablation_controls.data_box(task)
    orders = pruning_panels.order_box(task)
    pruning_panels.limits_boxes(shape[1])
    try:
        options = pruning_panels.options(ablation_controls.options(data, task), orders, shape[1])
    except HeadroomError as error:
        st.error(say_markdown(error.message))
        finish()
        raise state.PageEnd from error
    found = run_button(options, data, key, model.gone)
results = [jobs.result(job) for job in found if job is not None]
curves = [curve for result in results if isinstance(result, list) for curve in result]
pruning_panels.say_failures(found)
if not curves:
    waiting = any(job is not None and not job.is_over for job in found)
    panels.waiting_grid(
        *shape, _("Measuring …") if waiting else _("Press Run to measure this."), key="pruning.waiting"
    )
    finish()
    raise state.PageEnd
view = pruning_panels.view_of(curves)
pruning_panels.summary(view)
figures = pruning_panels.curves_picture(view)
with st.container(horizontal=True, gap="large"):
    with st.container(width=480):
        pruning_panels.along(view)
    with st.container(width="stretch"):
        pruning_model.make_real(view, model)
numbers(view, options, figures)
finish()
