"""W_O as a sum over the heads, and all heads of a layer together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from analysis.planted import eight_heads
from analysis.six_words import Mix, Readout, Without, maps_of, mix, readouts, without
from dashboard import boxes
from dashboard.learn import controls, keys
from dashboard.learn.controls import number
from dashboard.learn.figures import Matrix, bars, matrices
from dashboard.learn.lesson import Picture, Real, Seen, Shown, Step, judged
from dashboard.learn.sentence import (
    bert_maps,
    bert_place,
    query,
    readout_table,
    role_names,
    spoken,
    word_controls,
)
from dashboard.text import _, escape

HALF = 0.5
SURE = 0.97  # of the weight
BROAD = 0.95  # of the largest entropy


def _off() -> np.ndarray:
    return controls.off(keys.OUT, 8)


def _mix() -> Shown:
    module, x = eight_heads(), spoken().states
    whole = mix(module, x)
    left = without(module, x, _off())
    at = query()
    names = [*role_names(), _("bias")]
    values = [*whole.shares[:, at].tolist(), float(whole.bias_share[at])]
    hollow = [*_off().tolist(), False]
    heads, rows, width = whole.blocks.shape
    said = [
        _("W_O: {width} × {width} = {count:,} weights, in {heads} blocks of {rows} rows.").format(
            width=width, count=whole.blocks.size, heads=heads, rows=rows
        ),
        _("The parts and the bias add up to the output: largest difference {apart:.1e}.").format(
            apart=whole.difference
        ),
    ]
    if _off().any():
        said.append(
            _("With {count} of {all} heads off the output for **{word}** has {length:.0%} of its length, at a cosine of {cosine:.3f}. "
              "It is the whole less their parts: largest difference {apart:.1e}.").format(
                count=int(_off().sum()),
                all=len(_off()),
                word=escape(spoken().tokens.labels[at]),
                length=float(left.length[at]),
                cosine=float(left.cosine[at]),
                apart=left.difference,
            )
        )  # fmt: skip
    else:
        said.append(_("All heads are on."))
    table = pd.DataFrame({_("head"): names, _("share of the output"): values, _("off"): hollow}).round(6)
    alt = _("Share of the output for “{word}” by head: {largest} has the most, {value:.2f}.").format(
        word=spoken().tokens.labels[at],
        largest=names[int(np.argmax(values))],
        value=max(values),
    )
    return Shown(
        (whole, left),
        tuple(said),
        (
            Picture(
                _("What each head adds to the output for “{word}”; all bars sum to 1").format(
                    word=spoken().tokens.labels[at]
                ),
                bars(names, values, x=_("share of the output, along its direction"), hollow=hollow),
                alt,
            ),
        ),
        numbers={_("shares"): table},
    )


def _mix_controls(seen: Seen) -> None:
    word_controls()
    controls.switches(_("Switch off"), keys.OUT, role_names())


def _misses_least(found: tuple[Mix, Without]) -> bool:
    """Whether the one head that is off is the one whose absence turns the output for the second word least."""
    off = _off()
    if off.sum() != 1 or query() != 1:
        return False
    module, x = eight_heads(), spoken().states
    cosines = [float(without(module, x, row).cosine[1]) for row in np.eye(len(off), dtype=bool)]
    return int(off.argmax()) == int(np.argmax(cosines))


def _is_half_gone(found: tuple[Mix, Without]) -> bool:
    return bool(found[1].length[query()] < HALF)


def is_bert() -> bool:
    """Whether the real model is shown instead of the toy."""
    return bool(st.session_state[keys.SOURCE.key] == "bert")


def _layer() -> int:
    return number(keys.REAL_LAYER, 2, 0, 5)


def _together() -> Shown:
    if is_bert():
        maps, layer = bert_maps(), _layer()
        place = bert_place(maps)
    else:
        maps, layer, place = maps_of(eight_heads(), spoken()), 0, query()
    found = readouts(maps, place, layer=layer)
    names = [str(one.head) for one in found] if is_bert() else role_names()
    title = _("bundled BERT, layer {layer}").format(layer=layer) if is_bert() else _("made by hand")
    matrix = Matrix(title, maps.weights[layer, :, place], names, list(maps.keys.labels), shares=True)
    sharp, broad = max(found, key=lambda one: one.weight), max(found, key=lambda one: one.bits)
    said = _(
        "Sharpest: **{head}**, {weight:.2f} on “{key}”. Broadest: **{other}**, {bits:.2f} of {most:.2f} bits."
    )
    return Shown(
        found,
        (
            said.format(
                head=names[found.index(sharp)],
                weight=sharp.weight,
                key=escape(sharp.key_label),
                other=names[found.index(broad)],
                bits=broad.bits,
                most=broad.most,
            ),
        ),
        (
            Picture(
                _("Query “{query}”, all heads of the layer").format(query=found[0].query_label),
                matrices([matrix], 1, digits=2),
                _("Where each of {count} heads looks from “{query}”.").format(
                    count=len(found), query=found[0].query_label
                ),
            ),
        ),
        numbers={title: readout_table(found, names)},
    )


def _together_controls(seen: Seen) -> None:
    boxes.choose(keys.SOURCE, _("Heads of"), {"toy": _("the toy"), "bert": _("the bundled BERT")})
    word_controls()
    if is_bert():
        controls.slider(_("Layer of the bundled BERT"), keys.REAL_LAYER, 2, 0, 5)


def _is_sure(found: tuple[Readout, ...]) -> bool:
    return is_bert() and max(one.weight for one in found) >= SURE


def _is_broad(found: tuple[Readout, ...]) -> bool:
    return is_bert() and max(one.bits / one.most for one in found) >= BROAD


def _live() -> Real:
    return Real("live", _("Switch heads of a real BERT off, and see what it says"), {})


STEPS = (
    Step(
        "mix",
        _mix,
        _mix_controls,
        {"least": judged(_misses_least), "most": judged(_is_half_gone)},
        (mix, without),
        _live,
    ),
    Step(
        "together",
        _together,
        _together_controls,
        {"sure": judged(_is_sure), "spread": judged(_is_broad)},
        (readouts,),
        lambda: Real("heads", _("Induction and other roles of a real BERT"), {"measure": "induction"}),
    ),
)
