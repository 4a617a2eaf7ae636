"""Pieces that several pages draw: the grid of heads and the words of the sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from analysis.maps import Floats, Head
from analysis.tokens import Bools, clip
from dashboard import sidebar, state
from dashboard.colours import colour, ink
from dashboard.components.grid import Cell, grid
from dashboard.components.switches import At, switches
from dashboard.components.words import Word, words
from dashboard.reading import Reading
from dashboard.text import _, decimals, escape, written

if TYPE_CHECKING:
    from analysis.models import Model
    from analysis.toy import Toy

MOST_PRINTED = 12  # heads across whose values still fit into their cells

# What the theme cannot say: Streamlit's own colours for captions and the text of axes are too pale in light
# (3.7:1), and its margins take a tenth of the width.
STYLE = (
    "<style>[class$=tick] text,[class$=title],.cbtitle text,.colorbar text,.annotation-text,.bartext-outside,.legendtext"
    "{fill:currentColor!important}"
    "[data-testid=stCaptionContainer]{opacity:.8!important}"
    "[data-testid=stMainBlockContainer]{padding-left:2.5rem;padding-right:2.5rem}"
    # White on the light accent of the dark theme would be 2.3:1.
    "[data-tag]{background:light-dark(#dbe7f6,#2b4463)!important;color:light-dark(#1b1f24,#e8eaed)!important}"
    # Sentences as buttons start at the left, as text does.
    "[data-testid=stBaseButton-tertiary]{text-align:left;justify-content:flex-start}"
    # The progress of long work floats in a corner, so that nothing moves when it comes and goes.
    ".st-key-jobs{position:fixed;right:1.2rem;bottom:1.2rem;z-index:99;width:min(400px,90vw);padding:.6rem 1rem;"
    "border:1px solid color-mix(in srgb,currentColor 25%,transparent);border-radius:8px;"
    "background:light-dark(#f3f4f6,#20252b);box-shadow:0 2px 12px rgb(0 0 0/.25)}</style>"
)


def title(name: str, question: str) -> None:
    """Draw the title of a page and the question it answers."""
    st.html(STYLE)
    st.subheader(f"{name} :gray[:small[{question}]]", anchor=False)


@dataclass(frozen=True)
class Scale:
    """How a grid is coloured: from 0 to ``most``, or from -most to most where it shows differences."""

    most: float = 1.0
    root: bool = False  # by the square root, as weights are coloured everywhere
    differences: bool = False

    def share(self, value: float) -> float:
        """Return where on the colours ``value`` stands, 0 to 1."""
        part = min(abs(value) / self.most, 1.0) ** (0.5 if self.root else 1.0)
        return 0.5 + math.copysign(part, value) / 2 if self.differences else part

    def ticks(self) -> list[float]:
        """Return the values to name beside the colours."""
        parts = (0.0, 0.02, 0.1, 0.25, 0.5, 1.0) if self.root else (0.0, 0.25, 0.5, 0.75, 1.0)
        if self.differences:
            parts = (-1.0, -0.25, 0.0, 0.25, 1.0) if self.root else (-1.0, -0.5, 0.0, 0.5, 1.0)
        return [part * self.most for part in parts]

    @property
    def colours(self) -> str:
        return "RdBu" if self.differences else "Viridis"


ROOT = Scale(root=True)
STEPS = (1.0, 2.0, 5.0, 10.0)


def top_of(values: Floats) -> float:
    """Return the end of a scale: the next 1, 2 or 5 times a power of ten above all sizes; 0.01 at least."""
    most = float(np.nanmax(np.append(np.abs(values), 0.01)))
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in STEPS if step * power >= most * (1 - 1e-9))


def head_grid(
    values: Floats,
    *,
    meaning: str,
    chosen: Head | None,
    key: str,
    scale: Scale = Scale(),
    letters: np.ndarray | None = None,
    notes: Sequence[Sequence[str]] | None = None,
    pale: np.ndarray | None = None,
    gone: Bools | None = None,
    on_choose: Callable[[int, int], None] = state.choose_head,
) -> None:
    """Draw the grid of heads coloured by ``values`` [layer, head], and let a head be chosen.

    meaning: what the colour says, for readers of the screen and as the name of the grid
    letters: [layer, head] what is printed in the cells instead of the values
    notes: [layer][head] what is said of a cell beside its value
    pale: [layer, head] which cells are smaller than noise
    gone: [layer, head] which heads were removed from the model; they have no value, so their cells are empty
    """
    cells = _cells(values, meaning, scale, letters, notes, pale)
    _name_removed(cells, gone)
    outlined = None if chosen is None else (chosen.layer, chosen.index)
    grid(cells, chosen=outlined, label=meaning, key=key, on_choose=on_choose)
    _scale(scale)


def switch_grid(
    values: Floats | None,
    off: Bools,
    *,
    meaning: str,
    chosen: Head,
    key: str,
    scale: Scale,
    gone: Bools | None = None,
    on_switch: Callable[[At, list[At]], None],
) -> None:
    """Draw the grid of heads as switches, those ``off`` [layer, head] hatched.

    values: [layer, head] what colours the heads that are on; None for no colour
    gone: [layer, head] which heads were removed from the model; their cells are empty
    """
    if values is None:
        plain = Cell(fill="rgba(128,140,160,0.35)", ink="inherit", text="", title="")
        cells = [[replace(plain, title=f"{Head(a, b)}: {_('on')}") for b in range(off.shape[1])]
                 for a in range(off.shape[0])]  # fmt: skip
    else:
        cells = _cells(values, meaning, scale)
    places = [(int(layer), int(head)) for layer, head in np.argwhere(off)]
    for layer, head in places:
        cells[layer][head] = Cell(
            fill="transparent", ink="inherit", text="", title=f"{Head(layer, head)}: {_('off')}", mark="off"
        )
    _name_removed(cells, gone)
    outlined = (chosen.layer, chosen.index)
    switches(cells, off=places, chosen=outlined, label=meaning, key=key, on_switch=on_switch)
    if values is not None:
        _scale(scale)


def gone_grid(
    gone: Bools, *, meaning: str, key: str, chosen: Head | None = None, on_choose: Callable[[int, int], None]
) -> None:
    """Draw the grid of heads with those that are ``gone`` [layer, head] hatched."""
    there = Cell(fill="rgba(128,140,160,0.35)", ink="inherit", text="", title="")
    away = replace(there, fill="transparent", mark="off")
    cells = [
        [
            replace(away, title=f"{Head(a, b)}: {_('removed')}")
            if one
            else replace(there, title=f"{Head(a, b)}: {_('there')}")
            for b, one in enumerate(row)
        ]
        for a, row in enumerate(gone)
    ]
    outlined = None if chosen is None else (chosen.layer, chosen.index)
    grid(cells, chosen=outlined, label=meaning, key=key, on_choose=on_choose)


def _name_removed(cells: list[list[Cell]], gone: Bools | None) -> None:
    """Put an empty cell that says so for each head that was removed."""
    for layer, head in [] if gone is None else np.argwhere(gone).tolist():
        title = f"{Head(layer, head)}: {_('removed')}"
        cells[layer][head] = Cell(fill="transparent", ink="inherit", text="", title=title)


def say_removed(head: Head, name: str | None = None) -> None:
    """Say that a head, of the model ``name`` where there are several, was removed."""
    said = _("{head} was removed from this model: there is nothing to see of it. Choose another head.")
    if name is not None:
        said = _("{head} was removed from {name}: there is nothing to see of it. Choose another head.")
    st.info(said.format(head=head, name=escape(name or "")))


def _cells(
    values: Floats,
    meaning: str,
    scale: Scale,
    letters: np.ndarray | None = None,
    notes: Sequence[Sequence[str]] | None = None,
    pale: np.ndarray | None = None,
) -> list[list[Cell]]:
    """Return the cells of a grid, see `head_grid`."""
    layers, heads = values.shape
    said = [[meaning] * heads] * layers if notes is None else notes
    cells = []
    for layer, row in enumerate(values):
        texts = _printed(row, 2 if scale.most >= 0.1 else 3) if letters is None else list(letters[layer])
        cells.append(
            [
                _cell(
                    float(value),
                    Head(layer, head),
                    said[layer][head],
                    texts[head],
                    scale,
                    pale is not None and bool(pale[layer, head]),
                )
                for head, value in enumerate(row)
            ]
        )
    return cells


def _scale(scale: Scale) -> None:
    """Draw the scale of the grid's colours, with the values where their colours stand."""
    stops = ", ".join(colour(scale.colours, i / 16) for i in range(17))
    ticks = scale.ticks()
    marks = "".join(
        f"<span style='position:absolute;left:{100 * scale.share(tick):.1f}%;"
        f"transform:translateX(-{100 * (tick == ticks[-1]) + 50 * (ticks[0] < tick < ticks[-1]):.0f}%)'>"
        f"{written(f'{tick:.3g}').replace('-', '−')}</span>"
        for tick in ticks
    )
    st.html(
        "<div style='max-width:446px;margin-left:32px;font-size:.75rem' aria-hidden='true'>"
        f"<div style='height:8px;border-radius:2px;background:linear-gradient(90deg,{stops})'></div>"
        f"<div style='position:relative;height:1.1em'>{marks}</div></div>"
    )


