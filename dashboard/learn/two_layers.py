"""Two layers of attention, trained while one looks, and then without some of their heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st

from analysis.toy_pruning import Pruned, loss_without, prune
from analysis.trained_toy import CHANCE, HEADS, LAYERS, AttentionOnly, Progress, loss_of, role_scores, train
from dashboard import cache, state
from dashboard.chart import chart
from dashboard.learn import controls, keys
from dashboard.learn.controls import number
from dashboard.learn.figures import Line, lines
from dashboard.learn.lesson import Picture, Real, Seen, Shown, Step, judged
from dashboard.pictures import CHART
from dashboard.text import _

ASKED = "learn.train"
EACH = 2  # measurements between two drawings of a training under way
CHEAP, DEAR = 0.05, 0.2  # nats
FEW = 2  # heads


@dataclass(frozen=True, eq=False)
class Found:
    """A trained network: how it went, what its heads are worth, and its loss without those that are off."""

    course: tuple[Progress, ...]
    pruned: Pruned
    off: np.ndarray
    loss: float


def seed() -> int:
    """Return the seed of the training."""
    return number(keys.SEED, 0, 0, 9999)


def off() -> np.ndarray:
    """Return [layer, head] which heads of the trained network are off."""
    return controls.off(keys.GATES, LAYERS * HEADS).reshape(LAYERS, HEADS)


def names() -> list[str]:
    """Return the names of the eight heads."""
    return [f"L{layer}·H{head}" for layer in range(LAYERS) for head in range(HEADS)]


def loss_picture(course: Sequence[Progress]) -> Picture:
    """Return the loss against the steps."""
    steps = [one.step for one in course]
    loss = Line(_("loss"), steps, [one.loss for one in course])
    chance = Line(
        _("guessing: {loss:.2f}").format(loss=CHANCE), [0, max(steps[-1], 1)], [CHANCE] * 2, marked=False
    )
    last = course[-1]
    alt = _(
        "Loss against steps of training: {first:.2f} nats at first, {last:.2f} after {steps} steps."
    ).format(first=course[0].loss, last=last.loss, steps=last.step)
    figure = lines([loss, chance], x=_("steps"), y=_("loss (nats)"), height=230)
    return Picture(_("Loss of the next letter, where it can be known"), figure, alt)


def scores_picture(course: Sequence[Progress]) -> Picture:
    """Return the scores of all heads in their layers' roles against the steps."""
    steps = [one.step for one in course]
    items = [
        Line(f"{name} {role}", steps, [float(one.scores[layer, head]) for one in course], marked=False)
        for layer, role in enumerate((_("previous token"), _("induction")))
        for head, name in enumerate(names()[layer * HEADS : (layer + 1) * HEADS])
    ]
    last = course[-1].scores.max(axis=1)
    alt = _(
        "Scores against steps: the best previous-token head ends at {first:.2f}, the best induction head at {second:.2f}."
    )
    figure = lines(items, x=_("steps"), y=_("score, 0 to 1"), height=300)
    figure.update_yaxes(range=[0, 1])
    return Picture(
        _("Layer 0: weight on the letter before. Layer 1: weight on what followed last time"),
        figure,
        alt.format(first=float(last[0]), second=float(last[1])),
    )


def _removal(pruned: Pruned) -> Picture:
    removed = list(range(HEADS + 1))
    both = pruned.both
    items = [
        Line(_("highest scores first"), removed, both.highest.tolist()),
        Line(_("lowest scores first"), removed, both.lowest.tolist()),
        Line(_("mean over all choices"), removed, both.average.tolist()),
    ]
    figure = lines(items, x=_("heads removed from each layer"), y=_("loss (nats)"), height=250)
    alt = _(
        "Loss against heads removed from each layer: after one, {high:.2f} nats without the highest, {low:.2f} without the lowest."
    )
    return Picture(
        _("What it costs to remove heads"),
        figure,
        alt.format(high=float(both.highest[1]), low=float(both.lowest[1])),
    )


