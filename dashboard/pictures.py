"""The pictures of the Attention page: the chosen head's map, all heads, two heads beside each other."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from analysis.maps import AttentionMaps, Block, Head, block, strongest
from analysis.tokens import clip
from dashboard import boxes, keys, lenses, state
from dashboard.chart import chart
from dashboard.figures import difference_map, head_map
from dashboard.reading import Reading
from dashboard.text import _, escape
from dashboard.tiles import all_heads

CHART = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}
Figure = tuple[str, go.Figure]  # a title and what it stands over
MOST_ACROSS = 6  # small maps in a row where one layer is shown


def view_controls() -> str:
    """Draw the choice of picture and return it."""
    names = {
        "map": _("map"),
        "lines": _("lines"),
        "heads": _("all heads"),
        "beside": _("beside"),
        "why": _("why"),
    }
    return boxes.choose(keys.VIEW, _("View"), names)


def is_there(reading: Reading, head: Head, lens: str = "weights") -> bool:
    """Whether there is a map of a head to show: rollout has one for a layer, whatever was removed from it."""
    return lens == "rollout" or not reading.is_gone(head)


def part(reading: Reading, head: Head, lens: str = "weights") -> AttentionMaps:
    """Return the map of one head as its picture shows it: the block of the pair that is chosen, or all."""
    return block(reading.view(head, lens), _block(reading))


def _block(reading: Reading) -> Block:
    return st.session_state[keys.BLOCK.key] if reading.maps.is_pair else "all"


def map_picture(reading: Reading, head: Head, query: int, key: int, lens: str) -> list[Figure]:
    """Draw the chosen head's map, or one block of it; a click on a cell chooses its query and key."""
    one = part(reading, head, lens)
    rows, columns = positions(reading)
    figure = head_map(
        one, query=_index(rows, query), key=_index(columns, key), colour_name=lenses.colour_name(lens)
    )

    def choose() -> None:
        point = clicked("attention.map", len(rows) * len(columns))
        if point is not None:
            row, column = divmod(point, len(columns))
            state.choose_link(query=reading.places[rows[row]], key=reading.places[columns[column]])

    chart(
        figure,
        key="attention.map",
        on_select=choose,
        selection_mode="points",
        config=CHART,
        alt=_map_alt(one, head),
    )
    return [(lenses.title(lens, head), figure)]


def lines_view(reading: Reading, head: Head, query: int, lens: str) -> list[Figure]:
    """Draw the lines of the chosen head and of those added to it; the map stands for them in a file."""
    if lens != "rollout":
        lenses.lines_controls(reading, head)
    heads = [head, *lenses.further_heads(reading, head, lens)]
    there = [which for which in heads if is_there(reading, which, lens)]
    shown = [(lenses.title(lens, which), part(reading, which, lens)) for which in there]
    if shown:
        lenses.lines_picture(reading, shown, positions(reading)[0], query)
    return [(name, head_map(one, colour_name=lenses.colour_name(lens))) for name, one in shown]


def why_view(reading: Reading, head: Head, query: int, key: int) -> list[Figure]:
    """Draw why the query looks at the key."""
    name, figure = lenses.why_picture(reading, head, query, key)
    chart(
        figure,
        key="attention.why",
        config=CHART,
        alt=_("Products of the query's and the key's vectors by dimension; they sum to the score."),
    )
    return [(name, figure)]


def scope_controls(chosen: Head) -> str:
    """Draw the choice between the heads of the chosen layer and those of the whole model."""
    names = {"layer": _("layer {layer}").format(layer=chosen.layer), "model": _("the whole model")}
    return boxes.choose(keys.SCOPE, _("Heads of"), names)


def heads_picture(reading: Reading, chosen: Head, scope: str) -> list[Figure]:
    """Draw every head of the chosen layer, or of the model, as small maps; a click chooses one."""
    tiles = reading.tiles()
    layers, heads = tiles.shape[:2]
    if scope == "layer":
        across = _even_split(heads)
        names = [[Head(chosen.layer, i) for i in range(s, s + across)] for s in range(0, heads, across)]
    else:
        names = [[Head(layer, i) for i in range(heads)] for layer in range(layers)]
    picked = np.stack([np.stack([tiles[head.layer, head.index] for head in row]) for row in names])
    bits = reading.entropies()[0]
    said, removed = _("{head}: mean entropy {bits:.2f} bits"), _("removed")
    notes = [
        [
            f"{head}: {removed}"
            if reading.is_gone(head)
            else said.format(head=head, bits=bits[head.layer, head.index])
            for head in row
        ]
        for row in names
    ]
    figure = all_heads(picked, names, notes, chosen)

    def choose() -> None:
        point = clicked("attention.heads", len(names) * len(names[0]))
        if point is not None:
            row, column = divmod(point, len(names[0]))
            state.choose_head(names[row][column].layer, names[row][column].index)

    chart(
        figure,
        key="attention.heads",
        on_select=choose,
        selection_mode="points",
        config=CHART,
        alt=_("Small attention maps of {count} heads; {head} is chosen.").format(
            count=sum(not reading.is_gone(head) for row in names for head in row), head=chosen
        ),
    )
    title = _("all heads") if scope == "model" else _("layer {layer}").format(layer=chosen.layer)
    return [(title, figure)]


