"""Attention: what does this head do with my sentence?"""

from __future__ import annotations

import streamlit as st

from analysis.maps import Head, largest
from analysis.messages import HeadroomError
from analysis.statistics import describe, row_entropy
from analysis.tokens import clip
from dashboard import (
    boxes,
    downloads,
    inputs,
    keys,
    lenses,
    panels,
    pictures,
    sidebar,
    state,
    switched,
    tables,
)
from dashboard.reading import Reading, query_and_key, read
from dashboard.text import _, escape, isolate, language, say_markdown

LINK = keys.PAGE_LINKS["attention"]
LENSED = ("map", "lines")  # the views that show a map through a lens


def finish(head: Head | None = None) -> None:
    """Write what the page shows into its link: an example by its number, never a sentence of one's own."""
    shipped = st.session_state[keys.EXAMPLE]
    extra: dict[str, object] = {keys.MODEL: sidebar.link_name()}
    if head is not None and st.session_state[keys.LAYER] is not None:
        extra |= {keys.LAYER: head.layer, keys.HEAD: head.index}
    if shipped is not None:
        first = st.session_state[keys.FIRST_LINK]
        for name, place in zip((keys.QUERY, keys.KEY), first, strict=True):
            extra[name] = st.session_state[name] if st.session_state[name] != place else None
        extra[keys.EXAMPLE] = shipped if shipped != 1 else None
    state.write_link(LINK, extra)


def open_reading() -> Reading:
    """Read the session's text under its model; where there is nothing to read, say so and end the page."""
    panels.opened_model()
    pair = st.session_state[keys.PAIR]
    if pair is not None and not pair.strip():
        st.caption(_("Type the second sentence, and the two are read together."))
        pair = None
    choices = [st.session_state[choice.key] for choice in (keys.UNITS, keys.SPECIALS)]
    try:
        return read(sidebar.model_key(), st.session_state[keys.TEXT], pair, *choices)
    except HeadroomError as error:
        st.info(say_markdown(error.message))
        finish()
        raise state.PageEnd from error


def choose_query(reading: Reading, unit: int) -> None:
    """Make the word at ``unit`` the query."""
    state.choose_link(query=reading.places[unit])


def readout(reading: Reading, head: Head, query: int) -> None:
    """Say where the query looks most, and how spread its look is."""
    one = reading.view(head)
    row = one.weights[0, 0, query]
    names = reading.names
    bits = float(row_entropy(reading.maps.at(head), reading.specials)[0][0, 0, query])
    most = reading.most_bits(head, query)
    top = int(row.argmax())
    st.markdown(
        _(
            "query **{query}** · looks most at **{key}** {weight:.2f} · entropy {bits:.2f} of {most:.2f} bits"
        ).format(query=escape(names[query]), key=escape(names[top]), weight=row[top], bits=bits, most=most)
    )


def key_box(reading: Reading, key: int) -> None:
    """Draw the box that chooses the key whose link colours the grid."""
    labels = reading.tokens.labels
    boxes.select(
        _("Key (looked at)"),
        range(len(labels)),
        key=f"key.box.{language()}",
        shown=key,
        take=lambda unit: state.choose_link(key=reading.places[unit]),
        format_func=lambda i: f"{i} {isolate(clip(labels[i]))}",
        width=140,
    )


def head_controls(reading: Reading, head: Head, query: int, key: int) -> None:
    """Draw the grid of heads, what colours it, and the boxes that choose a head without it."""
    with st.container(horizontal=True):
        boxes.number_box(_("Layer"), keys.LAYER, reading.maps.layers, head.layer, width=78)
        boxes.number_box(_("Head"), keys.HEAD, reading.maps.heads, head.index, width=78)
        colour = boxes.choose(
            keys.COLOUR,
            _("Colour"),
            {"link": _("one link"), "entropy": _("entropy")},
            widget=st.selectbox,
            width=116,
        )
        if colour == "link":
            key_box(reading, key)
    names = reading.names
    if colour == "link":
        values = reading.links(query, key)
        best = largest(values) or head
        st.markdown(
            _("Which head links **{query}** to **{key}**? Most: **{best}** {weight:.2f}").format(
                query=escape(names[query]),
                key=escape(names[key]),
                best=best,
                weight=values[best.layer, best.index],
            )
        )
        meaning = _("weight of “{query}” on “{key}”").format(query=names[query], key=names[key])
        note = _("Colour: the weight of this one link in every head, 0 to 1, by its square root.")
    else:
        values = reading.entropies()[1]
        meaning = _("normalised entropy")
        note = _(
            "Colour: normalised entropy, mean over the queries. 0: one word gets all; 1: all get the same."
        )
    panels.head_grid(
        values,
        meaning=meaning,
        chosen=head,
        key="grid",
        scale=panels.ROOT if colour == "link" else panels.Scale(),
        gone=reading.maps.gone,
    )
    st.caption(note)


