"""Questions: how narrow a head may be, shown; and what else people ask, each with the step that shows it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.by_hand import resolution, splits
from dashboard.learn import keys
from dashboard.learn.controls import number, steps
from dashboard.learn.figures import bars
from dashboard.learn.lesson import Page, Picture, Real, Seen, Shown, Step, judged
from dashboard.text import _

WIDTH = 64
HEADS = (1, 2, 4, 8, 16, 32, 64)
SHOWN = 16  # singular values that are drawn

# What shows the answer to each question: a page and its step.
ANSWERS: dict[str, tuple[str, str]] = {
    "many": ("six_steps", "many"),
    "more": ("six_steps", "mix"),
    "output": ("shapes", "shapes"),
    "stacking": ("six_steps", "two-layers"),
    "split": ("six_steps", "many"),
    "softmax": ("by_hand", "two-heads"),
    "scale": ("variations", "scale"),
    "meaning": ("six_steps", "patterns"),
    "length": ("variations", "cost"),
}


def _heads() -> int:
    return HEADS[number(keys.NARROW, 3, 0, len(HEADS) - 1)]


def _show() -> Shown:
    heads = _heads()
    found = resolution(WIDTH, heads)
    split = splits(WIDTH, (heads,))[0]
    values = found.singular[0]
    rank = int(found.rank.max())
    said = _("{heads} heads of width {width}: scores of **rank {rank}** over {tokens} tokens.").format(
        heads=heads, width=split.head_dim, rank=rank, tokens=found.scores.shape[1]
    )
    shown = values[:SHOWN].tolist()
    names = [str(i + 1) for i in range(len(shown))]
    alt = _(
        "The {count} largest singular values of the scores of one head; {rank} of {tokens} are not zero."
    ).format(count=len(shown), rank=rank, tokens=len(values))
    return Shown(
        found,
        (said,),
        (
            Picture(
                _("The {count} largest singular values of one head’s scores").format(count=len(shown)),
                bars(names, shown, x=_("singular value")),
                alt,
            ),
        ),
        numbers={_("singular values"): pd.DataFrame({_("singular value"): np.round(values, 6)})},
    )


def _controls(_seen: Seen) -> None:
    label = _("Heads in a layer {width} wide").format(width=WIDTH)
    steps(label, HEADS, keys.NARROW, HEADS.index(_heads()))


PAGE = Page(
    "questions",
    (
        Step(
            "questions",
            _show,
            _controls,
            {
                "coarse": judged(lambda found: int(found.rank.max()) == 4),
                "usual": judged(lambda found: found.scores.shape[0] == 1),
            },
            (resolution,),
            lambda: Real("heads", _("The heads of a real BERT, and what each is for"), {}),
        ),
    ),
    ANSWERS,
)
