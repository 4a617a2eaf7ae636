"""By hand: two heads in NumPy over three tokens that can be edited, and the module laid beside torch's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st

from analysis.by_hand import MASKS, TOLERANCE, Verified, resolution, splits, verify
from analysis.messages import OptionError
from analysis.toy import EXAMPLE, MultiHeadAttention, TwoHeads, attention, softmax, trace_two_heads
from dashboard import boxes, state
from dashboard.learn import controls, keys
from dashboard.learn.controls import number
from dashboard.learn.figures import Matrix, matrices
from dashboard.learn.lesson import Page, Picture, Real, Seen, Shown, Step, judged
from dashboard.text import _, language

MOST_HEADS_DRAWN = 4
EDITED = "learn.states"  # the table's own name, counted up when another takes its place
TURN, BASE = f"{EDITED}.turn", f"{EDITED}.base"


def edited() -> np.ndarray:
    """Return the three tokens [token, 6] as the session has them."""
    rows = (st.session_state.get(keys.STATES) or "").split(";")
    try:
        found = np.array([[float(part) for part in row.split(",")] for row in rows])
    except ValueError:
        return EXAMPLE
    return found if found.shape == EXAMPLE.shape else EXAMPLE


def keep(states: np.ndarray) -> None:
    """Remember three tokens; the example itself need not be said."""
    same = np.array_equal(states, EXAMPLE)
    st.session_state[keys.STATES] = (
        None if same else ";".join(",".join(repr(float(value)) for value in row) for row in states)
    )


def _two_heads() -> Shown:
    steps = trace_two_heads(edited())
    tokens = [_("token {number}").format(number=i) for i in range(3)]
    items = [
        Matrix(_("x: columns 0–2 class, 3–5 topic"), steps.states, tokens),
        Matrix(_("concat, then W_O: the output"), steps.output, tokens),
        Matrix(_("head 1, by class"), steps.weights[0], tokens, shares=True),
        Matrix(_("head 2, by topic"), steps.weights[1], tokens, shares=True),
    ]
    apart = float(np.abs(steps.weights[0] - steps.weights[1]).max())
    said = _("Largest difference between the two maps: **{apart:.3f}**. Every row sums to 1.").format(
        apart=apart
    )
    alt = _("The three tokens, the maps of both heads, and the output, with every number written in.")
    return Shown(
        steps,
        (said,),
        (Picture(_("Two heads over three tokens"), matrices(items), alt),),
        numbers={item.title: frame(item.values, item.rows) for item in items},
    )


def frame(values: np.ndarray, rows: Sequence[str] | None = None) -> pd.DataFrame:
    """Return a matrix as a table with named rows."""
    return pd.DataFrame(np.asarray(values, dtype=float), index=rows).round(6)


def _editor(_seen: Seen) -> None:
    name = _table_key()
    table = pd.DataFrame(
        st.session_state[BASE],
        index=[_("token {number}").format(number=i) for i in range(3)],
        columns=[str(i) for i in range(6)],
    )

    def take() -> None:
        state.acted()
        keep(_typed(name))

    st.data_editor(table, key=name, on_change=take, alt=_("The numbers of the three tokens, to be edited"))
    controls.reset(_("The example again"), "learn.states.back", keys.STATES)


def _table_key() -> str:
    """Return the key of the table that shows the three tokens: a new table where the last one shows others.

    A table keeps what was typed only while it is drawn: not over another page or language, nor over Back.
    """
    turn = st.session_state.setdefault(TURN, 0)
    name = f"{EDITED}.{turn}.{language()}"
    if BASE not in st.session_state or not np.array_equal(_typed(name), edited(), equal_nan=True):
        st.session_state[TURN], st.session_state[BASE] = turn + 1, edited()
        return f"{EDITED}.{turn + 1}.{language()}"
    return name


def _typed(name: str) -> np.ndarray:
    """Return the three tokens as a table shows them: those it began with, and what was typed over them."""
    states = np.array(st.session_state[BASE])
    for row, cells in st.session_state.get(name, {}).get("edited_rows", {}).items():
        for column, value in cells.items():
            states[int(row), int(column)] = np.nan if value is None else value
    return states


def sizes() -> tuple[int, int, int, int]:
    """Return width, heads, tokens and tokens of the other sequence, 0 for the same."""
    return (
        number(keys.WIDTH, 6, 1, 64),
        number(keys.HEADS, 2, 1, 16),
        number(keys.LENGTH, 4, 1, 12),
        number(keys.OTHER, 0, 0, 12),
    )


def _module() -> Shown:
    width, heads, length, other = sizes()
    found = verify(
        width, heads, length, keys=other or None, seed=number(keys.SEED, 0, 0, 9999), mask=masking()
    )
    drawn = range(min(heads, MOST_HEADS_DRAWN))
    items = [
        Matrix(_("head {number}").format(number=head + 1), found.weights[head], shares=True) for head in drawn
    ]
    verdict = _("the same to {tolerance:.0e}") if found.same else _("**not** the same to {tolerance:.0e}")
    said = _("Largest difference from `torch.nn.MultiheadAttention`: {output:.1e} in the output, {weights:.1e} in the "
             "weights: {verdict}.").format(
        output=found.output_difference,
        weights=found.weights_difference,
        verdict=verdict.format(tolerance=TOLERANCE),
    )  # fmt: skip
    further = (
        (_("{count} more heads are in the table.").format(count=heads - len(drawn)),)
        if heads > len(drawn)
        else ()
    )
    alt = _("The attention maps of {count} heads, with every weight written in.").format(count=len(drawn))
    return Shown(
        found,
        ((":material/check_circle: " if found.same else ":material/cancel: ") + said, *further),
        (Picture(_("Weights of each head: rows are queries, columns are keys"), matrices(items), alt),),
        tables={_("One head or several, at this width"): _one_or_several(width, heads)},
        numbers=_both(found),
    )


def _both(found: Verified) -> dict[str, pd.DataFrame]:
    said = {}
    for head, (ours, theirs) in enumerate(zip(found.weights, found.their_weights, strict=True), start=1):
        said[_("head {number}: the module").format(number=head)] = frame(ours)
        said[_("head {number}: torch’s own").format(number=head)] = frame(theirs)
    said[_("output: the module")] = frame(found.output)
    said[_("output: torch’s own")] = frame(found.their_output)
    return said


def _one_or_several(width: int, heads: int) -> pd.DataFrame:
    rows = []
    for split in splits(width, sorted({1, heads})):
        rank = resolution(width, split.num_heads).rank
        rows.append(
            {
                _("heads"): split.num_heads,
                _("patterns"): split.patterns,
                _("parameters of the four matrices"): split.parameters,
                _("width of a head"): split.head_dim,
                _("rank of its {width} × {width} scores").format(width=width): int(rank.max()),
            }
        )
    return pd.DataFrame(rows)


def masking() -> str:
    """Return the mask that is chosen."""
    chosen = str(st.session_state[keys.MASKING.key])
    return chosen if chosen in MASKS else MASKS[0]


def _module_controls(_seen: Seen) -> None:
    with st.container(horizontal=True):
        controls.box(_("width (d_model)"), keys.WIDTH, 6, 1, 64)
        controls.box(_("heads"), keys.HEADS, 2, 1, 16)
        controls.box(_("tokens"), keys.LENGTH, 4, 1, 12)
        controls.box(_("tokens looked at (0: the same)"), keys.OTHER, 0, 0, 12)
        controls.box(_("seed"), keys.SEED, 0, 0, 9999)
    names = {
        "none": _("none"),
        "causal": _("causal"),
        "boolean": _("random yes/no"),
        "additive": _("additive"),
    }
    boxes.choose(keys.MASKING, _("Mask"), names)
    controls.reset(
        _("Back to the start"),
        "learn.module.back",
        keys.WIDTH,
        keys.HEADS,
        keys.LENGTH,
        keys.OTHER,
        keys.SEED,
        then=_no_mask,
    )


def _no_mask() -> None:
    st.session_state[keys.MASKING.key] = keys.MASKING.default


def _looks_at_itself(steps: TwoHeads) -> bool:
    return bool(steps.weights[0, 2, 2] > steps.weights[0, 2, 0] + 1e-9)


def _same_maps(steps: TwoHeads) -> bool:
    return bool(np.allclose(steps.weights[0], steps.weights[1], atol=1e-9))


def _even_row(steps: TwoHeads) -> bool:
    return bool(np.isclose(steps.weights[0], 1 / 3, atol=1e-6).all(axis=1).any())


def _no_division(seen: Seen) -> bool:
    return isinstance(seen, OptionError) and bool(sizes()[0] % sizes()[1])


def _first_alone(found: Verified) -> bool:
    return len(found.states) > 1 and masking() == "causal" and bool((found.weights[:, 0, 0] == 1).all())


PAGE = Page(
    "by_hand",
    (
        Step(
            "two-heads",
            _two_heads,
            _editor,
            {"itself": judged(_looks_at_itself), "same": judged(_same_maps), "even": judged(_even_row)},
            (softmax, attention, trace_two_heads),
            lambda: Real(
                "attention", _("All heads of a layer of a real BERT, beside each other"), {"view": "heads"}
            ),
        ),
        Step(
            "module",
            _module,
            _module_controls,
            {
                "divide": _no_division,
                "triangle": judged(_first_alone),
                "oblong": judged(lambda found: found.weights.shape[1] != found.weights.shape[2]),
            },
            (MultiHeadAttention.__init__, MultiHeadAttention.trace, MultiHeadAttention._split),
            lambda: Real("attention", _("Two heads of a real BERT, beside each other"), {"view": "beside"}),
        ),
    ),
)