def clicked(chart: str, count: int) -> int | None:
    """Return which of a chart's ``count`` points was just clicked; None for none, the choice before it stays."""
    points = st.session_state[chart]["selection"]["points"]
    index = points[0].get("point_index") if points else None
    return index if isinstance(index, int) and 0 <= index < count else None


def _even_split(heads: int) -> int:
    """Return how many small maps to draw in a row so that all rows are full.

    Six at most; all in one row where only one or two would do.
    """
    most = max(n for n in range(1, MOST_ACROSS + 1) if heads % n == 0)
    return most if most > 2 else heads


def beside_controls(reading: Reading, head: Head) -> Head:
    """Draw the boxes that choose the second head, and return it."""
    layers, heads = reading.maps.layers, reading.maps.heads
    second = state.second_head(layers, heads, state.beside(head, heads, reading.maps.gone))
    layer = boxes.number_box(_("Second layer"), keys.LAYER_B, layers, second.layer, width=110)
    index = boxes.number_box(_("Second head"), keys.HEAD_B, heads, second.index, width=110)
    return Head(layer, index)


def say_difference(reading: Reading, head: Head, second: Head) -> None:
    """Say in a sentence where two heads differ most."""
    if head == second:
        st.markdown(_("The second head is the same as the first. Choose another."))
        return
    first, other = (part(reading, which) for which in (head, second))
    change = np.abs(first.weights[0, 0] - other.weights[0, 0])
    if not change.size:
        return
    query, key = strongest(change)
    rows, columns = positions(reading)
    names = reading.names
    st.markdown(
        _("They differ most at **{query}** → **{key}**: {first} has {a:.2f}, {second} has {b:.2f}.").format(
            query=escape(names[rows[query]]),
            key=escape(names[columns[key]]),
            first=head,
            second=second,
            a=first.weights[0, 0, query, key],
            b=other.weights[0, 0, query, key],
        )
    )


def beside_picture(reading: Reading, head: Head, second: Head) -> list[Figure]:
    """Draw two heads and the difference of their maps."""
    first, other = (part(reading, which) for which in (head, second))
    panels = [
        (str(head), head_map(first, narrow=True), _map_alt(first, head)),
        (str(second), head_map(other, narrow=True), _map_alt(other, second)),
        (
            f"{head} − {second}",
            difference_map(first, other),
            _("Difference of the attention maps of {first} and {second}.").format(first=head, second=second),
        ),
    ]
    with st.container(horizontal=True):
        for i, (title, figure, alt) in enumerate(panels):
            with st.container(width=325, gap="xxsmall"):
                st.markdown(f"**{title}**")
                chart(figure, key=f"attention.beside.{i}", config=CHART, alt=alt)
    return [(title, figure) for title, figure, _alt in panels]


def positions(reading: Reading) -> tuple[np.ndarray, np.ndarray]:
    """Return the units that stand in the rows and columns of the picture: of the block that is chosen, or all."""
    name, tokens = _block(reading), reading.tokens
    if name == "all":
        return np.arange(len(tokens)), np.arange(len(tokens))
    sides = ["AB".index(side) for side in name]
    return np.flatnonzero(tokens.segment == sides[0]), np.flatnonzero(tokens.segment == sides[1])


def _index(positions: np.ndarray, unit: int) -> int | None:
    found = np.flatnonzero(positions == unit)
    return int(found[0]) if len(found) else None


def _map_alt(part: AttentionMaps, head: Head) -> str:
    weights = part.weights[0, 0]
    if not weights.size:
        return _("Attention map of {head}: no tokens are left.").format(head=head)
    query, key = strongest(weights)
    return _(
        "Attention map of {head}, {rows} queries by {columns} keys; the largest weight is {weight:.2f}, from "
        "{query} to {key}."
    ).format(
        head=head,
        rows=weights.shape[0],
        columns=weights.shape[1],
        weight=weights[query, key],
        query=clip(part.queries.labels[query]),
        key=clip(part.keys.labels[key]),
    )
