"""Compare: two sentences under one model, or one sentence under two, word laid over word."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import streamlit as st

from analysis.compare import Alignment, align, as_maps, changes
from analysis.maps import AttentionMaps, Floats, Head, largest, strongest, with_specials
from analysis.statistics import describe, head_entropy
from analysis.tokens import Bools, Ints, clip
from dashboard import boxes, cache, inputs, keys, panels, sidebar, state
from dashboard.chart import chart
from dashboard.examples import MINIMAL_PAIRS
from dashboard.figures import difference_map, head_map
from dashboard.naming import number
from dashboard.pictures import CHART, Figure
from dashboard.tables import map_table
from dashboard.text import _, decimals, escape, language, say_markdown


@dataclass(frozen=True, eq=False)
class Pair:
    """Two texts, or one under two sources: the maps of both as they are shown, and their alignment."""

    first: AttentionMaps
    second: AttentionMaps
    names: tuple[str, str]
    alignment: Alignment

    @property
    def gone(self) -> Bools:
        """Which heads [layer, head] were removed from either; of two with the same heads."""
        return self.first.gone | self.second.gone

    def changes(self) -> Floats | None:
        """Return [layer, head] how much each head changes, or None where the two have other heads."""
        if self.first.weights.shape[:2] != self.second.weights.shape[:2]:
            return None
        return changes(self.first, self.second, self.alignment)


def sentence_boxes() -> None:
    """Draw the boxes of the two sentences, and the minimal pairs that ship."""
    first, second = st.session_state[keys.SIDES]

    def take(place: int, text: str) -> None:
        sides = list(st.session_state[keys.SIDES])
        sides[place] = text
        state.take_sides(*sides)

    with st.container(horizontal=True, vertical_alignment="bottom"):
        inputs.text_box(_("First sentence"), "side.first", first, partial(take, 0))
        inputs.text_box(_("Second sentence"), "side.second", second, partial(take, 1))
        _minimal_box()


def _minimal_box() -> None:
    boxes.select(
        _("Minimal pairs"),
        range(1, len(MINIMAL_PAIRS) + 1),
        key=f"minimal.box.{language()}",
        shown=st.session_state[keys.MINIMAL],
        take=state.take_minimal,
        format_func=lambda i: " / ".join(MINIMAL_PAIRS[i - 1]),
        placeholder=_("your own"),
        width=170,
    )


def two_sentences() -> Pair:
    """Return the two sentences under the chosen model. Raises TextError."""
    texts = st.session_state[keys.SIDES]
    first, second = (_read(sidebar.model_key(), text) for text in texts)
    return Pair(first, second, (_("first"), _("second")), align(first.queries, second.queries))


def two_sources(other: str) -> Pair:
    """Return the session's sentence under the chosen model and under ``other``. Raises TextError, ModelError."""
    text, pair = st.session_state[keys.TEXT], st.session_state[keys.PAIR]
    pair = pair if pair and pair.strip() else None
    first, second = (_read(key, text, pair) for key in (sidebar.model_key(), other))
    names = sidebar.model_name(sidebar.model_key()), sidebar.model_name(other)
    return Pair(first, second, names, align(first.queries, second.queries))


def _read(key: str, text: str, pair: str | None = None) -> AttentionMaps:
    whole = cache.maps(key, text, pair, st.session_state[keys.UNITS.key])
    return with_specials(whole, st.session_state[keys.SPECIALS.key])


def say_alignment(pair: Pair) -> None:
    """Say which words only one side has."""
    parts = []
    for name, places in zip(pair.names, (pair.alignment.second, pair.alignment.first), strict=True):
        words = [pair.alignment.labels[i] for i in np.flatnonzero(places < 0)]
        if words:
            said = _("only in {name}: {words}")
            parts.append(
                said.format(
                    name=escape(name), words=", ".join(f"**{escape(clip(word))}**" for word in words[:12])
                )
            )
    shared = int((~pair.alignment.special[pair.alignment.shared]).sum())
    st.markdown(" · ".join([_("{count} words in both").format(count=shared), *parts]))
    for name, maps in zip(pair.names, (pair.first, pair.second), strict=True):
        for note in maps.notes:
            st.caption(f"{escape(name)}: {say_markdown(note)}")


def change_grid(values: Floats, head: Head, gone: Bools) -> None:
    """Draw the grid of heads coloured by how much each changes between the two sides, [layer, head] in bits.

    A click chooses the head on both sides.
    """
    best = largest(values)
    if gone.all():
        st.info(_("Every head was removed from one of the two, so none can be compared."))
        return
    if best is None:
        st.info(_("The two have no word in common, so nothing can be laid over each other."))
        return
    most = float(values[best.layer, best.index])
    if most > 0:
        said = _("Which head changes most? **{best}**, {bits} bits")
        st.markdown(said.format(best=best, bits=number(most)))
    else:
        st.markdown(_("Nothing changes in any head."))
    panels.head_grid(
        values,
        meaning=_("change (bits)"),
        chosen=head,
        key="compare.changes",
        scale=panels.ROOT,
        gone=gone,
        on_choose=state.choose_both,
    )
    st.caption(
        _(
            "Colour: Jensen-Shannon divergence in bits between a head's rows on both sides, mean over the words that "
            "both have. 0: nothing changes; 1: the rows have nothing in common."
        )
    )


