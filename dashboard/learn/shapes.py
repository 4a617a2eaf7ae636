"""Shapes: every tensor of one pass, with its shape and its numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from analysis.shapes import MAP, PER_HEAD, SHORT, VIEWED, Shapes, shapes
from analysis.shapes import Step as Tensor
from analysis.toy import MultiHeadAttention
from dashboard import state
from dashboard.components.words import Word, words
from dashboard.learn import controls, keys
from dashboard.learn.controls import number
from dashboard.learn.figures import Matrix, matrices
from dashboard.learn.lesson import Page, Picture, Real, Seen, Shown, Step, judged
from dashboard.text import _

MOST_DRAWN = 4
FIRST = {keys.BATCH: 2, keys.LENGTH: 4, keys.WIDTH: 8, keys.HEADS: 2}
MOST = {keys.BATCH: 4, keys.LENGTH: 12, keys.WIDTH: 24, keys.HEADS: 12}


def sizes() -> tuple[int, int, int, int]:
    """Return batch, tokens, width and heads."""
    batch, length, width, heads = (number(key, FIRST[key], 1, MOST[key]) for key in FIRST)
    return batch, length, width, heads


def axes(tensor: Tensor) -> str:
    """Return what the axes of a tensor are."""
    names = {
        SHORT: _("batch × token × width"),
        VIEWED: _("batch × token × head × width of a head"),
        PER_HEAD: _("batch × head × token × width of a head"),
        MAP: _("batch × head × query × key"),
    }
    return names[tensor.axes]


def shape(tensor: Tensor) -> str:
    """Return the shape of a tensor as code writes it."""
    return f"({', '.join(map(str, tensor.shape))})"


def drawn(tensor: Tensor) -> list[Matrix]:
    """Return the first example of a tensor as matrices: a head or a token each where it has four axes."""
    values = tensor.values[0]
    if tensor.axes == SHORT:
        return [Matrix(f"{tensor.name} {shape(tensor)}", values)]
    said = _("token {number}") if tensor.axes == VIEWED else _("head {number}")
    first = 0 if tensor.axes == VIEWED else 1
    shares = tensor.name == "softmax"
    return [
        Matrix(f"{tensor.name}, {said.format(number=i + first)}", part, shares=shares)
        for i, part in enumerate(values[:MOST_DRAWN])
    ]


def _show() -> Shown:
    batch, length, width, heads = sizes()
    found = shapes(batch, length, width, heads, seed=number(keys.SEED, 0, 0, 9999))
    tensor = found.step(st.session_state[keys.TENSOR.key])
    output, weights = found.built_in
    said = (
        _("**{name}** has the shape **{shape}**: {axes}; {count:,} numbers.").format(
            name=tensor.name, shape=shape(tensor), axes=axes(tensor), count=tensor.values.size
        ),
        _(
            "PyTorch’s own layer: output **{output}**, weights **{weights}**, largest difference {apart:.1e}."
        ).format(output=shape(output), weights=shape(weights), apart=found.difference),
    )
    items = drawn(tensor)
    table = pd.DataFrame(
        [{_("tensor"): one.name, _("shape"): shape(one), _("axes"): axes(one)} for one in found.steps]
    )
    flat = tensor.values.reshape(-1, tensor.shape[-1])
    return Shown(
        found,
        said,
        (
            Picture(
                _("The first example of the batch"),
                matrices(items, 1 if tensor.axes == SHORT else 2, digits=2),
                _("The numbers of {name}, {shape}, of the first example.").format(
                    name=tensor.name, shape=shape(tensor)
                ),
            ),
        ),
        tables={_("All shapes in order"): table},
        numbers={tensor.name: pd.DataFrame(np.round(flat, 6))},
    )


def _controls(seen: Seen) -> None:
    labels = {
        keys.BATCH: _("batch"),
        keys.LENGTH: _("tokens"),
        keys.WIDTH: _("width (d_model)"),
        keys.HEADS: _("heads"),
    }
    for key, label in labels.items():
        controls.slider(label, key, FIRST[key], 1, MOST[key])
    if not isinstance(seen, Shown):
        return
    found: Shapes = seen.found
    items = [Word(one.name, 0.0, False, f"{shape(one)}: {axes(one)}") for one in found.steps]
    names = [one.name for one in found.steps]
    words(
        items,
        chosen=names.index(st.session_state[keys.TENSOR.key]),
        label=_("Tensors: choose the one whose numbers are shown"),
        key="learn.tensors",
        on_choose=lambda place: _choose(names[place]),
    )


def _choose(name: str) -> None:
    state.acted()
    st.session_state[keys.TENSOR.key] = name


def _is_longer(found: Shapes) -> bool:
    return st.session_state[keys.TENSOR.key] == "output" and found.steps[0].shape[1] > FIRST[keys.LENGTH]


PAGE = Page(
    "shapes",
    (
        Step(
            "shapes",
            _show,
            _controls,
            {
                "square": judged(lambda found: st.session_state[keys.TENSOR.key] in ("scores", "softmax")),
                "single": judged(lambda found: found.step("context").shape[-1] == 1),
                "longer": judged(_is_longer),
            },
            (MultiHeadAttention.trace, MultiHeadAttention._split),
            lambda: Real(
                "attention", _("Why a query looks at a key in a real BERT, by dimension"), {"view": "why"}
            ),
        ),
    ),
)