def switch_off(reading: Reading, head: Head) -> None:
    """Offer to switch the head off on this text, and go there."""
    if st.button(
        _("Switch {head} off and see what changes").format(head=head),
        key="attention.off",
        icon=":material/arrow_forward:",
        type="tertiary",
    ):
        state.choose_head(head.layer, head.index)
        switched.only(head, (reading.maps.layers, reading.maps.heads))
        st.switch_page("views/live.py")


panels.title(_("Attention"), _("What does this head do with my sentence?"))
inputs.sentences()
reading = open_reading()
for note in reading.maps.notes:
    st.caption(say_markdown(note))
head = state.chosen_head(reading.maps.layers, reading.maps.heads, reading.maps.gone)
chosen = query_and_key(reading, head)
if chosen is None:
    st.info(
        _("Only special tokens are left of this text, and they are hidden. Keep them to see their attention.")
    )
    inputs.token_controls(reading.maps.is_pair)
    finish()
    raise state.PageEnd
query, key = chosen
has_pieces = sidebar.model_key() != sidebar.TOY  # the toy reads whole words and no special tokens
lens = st.session_state[keys.LENS.key] if st.session_state[keys.VIEW.key] in LENSED else "weights"
if reading.is_gone(head):
    panels.say_removed(head)
else:
    st.markdown(f"**{head}** {say_markdown(describe(reading.view(head), Head(0, 0)))}")
panels.word_row(
    reading,
    reading.view(head, lens).weights[0, 0, query],
    query,
    key="words",
    on_choose=lambda unit: choose_query(reading, unit),
)
if pictures.is_there(reading, head, lens):
    if lens == "weights":
        readout(reading, head, query)
    else:
        st.markdown(lenses.readout(reading, head, query, lens))
with st.container(horizontal=True, gap="large"):
    with st.container(width=480):
        head_controls(reading, head, query, key)
        if has_pieces and not reading.is_gone(head):  # the toy says nothing that could change
            switch_off(reading, head)
    with st.container(width="stretch"):
        with st.container(horizontal=True):
            view = pictures.view_controls()
            if view in LENSED:
                lens = lenses.control()
            elif view == "heads":
                scope = pictures.scope_controls(head)
            elif view == "beside":
                second = pictures.beside_controls(reading, head)
        if has_pieces:
            inputs.token_controls(reading.maps.is_pair)
        others = {"beside": lambda: [second], "lines": lambda: lenses.further_heads(reading, head, lens)}
        asked = list(dict.fromkeys([head, *others.get(view, list)()]))
        there = [which for which in asked if pictures.is_there(reading, which, lens)]
        whole = there == asked
        figures = []
        if view == "beside" and second != head and second not in there:
            panels.say_removed(second)
        if view == "map" and whole:
            figures = pictures.map_picture(reading, head, query, key, lens)
        elif view == "lines":
            figures = pictures.lines_view(reading, head, query, lens)
        elif view == "heads":
            figures = pictures.heads_picture(reading, head, scope)
        elif view == "why" and whole:
            figures = pictures.why_view(reading, head, query, key)
        elif view == "beside" and whole:
            pictures.say_difference(reading, head, second)
        lenses.caveat()
if view == "beside" and whole:
    figures = pictures.beside_picture(reading, head, second)
shown = [pictures.part(reading, which, lens) for which in there]
with st.container(horizontal=True):
    products = lenses.why_table(reading, head, query, key) if view == "why" and whole else None
    tables.attention_tables(reading, shown, lens, products)
    downloads.attention_menu(shown, reading.maps, figures, lens)
finish(head)