def picture(pair: Pair, head: Head, other: Head) -> list[Figure]:
    """Draw the difference of a head's maps over the words of both sides, or one side alone."""
    names = {"difference": _("difference"), "first": escape(pair.names[0]), "second": escape(pair.names[1])}
    which = boxes.choose(keys.PICTURE, _("View"), names)
    there = sides_there(pair, head, other)
    if not all(there):
        side = there.index(False)
        same = pair.first.source == pair.second.source
        panels.say_removed((head, other)[side], None if same else pair.names[side])
        return []
    first = as_maps(pair.first.at(head), pair.alignment, pair.alignment.first)
    second = as_maps(pair.second.at(other), pair.alignment, pair.alignment.second)
    _say_strongest(pair, first.weights[0, 0], second.weights[0, 0])
    if which == "difference":
        figure = difference_map(second, first)
        alt = _("Difference of the attention maps, second minus first, of {head}.").format(head=head)
    else:
        figure = head_map(first if which == "first" else second)
        alt = _("Attention map of {head}.").format(head=head if which == "first" else other)
    chart(figure, key="compare.map", config=CHART, alt=alt)
    if which == "difference":
        st.caption(_("Blue: more in the second; red: less. A row is empty where one side lacks the word."))
    shown = {"first": pair.names[0], "second": pair.names[1]}.get(which, names["difference"])
    title = f"{pair.names[0]} {head} / {pair.names[1]} {other}: {shown}"
    return [(title, figure)]


def sides_there(pair: Pair, head: Head, other: Head) -> list[bool]:
    """Return of both sides whether their head was not removed."""
    sides = ((pair.first, head), (pair.second, other))
    return [not maps.gone[which.layer, which.index] for maps, which in sides]


def _say_strongest(pair: Pair, first: Floats, second: Floats) -> None:
    """Say which weight between words that both sides have differs most, and what goes to those that one has."""
    change = np.nan_to_num(np.abs(second - first))
    shared = pair.alignment.shared
    only = np.setdiff1d(np.arange(change.shape[1]), shared)
    change[:, only] = 0
    if not change.size or not change.any():
        st.markdown(_("Nothing differs here."))
        return
    query, key = strongest(change)
    labels = pair.alignment.labels
    st.markdown(
        _("Most different: **{query}** → **{key}**, {a:.2f} in {first}, {b:.2f} in {second}").format(
            query=escape(clip(labels[query])),
            key=escape(clip(labels[key])),
            a=float(first[query, key]),
            b=float(second[query, key]),
            first=escape(pair.names[0]),
            second=escape(pair.names[1]),
        )
        + _to_new_words(pair, first, second, only, shared)
    )


def _to_new_words(pair: Pair, first: Floats, second: Floats, only: Ints, shared: Ints) -> str:
    """Return what the words of both sides give, in the mean, to the words that one side alone has."""
    words = [i for i in only if not pair.alignment.special[i]]
    if not words or not len(shared):
        return ""
    given = [
        f"**{escape(clip(pair.alignment.labels[i]))}** {decimals(max(float(side[shared, i].mean()) for side in (first, second)), 2)}"
        for i in words[:6]
    ]
    return " · " + _("given to what one side alone has, in the mean: {words}").format(words=", ".join(given))


def say_heads(pair: Pair, head: Head, other: Head) -> None:
    """Say in a sentence each what the two heads do with the text."""
    for name, maps, which in ((pair.names[0], pair.first, head), (pair.names[1], pair.second, other)):
        said = say_markdown(describe(maps.at(which), Head(0, 0)))
        st.markdown(f"**{escape(name)}** · **{which}** {said}")


def two_grids(pair: Pair, head: Head, other: Head) -> None:
    """Draw the entropy of all heads on both sides, where their shapes differ."""
    sides = (
        (pair.names[0], pair.first, head, state.choose_head),
        (pair.names[1], pair.second, other, state.choose_second_head),
    )
    for i, (name, maps, chosen, choose) in enumerate(sides):
        meaning = _("{name}: normalised entropy").format(name=name)
        st.caption(escape(meaning))
        panels.head_grid(
            head_entropy(maps)[1],
            meaning=meaning,
            chosen=chosen,
            key=f"compare.entropy.{i}",
            gone=maps.gone,
            on_choose=choose,
        )


def tables(pair: Pair, head: Head, other: Head) -> None:
    """Draw a closed box with both maps as tables over the words of both sides."""
    box = st.expander(_("Numbers as a table"), key="compare.words.table", on_change="rerun")
    if not box.open:
        return
    sides = (
        (pair.names[0], pair.first.at(head), pair.alignment.first),
        (pair.names[1], pair.second.at(other), pair.alignment.second),
    )
    for name, maps, places in sides:
        if maps.gone.any():
            continue
        box.markdown(
            _("**{head}** in {name}: weight from each query (row) to each key (column)").format(
                head=maps.first, name=escape(name)
            )
        )
        box.dataframe(map_table(as_maps(maps, pair.alignment, places)), width="stretch")
