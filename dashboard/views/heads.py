"""Heads: what is each head for?"""

from __future__ import annotations

import streamlit as st

from analysis.messages import HeadroomError
from dashboard import corpus, head_panels, head_tables, keys, measuring, panels, sidebar, state, thresholds
from dashboard.head_view import View
from dashboard.text import _, say_markdown


def finish() -> None:
    """Write what the page shows into its link; texts of one's own are never in it."""
    extra: dict[str, object] = {keys.MODEL: sidebar.link_name(), thresholds.RULES: thresholds.in_link()}
    if st.session_state[keys.TEXTS.key] == "own":
        extra[keys.TEXTS.key] = None
    state.write_link(keys.PAGE_LINKS["heads"], extra)


panels.title(_("Heads"), _("What is each head for?"))
corpus.settings()
slot = st.empty()
if not sidebar.is_ready():
    with slot.container():
        panels.waiting_grid(6, 12)
sidebar.open_model()
chosen = corpus.chosen()
asked = (
    sidebar.model_key(),
    chosen,
    st.session_state[keys.SPECIALS.key],
    st.session_state[keys.WEIGHTING.key],
)
try:
    found = measuring.statistics(*asked)
except HeadroomError as error:
    st.error(say_markdown(error.message))
    finish()
    raise state.PageEnd from error
if found is None:
    with slot.container():
        measuring.say_state(measuring.statistics_key(*asked))
        panels.waiting_grid(*measuring.shape(sidebar.model_key()), _("Measuring …"), key="heads.waiting")
    finish()
    raise state.PageEnd
slot.empty()
view = View.of(found, chosen, sidebar.model_key())
head_panels.summary(view)
with st.container(horizontal=True, gap="large"):
    with st.container(width=480):
        head_panels.grid(view)
    with st.container(width="stretch"):
        figures = head_panels.panel(view)
head_tables.sentences(view)
with st.container(horizontal=True):
    head_tables.table(view)
    head_tables.downloads(view, figures)
head_tables.rules(view)
finish()
