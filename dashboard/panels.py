"""Pieces that several pages draw: the grid of heads and the words of the sentence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import streamlit as st

from analysis.maps import Floats, Head
from analysis.tokens import clip
from dashboard import state
from dashboard.colours import attention_stops, colour, ink
from dashboard.components.grid import Cell, grid
from dashboard.components.words import Word, words
from dashboard.reading import Reading
from dashboard.text import _

MOST_PRINTED = 12  # heads across whose values still fit into their cells

# What the theme cannot say: Streamlit's own colours for captions and the text of axes are too pale in light
# (3.7:1), and its margins take a tenth of the width.
STYLE = (
    "<style>.xtick text,.ytick text,.xtitle,.ytitle,.cbtitle text,.colorbar text,.annotation-text"
    "{fill:currentColor!important}"
    "[data-testid=stCaptionContainer]{opacity:.8!important}"
    "[data-testid=stMainBlockContainer]{padding-left:2.5rem;padding-right:2.5rem}</style>"
)


def title(name: str, question: str) -> None:
    """Draw the title of a page and the question it answers."""
    st.html(STYLE)
    st.subheader(f"{name} :gray[:small[{question}]]", anchor=False)


def head_grid(
    values: Floats,
    *,
    meaning: str,
    chosen: Head | None,
    key: str,
    root: bool = False,
    on_choose: Callable[[int, int], None] = state.choose_head,
) -> None:
    """Draw the grid of heads coloured by ``values`` [layer, head] in 0 to 1, and let a head be chosen.

    meaning: what the colour says, for readers of the screen and as the name of the grid
    root: colour by the square root, as weights are coloured everywhere
    """
    printed = values.shape[1] <= MOST_PRINTED
    cells = [
        [_cell(float(value), Head(layer, head), meaning, printed, root) for head, value in enumerate(row)]
        for layer, row in enumerate(values)
    ]
    outlined = None if chosen is None else (chosen.layer, chosen.index)
    grid(cells, chosen=outlined, label=meaning, key=key, on_choose=on_choose)
    _scale(root)


def _scale(root: bool) -> None:
    """Draw the scale of the grid's colours, with the values where their colours stand."""
    stops = ", ".join(shade for _share, shade in attention_stops())
    ticks = (0.0, 0.02, 0.1, 0.25, 0.5, 1.0) if root else (0.0, 0.25, 0.5, 0.75, 1.0)
    marks = "".join(
        f"<span style='position:absolute;left:{100 * (tick**0.5 if root else tick):.1f}%;"
        f"transform:translateX(-{100 * (tick == 1) + 50 * (0 < tick < 1):.0f}%)'>{tick:g}</span>"
        for tick in ticks
    )
    st.html(
        "<div style='max-width:446px;margin-left:32px;font-size:.75rem' aria-hidden='true'>"
        f"<div style='height:8px;border-radius:2px;background:linear-gradient(90deg,{stops})'></div>"
        f"<div style='position:relative;height:1.1em'>{marks}</div></div>"
    )


def waiting_grid(layers: int, heads: int) -> None:
    """Draw a greyed grid while the model is being opened."""
    pale = Cell(fill="rgba(128,128,128,0.15)", ink="#000000", text="", title=_("not there yet"))
    grid(
        [[pale] * heads] * layers,
        chosen=None,
        label=_("Opening the model …"),
        key="grid.waiting",
        on_choose=_nothing,
    )


def word_row(
    reading: Reading, row: Floats, query: int, *, key: str, on_choose: Callable[[int], None]
) -> None:
    """Draw the sentence as buttons, each shaded by the weight [unit] that the query gives it."""
    tokens = reading.tokens
    second = np.flatnonzero(tokens.segment == 1)
    starts = int(second[0]) if len(second) else -1
    items = [
        Word(
            text=clip(label),
            shade=float(np.sqrt(max(weight, 0.0))),
            quiet=bool(special),
            title=f"{weight:.3f}",
            starts=i == starts,
        )
        for i, (label, special, weight) in enumerate(zip(tokens.labels, tokens.special, row, strict=True))
    ]
    words(items, chosen=query, label=_("Words: choose the query"), key=key, on_choose=on_choose)


def _cell(value: float, head: Head, meaning: str, printed: bool, root: bool) -> Cell:
    if np.isnan(value):
        return Cell(fill="transparent", ink="inherit", text="", title=f"{head}: –")
    fill = colour("Viridis", value**0.5 if root else value)
    text = (f"{value:.2f}".removeprefix("0") if value < 0.995 else f"{value:.1f}") if printed else ""
    return Cell(fill=fill, ink=ink(fill), text=text, title=f"{head}: {value:.3f} · {meaning}")


def _nothing(layer: int, head: int) -> None:
    """Ignore a choice in a grid that has nothing to choose."""
