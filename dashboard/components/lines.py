"""Lines from queries to keys, as strong as their weights, for one head or several at once."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import partial

import numpy as np
import streamlit as st

from . import asset, heard, index, seen

_LINES = st.components.v2.component(
    "headroom_lines", css=asset("lines.css"), js=asset("choice.js") + asset("lines.js")
)
_ONE = 50_000  # the whole number that stands for a weight of 1; it fits into 16 bits


@dataclass(frozen=True)
class End:
    """A token at one side of the lines, told from its equals by its place.

    Args:
        text: shown literally.
        quiet: quieter, for special tokens.
        title: shown on hover and read after the token by screen readers.
    """

    text: str
    quiet: bool
    title: str


@dataclass(frozen=True)
class Strand:
    """The lines of one head.

    Args:
        name: stands in the legend and with every number of the head.
        colour: of its lines and bars, any CSS colour that shows on light and on dark.
        weights: queries x keys, 0 to 1; the rows of the map that is shown.
    """

    name: str
    colour: str
    weights: Sequence[Sequence[float]]


def lines(
    queries: Sequence[End],
    keys: Sequence[End],
    strands: Sequence[Strand],
    *,
    chosen: Sequence[int],
    label: str,
    received: str,
    every: str,
    key: str,
    on_choose: Callable[[list[int]], None],
    hint: str = "",
) -> None:
    """Draw the lines of the chosen queries, sum their weights at every key, and let queries be chosen.

    Of more than 300 lines those below 0.01 are left out; the sums hold all weights.

    Args:
        queries: tokens at the left; nothing is drawn without queries, keys or strands.
        keys: tokens at the right.
        strands: one for each head.
        chosen: places of the chosen queries; if there are none, all are drawn.
        label: name of the list of queries for screen readers.
        received: heading of the sums at the right, over the chosen queries and all strands.
        every: text of the button that chooses all queries.
        key: unique on the page; keep it the same across reruns, languages, heads and sentences.
        on_choose: gets the places before the rerun, rising, also when they are already chosen; [] is all.
        hint: a line below that says how several queries are chosen.
    """
    if not (queries and keys and strands):
        return
    shape = len(queries), len(keys)
    _LINES(
        key=key,
        data={
            "queries": [astuple(end) for end in queries],
            "keys": [astuple(end) for end in keys],
            "strands": [(one.name, one.colour, _packed(one.weights, shape)) for one in strands],
            "chosen": sorted({place for place in chosen if 0 <= place < len(queries)}),
            "label": label,
            "received": received,
            "every": every,
            "hint": hint,
            "seen": seen(key),
        },
        on_choose_change=partial(_choose, key, len(queries), on_choose),
    )


def _packed(weights: Sequence[Sequence[float]], shape: tuple[int, int]) -> str:
    """Return the weights row by row, 16 bits each: less than three characters for a weight."""
    table = np.asarray(weights, dtype=float)
    assert table.shape == shape, "a row for each query, a column for each key"
    table = np.nan_to_num(table, nan=0.0).clip(0.0, 1.0)
    return b64encode(np.rint(table * _ONE).astype("<u2").tobytes()).decode("ascii")


def _choose(key: str, count: int, on_choose: Callable[[list[int]], None]) -> None:
    sent = heard(key).get("places")
    if not isinstance(sent, list):
        return
    places = {place for place in (index(value, count) for value in sent) if place is not None}
    if len(places) == len(sent):  # else something was no place, or stood there twice
        on_choose(sorted(places))
