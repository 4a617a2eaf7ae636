"""The panels of the Heads page: the grid with roles, one head against all, the map, the distances, the layers."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from analysis.maps import Floats, Head
from analysis.roles import GONE, NO_ROLE, RULES, scores
from dashboard import boxes, keys, measuring, panels, state
from dashboard.chart import chart
from dashboard.head_figures import Side, profile
from dashboard.head_pictures import layer_picture, map_picture, matrix_picture
from dashboard.head_view import View
from dashboard.naming import (
    BITS,
    INDUCTION,
    SHARES,
    TOKENS,
    interval,
    measure_definition,
    measure_name,
    number,
    role_name,
)
from dashboard.pictures import CHART, Figure
from dashboard.text import _

if TYPE_CHECKING:
    pass


CLOSE = 0.1  # bits: as far as heads that attend alike are apart
FEW = 20  # texts: with fewer, roles and intervals say little
ATTENTION_PAGE, COMPARE_PAGE = "views/attention.py", "views/compare.py"


def summary(view: View) -> None:
    """Say how much was read, and how many heads have which role."""
    count = Counter(view.roles.ravel().tolist())
    named = sorted(((n, role) for role, n in count.items() if role not in (NO_ROLE, GONE)), reverse=True)
    said = _("**{clear} of {heads} heads** have a clear role on {texts:,} texts ({queries:,} tokens)").format(
        clear=view.count - count[NO_ROLE],
        heads=view.count,
        texts=view.found.texts,
        queries=view.found.queries,
    )
    letter = {rule.role: rule.letter for rule in view.rules}
    parts = [f"**{letter[role]}** {role_name(role)} ({n})" for n, role in named]
    st.markdown(f"{said}: {', '.join(parts)}" if parts else said)
    moved = sum(rule.threshold != written.threshold for rule, written in zip(view.rules, RULES, strict=True))
    if moved:
        st.caption(_("{count} thresholds of the roles are moved, see the rules below.").format(count=moved))
    if view.found.texts < FEW:
        st.caption(
            _(
                "{count} texts are few: what a head does on them may be the texts' doing, and the intervals are too narrow."
            ).format(count=view.found.texts)
        )


def grid(view: View) -> None:
    """Draw the grid of heads, what colours it and what is printed in it, and the boxes that choose a head."""
    layers, heads = view.shape
    with st.container(horizontal=True):
        both = partial(
            state.complete_head, view.head
        )  # who changes one number means the other as it is shown
        boxes.number_box(_("Layer"), keys.LAYER, layers, view.head.layer, width=74, on_keep=both)
        boxes.number_box(_("Head"), keys.HEAD, heads, view.head.index, width=74, on_keep=both)
        names = {name: measure_name(name) for name in keys.MEASURE.options}
        name = boxes.choose(keys.MEASURE, _("Colour"), names, widget=st.selectbox, width=212)
        cells = boxes.choose(
            keys.CELLS,
            _("In the cells"),
            {"letters": _("roles"), "numbers": _("values")},
            widget=st.selectbox,
            width=92,
        )
    values, low, high = _table(view, name)
    if values is None or low is None or high is None:
        return
    letters, called = view.letters(), measure_name(name)
    notes = [
        [
            f"{called} {interval(values[a, b], low[a, b], high[a, b])} · {role_name(view.roles[a, b])}"
            for b in range(heads)
        ]
        for a in range(layers)
    ]
    panels.head_grid(
        values,
        meaning=measure_name(name),
        chosen=view.head,
        key="heads.grid",
        scale=scale_of(name, values),
        letters=letters if cells == "letters" else None,
        notes=notes,
        gone=view.found.gone,
    )
    st.caption(
        (
            _("Colour: {definition}. Mean and 95% interval over the sequences on hover.")
            if name in INDUCTION
            else _("Colour: {definition}. Mean and 95% interval over the texts on hover.")
        ).format(definition=measure_definition(name))
    )


def scale_of(name: str, values: Floats) -> panels.Scale:
    """Return how a measure is coloured: shares evenly, weights by their root, bits and tokens up to their most."""
    if name in BITS + TOKENS:
        most = float(np.nanmax(np.append(values, 0)))
        return panels.Scale(most=max(math.ceil(most * 2) / 2, 0.5))
    return panels.Scale() if name in SHARES else panels.ROOT


def _table(view: View, name: str) -> tuple[Floats | None, Floats | None, Floats | None]:
    """Return one measure of every head with its interval, [layer, head] each; None where it is not there."""
    if name not in INDUCTION:
        at = view.found.names.index(name)
        return view.found.mean[at], view.found.low[at], view.found.high[at]
    found = measuring.induction(view.model)
    if found is None:
        measuring.say_state(("induction", view.model))
        return None, None, None
    at = found.names.index(name)
    return found.mean[at], found.low[at], found.high[at]


def panel(view: View) -> list[Figure]:
    """Draw the picture beside the grid and return it."""
    names = {
        "head": _("this head"),
        "map": _("map of heads"),
        "matrix": _("distances"),
        "layers": _("layers"),
    }
    which = boxes.choose(keys.PANEL, _("View"), names)
    if which == "head":
        return one_head(view)
    if which == "layers":
        return layer_picture(view)
    apart = measuring.distances(view.model, view.corpus, view.found.specials)
    if apart is None:
        measuring.say_state(("distances", view.model, view.corpus.key, view.found.specials))
        return []
    return map_picture(view, apart) if which == "map" else matrix_picture(view, apart)


def one_head(view: View) -> list[Figure]:
    """Say what the chosen head is for and how it stands among all others; offer to see it on a sentence."""
    head = view.head
    if view.is_gone():
        panels.say_removed(head)
        return []
    role = view.roles[head.layer, head.index]
    each = scores(view.found, view.rules)[:, head.layer, head.index]
    if role == NO_ROLE:
        nearest = int((each / [max(rule.threshold, 1e-9) for rule in view.rules]).argmax())
        said = _("**{head}**: no clear role. Closest: {role}, {score} where {threshold} are needed").format(
            head=head,
            role=role_name(view.rules[nearest].role),
            score=number(float(each[nearest])),
            threshold=number(view.rules[nearest].threshold),
        )
    else:
        at = [rule.role for rule in view.rules].index(role)
        said = _("**{head}**: {role}, score {score} (from {threshold} on)").format(
            head=head,
            role=role_name(role),
            score=number(float(each[at])),
            threshold=number(view.rules[at].threshold),
        )
    twin, sentence = _twin(view)
    st.markdown(said + "  \n" + sentence)
    with st.container(horizontal=True):
        if st.button(
            _("See it on a sentence"), key="heads.see", icon=":material/arrow_forward:", type="tertiary"
        ):
            state.choose_head(head.layer, head.index)
            st.switch_page(ATTENTION_PAGE)
        if twin is not None and st.button(
            _("Compare with {twin}").format(twin=twin),
            key="heads.twin",
            icon=":material/arrow_forward:",
            type="tertiary",
        ):
            state.choose_head(head.layer, head.index)
            state.choose_second_head(twin.layer, twin.index)
            st.session_state[keys.COMPARE.key] = "heads"
            st.switch_page(COMPARE_PAGE)
    figure = profile(view.found, [Side(view.found, head, str(head))])
    chart(
        figure,
        key="heads.profile",
        config=CHART,
        alt=_("{head} against all {count} heads: every measure with its interval.").format(
            head=head, count=view.count
        ),
    )
    return [(str(head), figure)]


def _twin(view: View) -> tuple[Head | None, str]:
    """Return the head that does most nearly the same, if it is known, and a sentence on it."""
    apart = measuring.distances(view.model, view.corpus, view.found.specials)
    if apart is None:
        return None, _("Nearest twin: not measured yet.")
    from analysis.distance import twins

    heads = view.shape[1]
    place = view.head.layer * heads + view.head.index
    other, mean, low, high = (table[place] for table in twins(apart))
    if other < 0:
        return None, _("Nearest twin: there is no other head.")
    twin = Head(*divmod(int(other), heads))
    said = (
        _("Nearest twin: **{other}**, distance {distance} bits: it attends so alike that it could replace it")
        if mean < CLOSE
        else _("Nearest twin: **{other}**, distance {distance} bits: not close")
    )
    return twin, said.format(other=twin, distance=interval(float(mean), float(low), float(high)))
