"""Ablate live: what happens if I switch this off?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from analysis.answers import lines
from analysis.maps import Head, largest
from analysis.messages import HeadroomError
from analysis.tokens import Bools
from dashboard import boxes, cache, inputs, keys, live_panels, live_pictures, panels, sidebar, state, switched
from dashboard.downloads import file_button, file_name, to_html
from dashboard.pictures import Figure
from dashboard.text import _, say_markdown

if TYPE_CHECKING:
    from analysis.models import Model

MOST_TRIED = 12_000  # heads times tokens: up to here every head is tried alone at each new text
LINK = keys.PAGE_LINKS["live"]


def finish() -> None:
    """Write what the page shows into its link: an example by its number, never a sentence of one's own."""
    shipped = st.session_state[keys.EXAMPLE]
    extra: dict[str, object] = {keys.MODEL: sidebar.link_name()}
    if shipped not in (None, 1):
        extra[keys.EXAMPLE] = shipped
    state.write_link(LINK, extra)


def open_view() -> live_panels.View:
    """Read the session's text before and after; where there is nothing to read, say so and end the page."""
    model = panels.opened_model()
    from analysis.models import Model  # heavy: not before the title stands

    if not isinstance(model, Model):
        st.info(
            _(
                "The toy has one layer and says nothing that could change. Choose a pretrained model at the left to "
                "switch its heads off."
            )
        )
        finish()
        raise state.PageEnd
    pair = st.session_state[keys.PAIR]
    if pair is not None and not pair.strip():
        st.caption(_("Type the second sentence, and the two are read together."))
        pair = None
    shape = model.geometry.layers, model.geometry.heads
    off = switched.of_session(*shape) & ~model.gone
    asked = sidebar.model_key(), st.session_state[keys.TEXT], pair
    try:
        before = cache.answer(*asked, bytes(shape[0] * shape[1]), shape)
        after = cache.answer(*asked, off.tobytes(), shape)
        size = off.size * max(len(maps.queries) for maps in before.maps)
        effects = cache.effects(*asked) if size <= MOST_TRIED else None
    except HeadroomError as error:
        st.info(say_markdown(error.message))
        finish()
        raise state.PageEnd from error
    for note in {str(note): note for maps in before.maps for note in maps.notes}.values():
        st.caption(say_markdown(note))
    mask = model.tokenizer.mask_token
    if model.readout.kind == "masked" and before.kind != "guesses" and mask is not None:
        st.caption(
            _("Write {mask} in place of a word, and the model’s guesses for it are shown.").format(
                mask=f"`{mask}`"
            )
        )
    said = lines(before, after, partial(_spell, model))
    return live_panels.View(before, after, said, off, _head(model.gone, effects), effects, asked)


def _spell(model: Model, piece: int) -> str:
    """Return how a guess reads; a blank, or a part of a letter, by its name in the vocabulary."""
    with model.tokenizing:
        read = str(model.tokenizer.decode([piece])).strip()
        return read if read.strip("\ufffd") else str(model.tokenizer.convert_ids_to_tokens(piece))


def _head(gone: Bools, effects: object) -> Head:
    """Return the chosen head; until one is, the one that changes most alone."""
    head = state.chosen_head(gone.shape[0], gone.shape[1], gone)
    chosen = [st.session_state[key] for key in (keys.LAYER, keys.HEAD)]
    if chosen == [None, None] and isinstance(effects, np.ndarray):
        return largest(np.abs(effects)) or head
    return head


def side_box() -> None:
    """Let one of two sentences that are read apart be chosen for the pictures of attention."""
    names = {"first": _("the first sentence"), "second": _("the second sentence")}
    boxes.choose(keys.SIDE, _("Attention in"), names)


def numbers(view: live_panels.View, figures: list[Figure]) -> None:
    """Offer all numbers as tables and files."""
    said, heads = live_panels.said_table(view), live_panels.heads_table(view)
    with st.container(horizontal=True):
        box = st.expander(_("Numbers as a table"), key="live.table", on_change="rerun")
        if box.open:
            box.dataframe(said, hide_index=True, width="stretch")
            box.dataframe(heads, hide_index=True, width="stretch")
        with st.popover(_("Download"), icon=":material/download:"):
            base = file_name(
                "live", sidebar.model_name(sidebar.model_key()), switched.write(view.off) or "all-on"
            )
            st.markdown(_("**What the model says**, before and after"))
            file_button(".csv", lambda: said.to_csv(index=False).encode("utf-8"), f"{base}-said")
            st.markdown(_("**All heads**"))
            file_button(".csv", lambda: heads.to_csv(index=False).encode("utf-8"), f"{base}-heads")
            if figures:
                st.markdown(_("**The pictures**, for a browser without a network"))
                file_button(".html", partial(to_html, figures, base), base)


panels.title(_("Ablate live"), _("What happens if I switch this off?"))
inputs.sentences()
view = open_view()
seen = live_pictures.seen(view)
with st.container(horizontal=True, gap="large"):
    with st.container(width=480):
        live_panels.switches(view)
        if seen is not None:
            live_pictures.moved_grid(view, *seen)
    with st.container(width="stretch"):
        live_panels.say_off(view)
        figures = live_pictures.prediction(view)
        if seen is not None:
            if len(view.before.maps) > 1:
                side_box()
            inputs.token_controls(is_pair=False)
            figures += live_pictures.watched_map(view, seen[2])
numbers(view, figures)
finish()
