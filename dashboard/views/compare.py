"""Compare: what changes between these two?"""

from __future__ import annotations

from functools import partial
from typing import NoReturn

import streamlit as st

from analysis.export import to_bytes
from analysis.findings import HeadStatistics
from analysis.maps import Head, Specials, largest
from analysis.messages import HeadroomError
from analysis.tokens import Bools
from dashboard import (
    boxes,
    compare_heads,
    compare_texts,
    corpus,
    inputs,
    keys,
    measuring,
    panels,
    sidebar,
    state,
)
from dashboard.downloads import file_button, file_name, to_html
from dashboard.head_figures import Side
from dashboard.pictures import Figure
from dashboard.text import _, say_markdown


def finish() -> None:
    """Write what the page shows into its link; sentences and texts of one's own are never in it."""
    extra: dict[str, object] = {keys.MODEL: sidebar.link_name()}
    if st.session_state[keys.TEXTS.key] == "own":
        extra[keys.TEXTS.key] = None
    mode = st.session_state[keys.COMPARE.key]
    for shown, key in (("sentences", keys.MINIMAL), ("sources", keys.EXAMPLE)):
        if mode == shown and st.session_state[key] not in (None, 1):
            extra[key] = st.session_state[key]
    if mode in ("sources", "models"):
        extra[keys.MODEL_B] = sidebar.second_model()
    state.write_link(keys.PAGE_LINKS["compare"], extra)


def stop(error: HeadroomError) -> NoReturn:
    """Say what cannot be compared, and end the page."""
    st.info(say_markdown(error.message))
    finish()
    raise state.PageEnd from error


def mode_box() -> str:
    """Draw the choice of what is compared, and return it."""
    names = {
        "sentences": _("two sentences"),
        "sources": _("one sentence, two models"),
        "heads": _("two heads"),
        "models": _("two models"),
    }
    return boxes.choose(keys.COMPARE, _("Compare"), names)


def head_boxes(
    gone: Bools,
    other_gone: Bools | None,
    first: Head | None = None,
    *,
    one_model: bool = False,
) -> tuple[Head, Head]:
    """Draw the boxes of the head, or of two where ``other_gone`` is given, and return them.

    gone, other_gone: [layer, head] which heads were removed from the model; no choice starts with one of them
    first: the head to look at until one is chosen
    one_model: whether both are of one model, where the second starts as the neighbour of the first
    """
    shape = gone.shape
    either = gone | other_gone if other_gone is not None and other_gone.shape == shape else gone
    head = state.chosen_head(shape[0], shape[1], either)
    if first is not None and st.session_state[keys.LAYER] is None:
        head = first
    with st.container(horizontal=True):
        layer = boxes.number_box(_("Layer"), keys.LAYER, shape[0], head.layer, width=78)
        index = boxes.number_box(_("Head"), keys.HEAD, shape[1], head.index, width=78)
        head = Head(layer, index)
        if other_gone is None:
            return head, head
        layers, heads = other_gone.shape
        other = state.second_head(layers, heads, state.beside(head, shape[1], gone) if one_model else head)
        layer = boxes.number_box(_("Second layer"), keys.LAYER_B, layers, other.layer, width=110)
        index = boxes.number_box(_("Second head"), keys.HEAD_B, heads, other.index, width=110)
    return head, Head(layer, index)


def compare_words(mode: str) -> None:
    """Lay two sentences, or one under two models, over each other."""
    try:
        if mode == "sentences":
            pair = compare_texts.two_sentences()
        else:
            pair = compare_texts.two_sources(sidebar.second_model())
    except HeadroomError as error:
        stop(error)
    compare_texts.say_alignment(pair)
    values = pair.changes()
    best = None if values is None else largest(values)
    with st.container(horizontal=True, gap="large"):
        with st.container(width=480):
            other_gone = None if mode == "sentences" else pair.second.gone
            head, other = head_boxes(pair.first.gone, other_gone, best)
            if values is not None:
                compare_texts.change_grid(values, head, pair.gone)
            else:
                compare_texts.say_heads(pair, head, other)
                compare_texts.two_grids(pair, head, other)
        with st.container(width="stretch"):
            inputs.token_controls(is_pair=False)
            figures = compare_texts.picture(pair, head, other)
    with st.container(horizontal=True):
        compare_texts.tables(pair, head, other)
        with st.popover(_("Download"), icon=":material/download:"):
            for name, maps, which in ((pair.names[0], pair.first, head), (pair.names[1], pair.second, other)):
                base = file_name("compare", name, str(which))
                if not maps.gone[which.layer, which.index]:
                    file_button(".csv", partial(to_bytes, maps.at(which), ".csv"), base)
            if figures:
                file_button(".html", partial(to_html, figures, "Headroom"), file_name("compare", str(head)))


def compare_collections(mode: str) -> None:
    """Compare two heads of one model, or two models, over a collection of texts."""
    corpus.settings()
    texts = corpus.chosen()
    settings = (st.session_state[keys.SPECIALS.key], st.session_state[keys.WEIGHTING.key])
    models = [sidebar.model_key()] * 2 if mode == "heads" else [sidebar.model_key(), sidebar.second_model()]
    try:
        each = {model: measured(model, texts, *settings) for model in dict.fromkeys(models)}
    except HeadroomError as error:
        stop(error)
    first, second = (each[model] for model in models)
    if first is None or second is None:
        finish()
        raise state.PageEnd
    names = None if mode == "heads" else (sidebar.model_name(models[0]), sidebar.model_name(models[1]))
    with st.container(horizontal=True, gap="large"):
        with st.container(width=480):
            head, other = head_boxes(first.gone, second.gone, one_model=mode == "heads")
            if names is None:
                sides = Side(first, head, str(head)), Side(first, other, str(other))
                compare_heads.pick_grid(first, head, other)
            else:
                sides = (
                    Side(first, head, f"{names[0]} {head}"),
                    Side(second, other, f"{names[1]} {other}"),
                )
                compare_heads.model_grids(first, second, names, head, other)
        with st.container(width="stretch"):
            if compare_heads.say_removed(sides, names):
                return
            figures = compare_heads.two_sides(sides, models[0] if mode == "heads" else None, texts)
    collection_files(sides, figures)


def measured(model: str, texts: corpus.Corpus, specials: Specials, weighting: str) -> HeadStatistics | None:
    """Return the statistics of a model; where they are not there yet, say so and return None."""
    found = measuring.statistics(model, texts, specials, weighting)
    if found is None:
        measuring.say_state(measuring.statistics_key(model, texts, specials, weighting))
    return found


def collection_files(sides: tuple[Side, Side], figures: list[Figure]) -> None:
    """Offer the table of differences, on the page and as a file."""
    table = compare_heads.difference_table(*sides)
    box = st.expander(_("Numbers as a table"), key="compare.table", on_change="rerun", expanded=True)
    if box.open:
        box.dataframe(table, hide_index=True, width="stretch")
    with st.popover(_("Download"), icon=":material/download:"):
        base = file_name("compare", *(side.name for side in sides))
        file_button(".csv", lambda: table.to_csv(index=False).encode("utf-8"), base)
        file_button(".html", partial(to_html, figures, base), base)


panels.title(_("Compare"), _("What changes between these two?"))
with st.container(horizontal=True, vertical_alignment="bottom"):
    mode = mode_box()
    if mode in ("sources", "models"):
        sidebar.second_model_box()
if mode == "sentences":
    compare_texts.sentence_boxes()
elif mode == "sources":
    inputs.sentences()
panels.opened_model()
if mode in ("sentences", "sources"):
    compare_words(mode)
else:
    compare_collections(mode)
finish()
