"""Ablation: which heads matter, beyond noise?"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import streamlit as st

from analysis.datasets import Data
from analysis.messages import HeadroomError
from dashboard import (
    ablating,
    ablation_controls,
    ablation_panels,
    ablation_pictures,
    ablation_views,
    jobs,
    keys,
    panels,
    sidebar,
    state,
)
from dashboard.pictures import Figure
from dashboard.text import _, say_markdown

if TYPE_CHECKING:
    from analysis.models import Model

ASKED = "ablation.asked"  # whether this session asked for an experiment already
ERROR = "ablation.error"  # what was asked for and why it could not be started


def finish() -> None:
    """Write what the page shows into its link; data of one's own is never in it."""
    extra: dict[str, object] = {keys.MODEL: sidebar.link_name()}
    if st.session_state[keys.DATA.key] == keys.OWN_DATA:
        extra[keys.DATA.key] = None
    state.write_link(keys.PAGE_LINKS["ablation"], extra)


def open_model() -> Model:
    """Return the chosen model; under the toy, show the positive control alone and end the page."""
    model = panels.opened_model()
    from analysis.models import Model  # heavy: not before the title stands

    if isinstance(model, Model):
        return model
    st.info(
        _(
            "The toy is untrained, so there is nothing it could lose. Choose a pretrained model at the left; below is the "
            "positive control, a network set by hand."
        )
    )
    ablation_views.control_picture()
    finish()
    raise state.PageEnd


def run_button(options: ablating.Options, data: Data) -> jobs.Job | None:
    """Draw Run and return the job of what is asked for, if it was run; the first default runs by itself."""
    job = ablating.find(options, data)

    def run() -> None:
        state.acted()
        st.session_state[ASKED] = True
        st.session_state[ERROR] = None
        if job is not None:
            jobs.forget(job.key)
        try:
            ablating.start(options, data, sidebar.model_key())
        except HeadroomError as error:
            st.session_state[ERROR] = options, error.message

    busy = job is not None and job.state in ("done", "running", "waiting")
    st.button(_("Run"), key="ablation.run", type="primary", on_click=run, disabled=busy)
    if job is None and not st.session_state.get(ASKED) and ablating.is_default(options):
        st.session_state[ASKED] = True
        return ablating.start(options, data, sidebar.model_key())
    return job


def waiting(job: jobs.Job | None, options: ablating.Options, shape: tuple[int, int]) -> None:
    """Draw what is there before a result: what to do, how far it is, or what went wrong; and the heads of a set."""
    error = st.session_state.get(ERROR)
    if error is not None and error[0] == options:
        st.error(say_markdown(error[1]))
    if job is not None:
        ablation_views.say_job(job)
    if options.protocol in ("set", "pairs"):
        ablation_panels.set_grid(shape)
    else:
        over = job is None or job.is_over  # cancelled or failed
        said = _("Press Run to measure this.") if over else _("Measuring …")
        panels.waiting_grid(*shape, said, key="ablation.waiting")


def result(found: ablating.Found) -> None:
    """Draw what an experiment found."""
    view = ablation_panels.view_of(found)
    ablation_panels.summary(view)
    with st.container(horizontal=True, gap="large"):
        with st.container(width=480):
            if view.protocol in ("single", "all-but-one"):
                ablation_panels.change_grid(view)
            else:
                ablation_panels.set_grid(view.shape)
                ablation_panels.metric_box(found)
        with st.container(width="stretch"):
            pictures = beside(view)
    ablation_views.tables(view, pictures)


def beside(view: ablation_panels.View) -> list[Figure]:
    """Draw the picture beside the grid, by the protocol and the choice, and return it."""
    if view.protocol == "single":
        draw = {
            "ranked": ablation_pictures.ranked_bars,
            "importance": ablation_views.importance_picture,
            "measure": ablation_views.measure_picture,
            "control": lambda _view: ablation_views.control_picture(),
        }
        return draw[ablation_views.view_box(view)](view)
    if view.protocol == "all-but-one":
        return ablation_pictures.layers_picture(view)
    if view.protocol == "pairs":
        return ablation_pictures.pairs_picture(view)
    return ablation_pictures.ranked_bars(view)


panels.title(_("Ablation"), _("Which heads matter, beyond noise?"))
model = open_model()
shape = model.geometry.layers, model.geometry.heads
with st.container(horizontal=True, vertical_alignment="bottom"):
    task = ablation_controls.task_box(model)
    data = ablation_controls.data_box(task)
    ablation_controls.protocol_boxes()
    options = ablation_controls.options(data, task)
    job = run_button(options, data)
found = None if job is None else jobs.result(job)
if found is not None:  # its class may be an older one: a server that sees the code change imports it anew
    result(cast(ablating.Found, found))
else:
    waiting(job, options, shape)
finish()
