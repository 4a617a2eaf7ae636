"""The panels of the Ablation page: the answer in a sentence, the grid of changes, the bars, the tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import streamlit as st

from analysis.maps import Head
from analysis.significance import Changes
from dashboard import boxes, keys, panels, state
from dashboard.ablating import Found
from dashboard.naming import interval, metric_name, number, replacement_name
from dashboard.text import _, say_markdown


@dataclass(frozen=True, eq=False)
class View:
    """What the page looks at: an experiment's results by one of its metrics, and the chosen head."""

    found: Found
    metric: str
    head: Head

    @property
    def changes(self) -> Changes:
        return self.found.changes[self.metric]

    @property
    def shape(self) -> tuple[int, int]:
        """Layers and heads a layer."""
        masks = self.found.experiment.masks
        return masks.shape[1], masks.shape[2]

    @property
    def protocol(self) -> str:
        return self.found.experiment.options.protocol

    @property
    def gone(self) -> np.ndarray:
        """Return [layer, head] the heads that the model does not have any more."""
        return self.found.experiment.problem.model.gone

    @property
    def heads(self) -> list[Head]:
        """Return the head that each variant is about, where there is a variant for each head that is there."""
        return [Head(int(layer), int(head)) for layer, head in np.argwhere(~self.gone)]

    @property
    def place(self) -> int | None:
        """Return which variant is about the chosen head; None for one that was removed."""
        return self.heads.index(self.head) if self.head in self.heads else None

    def grid(self, values: np.ndarray) -> np.ndarray:
        """Return [layer, head] of [variant], where there is a variant for each head; NaN, or False, for none."""
        whole = np.full(self.shape, False if values.dtype == bool else np.nan)
        whole[~self.gone] = values
        return whole

    def axis(self) -> str:
        """Return what a change is called."""
        return _("change of {metric}").format(metric=metric_name(self.metric))

    def under(self) -> str:
        """Return what every figure says of how a head was switched off."""
        replaced = self.found.experiment.options.replacement
        return _("replaced by {what}").format(what=replacement_name(replaced))


def view_of(found: Found) -> View:
    """Return the view of a session; it starts at the head whose change is the largest."""
    metrics = [metric.name for metric in found.experiment.problem.metrics]
    chosen = st.session_state[keys.METRIC.key]
    layers, heads = found.experiment.masks.shape[1:]
    metric = chosen if chosen in metrics else metrics[0]
    view = View(found, metric, state.chosen_head(layers, heads))
    delta = found.changes[metric].delta
    if st.session_state[keys.LAYER] is None and len(delta) == len(view.heads):
        return View(found, metric, view.heads[int(np.nan_to_num(np.abs(delta)).argmax())])
    return view


def metric_box(found: Found) -> None:
    """Draw the choice of the score, where the task has several."""
    names = {metric.name: metric_name(metric.name) for metric in found.experiment.problem.metrics}
    if len(names) > 1:
        boxes.choose(keys.METRIC, _("Score"), names, widget=st.selectbox, width=130)


def summary(view: View) -> None:
    """Say what the whole model scores, and how many variants change that by more than noise."""
    found = view.found
    score = interval(*found.whole[view.metric])
    st.markdown(
        _("Whole model: {metric} **{score}** on {count:,} examples. {found}").format(
            metric=metric_name(view.metric), score=score, count=view.changes.examples, found=_answer(view)
        )
    )
    options = found.experiment.options
    notes = []
    if found.experiment.split == "half":
        notes.append(
            _(
                "A random half of the data (seed {seed}) was estimated on; the other half is reported on."
            ).format(seed=options.seed)
        )
    else:
        notes.append(_("Nothing was estimated, so all of the data is reported on."))
    if found.experiment.problem.task == "fidelity":
        notes.append(
            _(
                "Fidelity can only fall, so each change has its interval and no test, and there is no importance."
            )
        )
    else:
        width = np.nanmedian(view.changes.high - view.changes.low) / 2
        if view.protocol != "set" and width > 0:
            notes.append(
                _("With {count:,} examples, changes below about {width} cannot be told from noise.").format(
                    count=view.changes.examples, width=number(float(width))
                )
            )
    if found.draft is not None:
        notes.append(
            _(
                "**Draft**: against full precision on {variants} variants and {examples} examples, changes are off by at "
                "most {error}."
            ).format(
                variants=found.draft.variants, examples=found.draft.examples, error=number(found.draft.change)
            )
        )
    undefined = int(np.isnan(view.changes.delta).sum())
    if undefined:
        notes.append(
            _("For {count} variants the score is not defined: all their predictions are equal.").format(
                count=undefined
            )
        )
    notes += [say_markdown(note) for note in (*found.data.notes, *found.experiment.problem.notes)]
    st.caption(" ".join(notes))


