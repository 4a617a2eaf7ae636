"""Heads: what is each head for?"""

from __future__ import annotations

import streamlit as st

from analysis.messages import HeadroomError
from dashboard import corpus, head_panels, head_tables, keys, measuring, panels, sidebar, state, thresholds
from dashboard.text import _, say_markdown


def finish() -> None:
    """Write what the page shows into its link; texts of one's own are never in it."""
    extra: dict[str, object] = {keys.MODEL: sidebar.link_name(), thresholds.RULES: thresholds.in_link()}
    if st.session_state[keys.TEXTS.key] == "own":
        extra[keys.TEXTS.key] = None
    state.write_link(keys.PAGE_LINKS["heads"], extra)


def text_controls() -> None:
    """Draw the choice of texts and of how they are counted."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        corpus.controls()
        state.choose(
            keys.SPECIALS,
            _("Special tokens"),
            {"keep": _("keep"), "hide": _("hide"), "renormalise": _("renormalise")},
            help=_(
                "Hidden, [CLS] and [SEP] are no queries; renormalised, they are neither queries nor keys and each "
                "row is divided by what is left of it."
            ),
        )
        state.choose(
            keys.WEIGHTING,
            _("Each counts the same"),
            {"queries": _("token"), "texts": _("text")},
            help=_("Whether a mean is taken over all tokens of the collection, or over its texts."),
        )


panels.title(_("Heads"), _("What is each head for?"))
text_controls()
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
view = head_panels.View.of(found, chosen, sidebar.model_key())
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
