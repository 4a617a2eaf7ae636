"""The panels of Ablate live: the switches, what the model says before and after, and where attention moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pandas as pd
import streamlit as st

from analysis.answers import Answer, Line
from analysis.maps import Floats, Head
from analysis.tokens import Bools
from dashboard import boxes, cache, keys, panels, state, switched
from dashboard.text import _


@dataclass(frozen=True, eq=False)
class View:
    """What the page looks at: what a model says with all heads on, and with those ``off`` [layer, head].

    effects: [layer, head] what each head alone would change, None where that was not tried
    asked: the model and the text, as `cache.answer` was asked for them
    """

    before: Answer
    after: Answer
    lines: list[Line]
    off: Bools
    head: Head
    effects: Floats | None
    asked: tuple[str, str, str | None]

    @property
    def shape(self) -> tuple[int, int]:
        """Layers and heads a layer."""
        return self.off.shape[0], self.off.shape[1]

    @property
    def side(self) -> int:
        """Which of two sentences that are read apart is looked at."""
        return int(len(self.before.maps) > 1 and st.session_state[keys.SIDE.key] == "second")

    @cached_property
    def gone(self) -> Bools:
        """Return [layer, head] which heads were removed from the model: they are neither on nor off."""
        return self.before.maps[0].gone

    def is_gone(self, head: Head) -> bool:
        """Whether a head was removed from the model."""
        return bool(self.gone[head.layer, head.index])

    @cached_property
    def moved(self) -> Floats:
        """Return [layer, head] how far the attention of each head moved, see `analysis.answers.moved`."""
        if not self.off.any():
            return np.where(self.gone, np.nan, 0.0)
        return cache.moved(*self.asked, self.off.tobytes(), self.shape, self.side)


def number_names(kind: str) -> str:
    """Return what the main number of a kind of answer is called."""
    names = {
        "classes": _("probability of the most likely class"),
        "score": _("score"),
        "guesses": _("probability of the first guess"),
        "similarity": _("similarity of the two sentences"),
        "embedding": _("distance from the whole model’s embedding"),
    }
    return names[kind]


def switches(view: View) -> None:
    """Draw the map of switches, and the buttons for several at once."""
    layers, heads = view.shape
    head = view.head
    with st.container(horizontal=True, vertical_alignment="bottom"):
        both = partial(state.complete_head, head)
        boxes.number_box(_("Layer"), keys.LAYER, layers, head.layer, width=78, on_keep=both)
        boxes.number_box(_("Head"), keys.HEAD, heads, head.index, width=78, on_keep=both)
        is_off = bool(view.off[head.layer, head.index])
        said = _("Switch {head} on") if is_off else _("Switch {head} off")
        turn = switched.turn_on if is_off else switched.turn_off
        st.button(
            said.format(head=head),
            key="live.toggle",
            on_click=turn,
            args=(head, view.shape),
            disabled=view.is_gone(head),
        )
        st.button(
            _("Undo"),
            key="live.undo",
            icon=":material/undo:",
            on_click=switched.undo,
            disabled=not switched.can_undo(),
        )
    with st.container(horizontal=True):
        some = partial(st.button, type="tertiary")
        some(
            _("All of layer {layer} off").format(layer=head.layer),
            key="live.layer",
            on_click=switched.layer_off,
            args=(head.layer, view.shape, view.gone),
            disabled=bool(view.gone[head.layer].all()),
        )
        some(
            _("Only {head} off").format(head=head),
            key="live.only",
            on_click=switched.only,
            args=(head, view.shape),
            disabled=view.is_gone(head),
        )
        some(_("All on"), key="live.on", on_click=switched.all_on, args=(view.shape,))
    if view.is_gone(head):
        panels.say_removed(head)
    name = number_names(view.before.kind)
    panels.switch_grid(
        view.effects,
        view.off,
        meaning=_("if only this head is off: change of the {number}").format(number=name),
        chosen=head,
        key="live.switches",
        scale=_effect_scale(view),
        gone=view.gone,
        on_switch=lambda at, off: switched.press(at, [one for one in off if not view.gone[one]], view.shape),
    )
    st.caption(_about_switches(view, name))


def _effect_scale(view: View) -> panels.Scale:
    """Return how effects are coloured: distances as weights are, changes around 0."""
    most = 1.0
    if view.effects is not None and view.before.kind == "score":  # in units of its own
        most = panels.top_of(view.effects)
    return panels.Scale(most=most, root=True, differences=view.before.kind != "embedding")


def _about_switches(view: View, name: str) -> str:
    if view.effects is None:
        return _(
            "Click a cell, or press Enter on it, to switch a head off (its context is set to zero) or on again. "
            "This text is too long to try every head alone."
        )
    return _(
        "Click a cell, or press Enter on it, to switch a head off (its context is set to zero) or on again. Colour: "
        "how the {number} would change if that head alone were off."
    ).format(number=name)


def say_off(view: View) -> None:
    """Say which heads are off, and plainly what it means where whole layers are."""
    count = int(view.off.sum())
    if not count:
        st.markdown(_("**All heads are on.** Switch one off and see what changes."))
        return
    named = ", ".join(str(Head(*at)) for at in switched.places(view.off)[:12])
    more = " …" if count > 12 else ""
    st.markdown(
        _("**{count} of {all} heads off**: {heads}").format(
            count=count, all=int((~view.gone).sum()), heads=named + more
        )
    )
    whole = np.flatnonzero((view.off | view.gone).all(axis=1) & view.off.any(axis=1))
    if (view.off | view.gone).all():
        st.caption(_("Every head is off: no word sees another, each goes through the layers on its own."))
    elif len(whole):
        st.caption(
            _("All heads of layer {layers} are off: there, no word sees another.").format(
                layers=", ".join(map(str, whole))
            )
        )


def line_names(lines: Sequence[Line]) -> list[str]:
    """Return what the numbers are called: by class or guess, and the masked word they are for where several are."""
    several = any(line.about > 1 for line in lines)
    return [f"{line.about}: {line.name}" if several else line.name for line in lines]


def said_table(view: View) -> pd.DataFrame:
    """Return what the model says, a row a number, before and after."""
    return pd.DataFrame(
        {
            _("what"): [name or number_names(view.before.kind) for name in line_names(view.lines)],
            _("before"): [one.before for one in view.lines],
            _("after"): [one.after for one in view.lines],
            _("change"): [one.after - one.before for one in view.lines],
        }
    ).round(6)


def heads_table(view: View) -> pd.DataFrame:
    """Return a row a head: whether it is off, its effect alone, and how far its attention moved."""
    layer, head = np.indices(view.shape)
    table: dict[str, np.ndarray] = {
        _("layer"): layer.ravel(),
        _("head"): head.ravel(),
        _("off"): view.off.ravel(),
    }
    if view.effects is not None:
        table[_("change if off alone")] = view.effects.ravel().round(6)
    table[_("attention moved (bits)")] = view.moved.ravel().round(6)
    return pd.DataFrame(table)