def _answer(view: View) -> str:
    """Return how many variants are beyond noise, or the change of the one."""
    found = view.changes
    clear = ~found.noise & ~np.isnan(found.delta)
    if len(found.delta) == 1:
        said = interval(float(found.delta[0]), float(found.low[0]), float(found.high[0]))
        p = "" if np.isnan(found.p[0]) else f", p {number(float(found.p[0]))}"
        noise = "" if clear[0] else ": " + _("smaller than noise")
        count = int(view.found.experiment.masks[1].sum())
        return _("With {count} heads off it changes by **{change}**{p}{noise}.").format(
            count=count, change=said, p=p, noise=noise
        )
    worse, better = int((clear & (found.delta < 0)).sum()), int((clear & (found.delta > 0)).sum())
    what = {
        "single": _("**{clear} of {all} heads** matter beyond noise when they alone are off"),
        "all-but-one": _(
            "**{clear} of {all} heads** change it beyond noise when they alone are left in their layer"
        ),
        "pairs": _("**{clear} of {all} pairs** change it beyond noise"),
        "set": "",
    }[view.protocol]
    return what.format(clear=worse + better, all=len(found.delta)) + _(
        ": {worse} for the worse, {better} for the better."
    ).format(worse=worse, better=better)


def notes_of(view: View) -> list[str]:
    """Return of every variant its change with its interval, and how sure that is."""
    found = view.changes
    masks = view.found.experiment.masks[1:]
    said = []
    for i in range(len(found.delta)):
        text = f"{variant_name(view, masks[i])}: {interval(found.delta[i], found.low[i], found.high[i])}"
        if not np.isnan(found.q[i]):
            text += f" · q {number(float(found.q[i]))}"
        said.append(text + (" · " + _("smaller than noise") if found.noise[i] else ""))
    return said


def variant_name(view: View, mask: np.ndarray) -> str:
    """Return what a variant is called: by the head that is off, that is left, or by all that are off."""
    off = [Head(int(a), int(b)) for a, b in np.argwhere(mask)]
    if view.protocol == "all-but-one":
        layer = off[0].layer if off else 0
        (kept,) = np.flatnonzero(~mask[layer])[:1] if off else (0,)
        return _("only {head}").format(head=Head(layer, int(kept)))
    return " ".join(str(head) for head in off[:6]) + (" …" if len(off) > 6 else "")


def change_grid(view: View) -> None:
    """Draw the grid of changes, pale where smaller than noise, and the boxes that choose a head."""
    layers, heads = view.shape
    with st.container(horizontal=True, vertical_alignment="bottom"):
        both = partial(state.complete_head, view.head)
        boxes.number_box(_("Layer"), keys.LAYER, layers, view.head.layer, width=78, on_keep=both)
        boxes.number_box(_("Head"), keys.HEAD, heads, view.head.index, width=78, on_keep=both)
        metric_box(view.found)
    found = view.changes
    said = [note.split(": ", 1)[1] for note in notes_of(view)]
    pale = " · " + _("smaller than noise")  # which the grid says of its pale cells itself
    at = {head: text.removesuffix(pale) for head, text in zip(view.heads, said, strict=True)}
    panels.head_grid(
        view.grid(found.delta),
        meaning=view.axis(),
        chosen=view.head,
        key="ablation.grid",
        scale=panels.Scale(most=panels.top_of(found.delta), differences=True),
        notes=[[at.get(Head(a, b), "") for b in range(heads)] for a in range(layers)],
        pale=view.grid(found.noise),
        gone=view.gone,
    )
    what = {
        "single": _(
            "Colour: {axis} when this head alone is off ({under}); red is worse. Pale: smaller than noise."
        ),
        "all-but-one": _(
            "Colour: {axis} when only this head is left in its layer ({under}); red is worse. Pale: smaller than noise."
        ),
    }[view.protocol]
    st.caption(what.format(axis=view.axis(), under=view.under()))
    if view.place is None:
        st.markdown(_("**{head}** was removed from this model.").format(head=view.head))
        return
    first, *rest = said[view.place].split(" · ")
    st.markdown(f"**{view.head}** {first} · {' · '.join(rest) or _('no test')}")


def set_grid(shape: tuple[int, int]) -> None:
    """Draw the heads of the session's set as switches."""
    off = np.zeros(shape, dtype=bool)
    for head in state.set_heads(*shape):
        off[head.layer, head.index] = True
    panels.switch_grid(
        None,
        off,
        meaning=_("heads of the set"),
        chosen=state.chosen_head(*shape),
        key="ablation.set",
        scale=panels.Scale(),
        on_switch=take_switch,
    )
    st.caption(_("Click a head to put it into the set, or to take it out; then press Run."))


def take_switch(at: tuple[int, int], off: list[tuple[int, int]]) -> None:
    """Take the heads of a set from the grid."""
    state.choose_head(*at)
    st.session_state[keys.SET] = ",".join(f"{layer}.{head}" for layer, head in off) or None
