"""The map of the model: layers down, heads across, one cell a head, and one head chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Literal

import streamlit as st

from . import asset, heard, index, seen

_GRID = st.components.v2.component(
    "headroom_grid", css=asset("grid.css"), js=asset("choice.js") + asset("cells.js") + asset("grid.js")
)


@dataclass(frozen=True)
class Cell:
    """One head on the map.

    Args:
        fill: background, any CSS colour.
        ink: colour of the text, at least 4.5:1 on `fill`.
        text: printed in the cell while it fits; may be "".
        title: shown on hover and read by screen readers.
        mark: "off" is hatched (switched off or removed), "pale" is smaller than noise.
    """

    fill: str
    ink: str
    text: str
    title: str
    mark: Literal["", "off", "pale"] = ""


def grid(
    cells: Sequence[Sequence[Cell]],
    *,
    chosen: tuple[int, int] | None,
    label: str,
    key: str,
    on_choose: Callable[[int, int], None],
) -> None:
    """Draw the map of the model and let one head be chosen by mouse or arrow keys.

    Args:
        cells: layers x heads, every row of the same length.
        chosen: layer and head to outline, or None.
        label: name of the whole grid for screen readers.
        key: unique on the page; keep it the same across reruns, languages and models.
        on_choose: gets layer and head before the rerun, also when they are already chosen.
    """
    assert len({len(row) for row in cells}) == 1, "rows of one length"
    _GRID(
        key=key,
        data={
            "cells": [[astuple(cell) for cell in row] for row in cells],
            "chosen": chosen,
            "label": label,
            "seen": seen(key),
        },
        on_choose_change=partial(_choose, key, len(cells), len(cells[0]), on_choose),
    )


def _choose(key: str, layers: int, heads: int, on_choose: Callable[[int, int], None]) -> None:
    sent = heard(key)
    layer, head = index(sent.get("layer"), layers), index(sent.get("head"), heads)
    if layer is not None and head is not None:
        on_choose(layer, head)
