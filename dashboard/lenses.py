"""Lenses beside the raw weights: what a head carries, what flows from the input, and why a query looks at a key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from analysis.maps import AttentionMaps, Head
from analysis.tokens import Tokens, clip
from dashboard import boxes, cache, keys, state
from dashboard.components.lines import End, Strand, lines
from dashboard.lens_figures import why_figure
from dashboard.naming import number
from dashboard.reading import Reading
from dashboard.text import _, escape

# Okabe-Ito's colours that show on light and on dark, the chosen head's first.
STRANDS = ("#d55e00", "#56b4e9", "#009e73", "#cc79a7", "#e69f00", "#0072b2", "#999999", "#8a6bbd")


def control() -> str:
    """Draw the choice of lens and return it."""
    names = {"weights": _("weights"), "norms": _("norms"), "rollout": _("rollout")}
    return boxes.choose(
        keys.LENS,
        _("Lens"),
        names,
        widget=st.selectbox,
        width=116,
        help=_(
            "Weights: the attention as the model computes it. Norms (Kobayashi 2020): each weight times the length "
            "of what is carried, as shares of a row. Rollout (Abnar and Zuidema 2020): how much of each input word "
            "has flowed to a place up to this layer, all heads and the residual together."
        ),
    )


def caveat() -> None:
    """Say in one sentence that attention is no explanation."""
    st.caption(
        _(
            "Attention is not explanation: it shows where a head looks, not that the model's answer depends on it "
            "(Jain and Wallace 2019)."
        )
    )


def title(lens: str, head: Head) -> str:
    """Return what a picture through a lens is called."""
    if lens == "rollout":
        return _("rollout to layer {layer}").format(layer=head.layer)
    return f"{head}, {_('norms')}" if lens == "norms" else str(head)


def colour_name(lens: str) -> str:
    """Return what the colour of a picture through a lens says."""
    names = {"weights": _("attention"), "norms": _("share carried"), "rollout": _("flow")}
    return names[lens]


def readout(reading: Reading, head: Head, query: int, lens: str) -> str:
    """Return a sentence on what the query's row holds most of, through a lens that is not the weights."""
    row = reading.view(head, lens).weights[0, 0, query]
    names, top = reading.names, int(row.argmax())
    said = (
        _("query **{query}** · up to layer {layer} most has flowed from **{key}** {share:.2f} (all heads)")
        if lens == "rollout"
        else _("query **{query}** · carries most from **{key}**: {share:.2f} of the lengths of its row")
    )
    return said.format(
        query=escape(names[query]), key=escape(names[top]), share=float(row[top]), layer=head.layer
    )


def further_heads(reading: Reading, head: Head, lens: str) -> list[Head]:
    """Return the heads whose lines are drawn beside those of ``head``; rollout knows no heads."""
    layers, heads = reading.maps.layers, reading.maps.heads
    if lens == "rollout":
        return []
    chosen = [other for other in state.with_heads(layers, heads) if other != head]
    return [other for other in chosen if not reading.is_gone(other)]


def lines_controls(reading: Reading, head: Head) -> None:
    """Draw the choice of further heads whose lines are drawn."""
    layers, heads = reading.maps.layers, reading.maps.heads
    more = further_heads(reading, head, "weights")
    each = (Head(layer, index) for layer in range(layers) for index in range(heads))
    every = {str(one): one for one in each if not reading.is_gone(one)}

    def take(picked: list[str]) -> None:
        state.choose_with([every[name] for name in picked if name in every])

    boxes.draw(
        st.multiselect,
        _("Further heads"),
        [name for name in every if name != str(head)],
        key="lines.with",
        shown=[str(other) for other in more],
        take=take,
        max_selections=keys.MOST_STRANDS,
        placeholder=_("add heads"),
        label_visibility="collapsed",
    )


def lines_picture(
    reading: Reading,
    shown: Sequence[tuple[str, AttentionMaps]],
    rows: np.ndarray,
    query: int,
) -> None:
    """Draw the lines of some heads, whose maps have ``rows`` of the units shown as queries."""
    first = shown[0][1]
    places = st.session_state[keys.LINES]
    wanted = [query] if places is None else [reading.unit(place) for place in places]
    index = {int(unit): i for i, unit in enumerate(rows)}

    def choose(chosen: list[int]) -> None:
        state.choose_lines([int(reading.places[rows[i]]) for i in chosen])

    lines(
        _ends(first.queries),
        _ends(first.keys),
        [
            Strand(name, shade, maps.weights[0, 0].tolist())
            for (name, maps), shade in zip(shown, STRANDS, strict=False)
        ],
        chosen=[index[unit] for unit in wanted if unit in index],
        label=_("Queries: choose one or several"),
        received=_("received"),
        every=_("all queries"),
        key="attention.lines",
        on_choose=choose,
        hint=_(
            "Ctrl-click or the box adds a query; the numbers are the sums over the chosen queries and heads."
        ),
    )


def _ends(tokens: Tokens) -> list[End]:
    return [
        End(clip(label), bool(special), f"{i} {label}")
        for i, (label, special) in enumerate(zip(tokens.labels, tokens.special, strict=True))
    ]


def why_picture(reading: Reading, head: Head, query: int, key: int) -> tuple[str, go.Figure]:
    """Draw the products of a query's and a key's vectors by dimension, which sum to the score; return the figure."""
    from analysis.lenses import products, scores

    vectors = cache.head_vectors(reading.key, reading.text, reading.pair, head)
    places = int(reading.places[query]), int(reading.places[key])
    each = products(vectors, *places)
    row = scores(vectors)[places[0]]
    if vectors.attendable is not None:
        row = row[vectors.attendable[places[0]]]
    weight = cache.maps(reading.key, reading.text, reading.pair, "pieces").weights[head.layer, head.index]
    order = np.argsort(-np.abs(each))[:3]
    names = reading.names
    st.markdown(
        _(
            "**{query}** → **{key}**: score **{score}**, the sum of {count} products (largest: {largest}). The row's "
            "scores run from {low} to {high}; the softmax makes {weight} of this one."
        ).format(
            query=escape(names[query]),
            key=escape(names[key]),
            score=number(float(each.sum())),
            count=len(each),
            largest=", ".join(f"{number(float(each[i]))} ({i})" for i in order),
            low=number(float(row.min())),
            high=number(float(row.max())),
            weight=number(float(weight[places])),
        )
    )
    if reading.units == "words" and any(
        (reading.pieces.word == reading.pieces.word[i]).sum() > 1 for i in places
    ):
        st.caption(_("A word that was split is seen by its first piece here."))
    figure = why_figure(vectors.queries[places[0]], vectors.keys[places[1]], each)
    return f"{head}: {names[query]} → {names[key]}", figure


def why_table(reading: Reading, head: Head, query: int, key: int) -> pd.DataFrame:
    """Return a row a dimension: the query's value, the key's, and their scaled product."""
    from analysis.lenses import products

    vectors = cache.head_vectors(reading.key, reading.text, reading.pair, head)
    places = int(reading.places[query]), int(reading.places[key])
    each = products(vectors, *places)
    return pd.DataFrame(
        {
            _("dimension"): np.arange(len(each)),
            _("query"): vectors.queries[places[0]].round(4),
            _("key"): vectors.keys[places[1]].round(4),
            _("product"): each.round(4),
        }
    )