def _show() -> Shown:
    course = cache.course(seed())
    if course is None or course[-1].network is None:
        return Shown(None, (_("Not trained from this seed yet."),), ())
    pruned = cache.toy_pruned(seed())
    away = off()
    loss = loss_without(course[-1].network, away)
    found = Found(course, pruned, away, loss)
    said = [
        _("Loss with all heads **{whole:.3f}** nats; guessing gives {chance:.2f}.").format(
            whole=pruned.whole, chance=CHANCE
        )
    ]
    if away.any():
        said.append(
            _("Without {heads}: **{loss:.3f}** nats ({change:+.3f}).").format(
                heads=", ".join(name for name, one in zip(names(), away.ravel(), strict=True) if one),
                loss=loss,
                change=loss - pruned.whole,
            )
        )
    said.append(
        _(
            "Without all previous-token heads {first:.2f}, without all induction heads {second:.2f}, with those of both roles alone {only:.2f}."
        ).format(
            first=float(pruned.without_role[0]),
            second=float(pruned.without_role[1]),
            only=pruned.only_roles,
        )
    )
    table = pd.DataFrame(
        {
            _("head"): names(),
            _("score"): pruned.scores.ravel().round(3),
            _("has the role"): [_("yes") if one else _("no") for one in pruned.roles.ravel()],
            _("loss without it"): pruned.alone.ravel().round(3),
        }
    )
    course_table = pd.DataFrame(
        {
            _("step"): [one.step for one in course],
            _("loss"): [round(one.loss, 4) for one in course],
            **{
                name: [round(float(one.scores.ravel()[i]), 4) for one in course]
                for i, name in enumerate(names())
            },
        }
    )
    return Shown(
        found,
        tuple(said),
        (loss_picture(course), scores_picture(course), _removal(pruned)),
        tables={_("Each head in its layer’s role"): table},
        numbers={_("The training"): course_table},
    )


def _controls(seen: Seen) -> None:
    controls.box(_("seed"), keys.SEED, 0, 0, 9999)
    if isinstance(seen, Shown) and seen.found is not None:
        controls.switches(_("Switch off"), keys.GATES, names())
        st.caption(_("Trained from this seed; with another seed you can watch it again."))
        return
    st.button(
        _("Train"), key="learn.train.button", type="primary", on_click=_ask, icon=":material/play_arrow:"
    )


def _ask() -> None:
    state.acted()
    st.session_state[ASKED] = True


def _train(_seen: Seen) -> None:
    """Train from the chosen seed if that was asked, and draw how it goes."""
    if not st.session_state.pop(ASKED, False) or cache.course(seed()) is not None:
        return
    import torch

    torch.set_num_threads(1)  # of this thread of a session: the network is small
    slots = st.empty(), st.empty()
    course: list[Progress] = []
    for progress in train(seed()):
        course.append(progress)
        if (len(course) - 1) % EACH == 0:
            drawn = (loss_picture(course), scores_picture(course))
            for place, (slot, picture) in enumerate(zip(slots, drawn, strict=True)):
                with slot:
                    key = f"learn.train.{len(course)}.{place}"
                    chart(picture.figure, config=CHART, alt=picture.alt, key=key)
    cache.keep_course(seed(), tuple(course))
    st.rerun()


def _is_cheap(found: Found | None) -> bool:
    return found is not None and found.off.sum() == 1 and found.loss - found.pruned.whole < CHEAP


def _is_dear(found: Found | None) -> bool:
    return found is not None and 1 <= found.off.sum() <= FEW and found.loss - found.pruned.whole >= DEAR


STEP = Step(
    "two-layers",
    _show,
    _controls,
    {
        "induce": judged(lambda found: found is not None),
        "cheap": judged(_is_cheap),
        "dear": judged(_is_dear),
    },
    (AttentionOnly, train, loss_of, role_scores, prune),
    lambda: Real("pruning", _("How many heads a real BERT can do without"), {}),
    after=_train,
)