def opened_model() -> Model | Toy:
    """Open the chosen model, with a greyed grid where it has not been opened in this session."""
    slot = st.empty()
    if not sidebar.is_ready():
        with slot.container():
            waiting_grid(6, 12)
    model = sidebar.open_model()
    slot.empty()
    return model


def waiting_grid(layers: int, heads: int, label: str | None = None, key: str = "grid.waiting") -> None:
    """Draw a greyed grid while the model is being opened, or while what ``label`` says is under way."""
    st.caption(label or _("Opening the model …"))
    pale = Cell(fill="rgba(128,128,128,0.15)", ink="#000000", text="", title=_("not there yet"))
    grid(
        [[pale] * heads] * layers,
        chosen=None,
        label=label or _("Opening the model …"),
        key=key,
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
            title="–" if np.isnan(weight) else decimals(float(weight), 3),
            starts=i == starts,
        )
        for i, (label, special, weight) in enumerate(zip(tokens.labels, tokens.special, row, strict=True))
    ]
    words(items, chosen=query, label=_("Words: choose the query"), key=key, on_choose=on_choose)


def _printed(row: Floats, digits: int) -> list[str]:
    """Return the values of one layer as they fit into their cells; nothing where there are too many."""
    if len(row) > MOST_PRINTED:
        return [""] * len(row)
    return [_short(float(value), digits) for value in row]


def _short(value: float, digits: int) -> str:
    if abs(value) >= 0.995:
        return decimals(value, 1).replace("-", "−")
    text = f"{value:.{digits}f}"
    sign = "−" if text.startswith("-") and float(text) else ""
    return sign + written(text.removeprefix("-").removeprefix("0"))


def _cell(value: float, head: Head, note: str, text: str, scale: Scale, pale: bool) -> Cell:
    if np.isnan(value):
        return Cell(fill="transparent", ink="inherit", text="", title=f"{head}: –")
    fill = colour(scale.colours, scale.share(value))
    shown = decimals(value if abs(value) >= 0.0005 else 0.0, 3)
    title = f"{head}: {shown} · {note}" + (" · " + _("smaller than noise") if pale else "")
    return Cell(fill=fill, ink=ink(fill), text=text, title=title, mark="pale" if pale else "")


def _nothing(layer: int, head: int) -> None:
    """Ignore a choice in a grid that has nothing to choose."""
