"""Masks, crossing, scale and order: what else attention can be asked, on the toy."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from analysis.maps import AttentionMaps
from analysis.planted import eight_heads
from analysis.six_words import sentence
from analysis.toy import MultiHeadAttention, make_toy, positions
from analysis.variations import KEYS, WIDTHS, Causal, Order, Scaling, causal, cross, reorder, scaling
from dashboard import boxes
from dashboard.learn import keys
from dashboard.learn.controls import number, steps
from dashboard.learn.figures import Line, Matrix, lines, matrices
from dashboard.learn.lesson import Picture, Real, Seen, Shown, Step, judged
from dashboard.learn.sentence import query, role_names, spoken, word_controls
from dashboard.text import _, language

AHEAD = 0.5  # of the weight
WIDE = (3, 2)  # queries at least, and keys as a multiple of them
FISH = {"en": ("fish", "eat"), "id": ("ikan", "makan")}
DRAWN = 3  # heads of the toy


def _head() -> int:
    return number(keys.TOY_HEAD, 6, 0, 7)


def _is_masked() -> bool:
    return bool(st.session_state[keys.AHEAD.key] == "masked")


def _causal() -> Shown:
    said = spoken()
    module, words, head = eight_heads(), list(said.tokens.labels), _head()
    found = causal(module, said.states)
    steps = [Matrix(_("scores"), found.scores[head], words, words, chosen=query())]
    if _is_masked():
        weights = found.weights[head]
        steps.append(Matrix(_("with the mask"), found.masked[head], words, words, chosen=query()))
    else:
        weights = module.trace(said.states).weights[0, head].numpy()
    steps.append(Matrix(_("weights"), weights, words, words, shares=True, chosen=query()))
    ahead = float(weights[query(), query() + 1 :].sum())
    name = role_names()[head]
    line = _("Head **{head}**, query **{query}**: {ahead:.3f} of its weight lies ahead of it.").format(
        head=name, query=words[query()], ahead=ahead
    )
    every = found.weights if _is_masked() else module.trace(said.states).weights[0].numpy()
    largest = _("Largest weight above the diagonal, in all heads: **{weight:.3g}**.").format(
        weight=float(np.triu(every, 1).max())
    )
    alt = _("The scores and weights of the head {head} over six words.").format(head=name)
    return Shown(
        (found, ahead),
        (line, largest),
        (Picture(_("From scores to weights"), matrices(steps, 1, digits=2), alt),),
        numbers={
            _("weights"): pd.DataFrame(weights.round(6), index=[f"{i} {w}" for i, w in enumerate(words)])
        },
    )


def _causal_controls(seen: Seen) -> None:
    boxes.choose(keys.AHEAD, _("Mask"), {"masked": _("causal"), "open": _("none")})
    head_box()
    word_controls()


def head_box() -> None:
    """Let one of the eight heads made by hand be chosen, by its role."""
    names = role_names()
    boxes.select(
        _("Head"),
        range(8),
        key=f"learn.head.{language()}",
        shown=_head(),
        take=boxes.into(keys.TOY_HEAD),
        format_func=lambda i: names[i],
        width=200,
    )


def crossed() -> tuple[str, str]:
    """Return the sentence that looks and the one that is looked at."""
    given = st.session_state.get(keys.CROSSED)
    return given or (sentence("en").tokens.texts[0], sentence("id").tokens.texts[0])


def _cross() -> Shown:
    queries, keys_ = crossed()
    maps = cross(make_toy(), queries, keys_)
    n, m = len(maps.queries), len(maps.keys)
    items = [
        Matrix(
            _("head {number}").format(number=head + 1),
            maps.weights[0, head],
            list(maps.queries.labels),
            list(maps.keys.labels),
            shares=True,
        )
        for head in range(DRAWN)
    ]
    said = _("{n} queries × {m} keys in each of {heads} heads; every row sums to 1.").format(
        n=n, m=m, heads=maps.heads
    )
    alt = _("Maps of {n} rows and {m} columns.").format(n=n, m=m)
    names = [f"{i} {label}" for i, label in enumerate(maps.queries.labels)]
    table = pd.DataFrame(
        maps.weights[0, 0].round(6),
        index=names,
        columns=[f"{i} {label}" for i, label in enumerate(maps.keys.labels)],
    )
    return Shown(
        maps,
        (said,),
        (Picture(_("Rows look, columns are looked at"), matrices(items, 1, digits=2), alt),),
        numbers={_("head {number}").format(number=1): table},
    )


def _cross_controls(_seen: Seen) -> None:
    labels = (_("Sentence that looks (queries)"), _("Sentence that is looked at (keys, values)"))
    for place, (label, text) in enumerate(zip(labels, crossed(), strict=True)):
        boxes.draw(
            st.text_input,
            label,
            key=f"learn.crossed.{place}",
            shown=text,
            take=partial(_keep_crossed, place),
            autocomplete="off",
            max_chars=400,
        )


def _keep_crossed(place: int, text: str) -> None:
    sides = list(crossed())
    sides[place] = text
    st.session_state[keys.CROSSED] = tuple(sides)


def _width() -> int:
    """Return the place of the chosen width among the widths."""
    return number(keys.DIMENSIONS, 2, 0, len(WIDTHS) - 1)


def _scale() -> Shown:
    found = scaling()
    at = _width()
    width = int(found.widths[at])
    widths = found.widths.tolist()
    without, with_ = _("without the factor"), _("with 1/√d_k")
    charts = (
        ("deviation", _("Spread of the scores"), _("standard deviation")),
        ("entropy", _("Entropy of the weights, of {most:.0f} bits").format(most=found.most), _("bits")),
        ("gradient", _("Gradient of the softmax, median row"), _("norm")),
    )
    pictures = []
    for field, title, axis in charts:
        plain, scaled = getattr(found.plain, field), getattr(found.scaled, field)
        figure = lines(
            [Line(without, widths, plain.tolist()), Line(with_, widths, scaled.tolist())],
            x=_("width of a head, d_k"),
            y=axis,
            logarithmic=(True, False),
            mark=width,
            height=210,
        )
        alt = _("{title}: at d_k {width}, {plain:.3f} without and {scaled:.3f} with the factor.").format(
            title=title, width=width, plain=float(plain[at]), scaled=float(scaled[at])
        )
        pictures.append(Picture(title, figure, alt))
    said = _(
        "d_k **{width}** (√d_k = {root:.2f}): scores spread {plain:.2f} without and {scaled:.2f} with the factor; the gradient "
        "is {gradient:.3f} against {other:.3f}."
    ).format(
        width=width,
        root=math.sqrt(width),
        plain=float(found.plain.deviation[at]),
        scaled=float(found.scaled.deviation[at]),
        gradient=float(found.plain.gradient[at]),
        other=float(found.scaled.gradient[at]),
    )
    table = pd.DataFrame(
        {"d_k": widths}
        | {
            f"{title}, {name}": getattr(side, field).round(4)
            for field, title, _axis in charts
            for name, side in ((without, found.plain), (with_, found.scaled))
        }
    )
    return Shown(found, (said,), tuple(pictures), numbers={_("curves"): table})


def _scale_controls(_seen: Seen) -> None:
    steps(_("width of a head, d_k"), WIDTHS, keys.DIMENSIONS, _width())
    st.caption(_("Each query chooses among {keys} keys.").format(keys=KEYS))


def _with_positions() -> bool:
    return bool(st.session_state[keys.PLACES.key] == "with")


def _order() -> Shown:
    words = FISH.get(language(), FISH["en"])
    order = (1, 0) if st.session_state[keys.ORDERED.key] == "moved" else (0, 1)
    found = reorder(make_toy(d_model=8, num_heads=2), words, order)
    chosen = found.positioned if _with_positions() else found.plain
    first, moved = " ".join(found.words), " ".join(found.moved)
    items = [
        Matrix(f"“{first}”", chosen.output, list(found.words)),
        Matrix(f"“{moved}”", chosen.moved_output, list(found.moved)),
    ]
    verdict = (
        _("**Equal**: the rows have moved, no number has changed")
        if chosen.same
        else _("**Not equal**: the numbers themselves have changed")
    )
    if not _has_moved():
        verdict = _("The same sentence twice: swap the words of the second")
    said = _("{verdict} (largest difference {apart:.1e}).").format(verdict=verdict, apart=chosen.difference)
    alt = _("The outputs for “{first}” and for “{moved}”, word by word.").format(first=first, moved=moved)
    tables = {item.title: pd.DataFrame(item.values.round(6), index=list(item.rows or ())) for item in items}
    return Shown(
        found,
        (said,),
        (Picture(_("The output of the layer, a row for each word"), matrices(items, 1), alt),),
        numbers=tables,
    )


def _order_controls(_seen: Seen) -> None:
    boxes.choose(keys.ORDERED, _("Second sentence"), {"same": _("as the first"), "moved": _("words swapped")})
    boxes.choose(keys.PLACES, _("Positions"), {"without": _("without"), "with": _("sinusoidal, added")})


def _is_lone(found: tuple[Causal, float]) -> bool:
    return _is_masked() and query() == 0


def _looks_ahead(found: tuple[Causal, float]) -> bool:
    return not _is_masked() and found[1] > AHEAD


def _is_wide(maps: AttentionMaps) -> bool:
    return len(maps.queries) >= WIDE[0] and len(maps.keys) >= WIDE[1] * len(maps.queries)


def _is_stuck(found: Scaling) -> bool:
    vanishing = found.plain.gradient < found.scaled.gradient / 4
    return _width() == int(np.argmax(vanishing))


def _is_root(found: Scaling) -> bool:
    return int(found.widths[_width()]) == 256


def _is_equal(found: Order) -> bool:
    return found.order == (1, 0) and not _with_positions() and found.plain.same and _has_moved()


def _has_moved() -> bool:
    return bool(st.session_state[keys.ORDERED.key] == "moved")


def _is_broken(found: Order) -> bool:
    return found.order == (1, 0) and _with_positions() and not found.positioned.same


STEPS = (
    Step(
        "causal",
        _causal,
        _causal_controls,
        {"lone": judged(_is_lone), "open": judged(_looks_ahead)},
        (causal, MultiHeadAttention._masked),
        lambda: Real("attention", _("A real BERT looks both ways"), {"layer": "2", "head": "6"}),
    ),
    Step(
        "cross",
        _cross,
        _cross_controls,
        {"wide": judged(_is_wide), "one": judged(lambda maps: len(maps.keys) == 1)},
        (cross,),
        lambda: Real(
            "attention",
            _("A pair of sentences in a real BERT, from one to the other"),
            {"example": "5", "block": "AB"},
        ),
    ),
    Step(
        "scale",
        _scale,
        _scale_controls,
        {"stuck": judged(_is_stuck), "root": judged(_is_root)},
        (scaling,),
        lambda: Real("attention", _("The products behind one score of a real BERT"), {"view": "why"}),
    ),
    Step(
        "order",
        _order,
        _order_controls,
        {"equal": judged(_is_equal), "broken": judged(_is_broken)},
        (reorder, positions),
        lambda: Real("compare", _("Two sentences of the same words in a real BERT"), {}),
    ),
)
