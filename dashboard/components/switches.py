"""The map of the model as switches: each cell switches one head off, or on again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import partial

import streamlit as st

from . import asset, heard, index, seen
from .grid import Cell

_SWITCHES = st.components.v2.component(
    "headroom_switches",
    css=asset("grid.css"),
    js=asset("choice.js") + asset("cells.js") + asset("switches.js"),
)
At = tuple[int, int]  # layer and head


def switches(
    cells: Sequence[Sequence[Cell]],
    *,
    off: Sequence[At],
    chosen: At,
    label: str,
    key: str,
    on_switch: Callable[[At, list[At]], None],
) -> None:
    """Draw the map of the model and let heads be switched by mouse, or by Enter and the space bar.

    The arrow keys walk and choose without switching.

    Args:
        cells: layers x heads, every row of the same length; those that are off are marked "off".
        off: the heads that are off.
        chosen: layer and head to outline.
        label: name of the whole map for screen readers.
        key: unique on the page; keep it the same across reruns, languages and models.
        on_switch: gets the head that was pressed or walked to and all that are off now, before the rerun.
    """
    assert len({len(row) for row in cells}) == 1, "rows of one length"
    _SWITCHES(
        key=key,
        data={
            "cells": [[astuple(cell) for cell in row] for row in cells],
            "off": [f"{layer}.{head}" for layer, head in off],
            "chosen": chosen,
            "label": label,
            "seen": seen(key),
        },
        on_choose_change=partial(_choose, key, len(cells), len(cells[0]), on_switch),
    )


def _choose(key: str, layers: int, heads: int, on_switch: Callable[[At, list[At]], None]) -> None:
    sent = heard(key)
    layer, head = index(sent.get("layer"), layers), index(sent.get("head"), heads)
    names = sent.get("off")
    if layer is None or head is None or not isinstance(names, list):
        return
    every = {f"{a}.{b}": (a, b) for a in range(layers) for b in range(heads)}
    if all(isinstance(name, str) and name in every for name in names):
        on_switch((layer, head), sorted({every[name] for name in names}))
