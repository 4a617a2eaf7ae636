"""Below the pictures of the Heads page: a head's texts, the table of all heads, the downloads, the rules."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import streamlit as st

from analysis.maps import Head
from analysis.roles import GONE, NO_ROLE, scores
from dashboard import boxes, measuring, state, thresholds
from dashboard.corpus import text_line
from dashboard.downloads import file_button, file_name, to_html
from dashboard.head_panels import ATTENTION_PAGE
from dashboard.head_view import View
from dashboard.naming import measure_name, number, role_name, rule_measures
from dashboard.pictures import Figure
from dashboard.text import _, language

if TYPE_CHECKING:
    from analysis.distance import HeadDistances

SHOWN_TEXTS = 3  # at each end of a head's focus


def sentences(view: View) -> None:
    """List the texts on which the chosen head is most and least focused; each opens on the Attention page."""
    focus = view.found.focus
    if focus is None or view.is_gone():
        return
    head = view.head
    titles = (
        _("**{head}** is most focused on").format(head=head),
        _("**{head}** is least focused on").format(head=head),
    )
    with st.container(horizontal=True, gap="large"):
        for end, title in enumerate(titles):
            with st.container(width=480 if end == 0 else "stretch", gap="xxsmall"):
                st.markdown(title)
                places = focus.places[end, head.layer, head.index]
                shares = focus.entropy[end, head.layer, head.index]
                _text_buttons(view, end, places.tolist(), shares.tolist())


def _text_buttons(view: View, end: int, places: Sequence[int], shares: Sequence[float]) -> None:
    """Draw a button for each different text, with the head's normalised entropy on it."""
    shown: list[object] = []
    for place, share in zip(places, shares, strict=True):
        most = min(SHOWN_TEXTS, max(view.found.texts // 2, 1))  # no text is among both the most and the least
        if place < 0 or view.corpus.texts[place] in shown or len(shown) == most:
            continue
        text = view.corpus.texts[place]
        shown.append(text)
        label = f"{text_line(text)} :gray[{number(share)}]"
        if st.button(
            label,
            key=f"heads.text.{end}.{len(shown)}",
            type="tertiary",
            help=_("Normalised entropy {share}. See it on the Attention page.").format(share=number(share)),
        ):
            state.choose_head(view.head.layer, view.head.index)
            state.take_text(*((text, None) if isinstance(text, str) else text))
            st.switch_page(ATTENTION_PAGE)


def statistics_frame(view: View) -> pd.DataFrame:
    """Return a row a head: layer, head, its role, and every measure with the ends of its interval."""
    whole = view.found.frame()
    whole.insert(2, "role", view.roles.ravel())
    return whole


def table(view: View) -> None:
    """Draw a closed box with all heads in a table that can be sorted, filtered, and clicked."""
    box = st.expander(_("All heads as a table: sort, filter, choose"), key="heads.table", on_change="rerun")
    if not box.open:
        return
    with box:
        there = [
            role
            for role in [*(rule.role for rule in view.rules), NO_ROLE, GONE]
            if (view.roles == role).any()
        ]
        kept = st.pills(
            _("Roles"),
            there,
            selection_mode="multi",
            format_func=role_name,
            key=f"heads.filter.{language()}",
        )
        shown = shown_table(view, kept or there)
        st.dataframe(
            shown,
            key="heads.rows",
            hide_index=True,
            width="stretch",
            on_select=partial(_choose_row, shown),
            selection_mode="single-row",
        )


def shown_table(view: View, kept: list[str]) -> pd.DataFrame:
    """Return the heads whose role is among ``kept``, with the measures that any head has, in words."""
    whole = statistics_frame(view)
    whole = whole[whole["role"].isin(kept)]
    columns = {"head": [str(Head(a, b)) for a, b in zip(whole["layer"], whole["head"], strict=True)]}
    named = {_("head"): columns["head"], _("role"): [role_name(role) for role in whole["role"]]}
    for name in view.found.names:
        if whole[name].notna().any():
            named[measure_name(name)] = whole[name].round(4).tolist()
            named[_("{measure}: 95% interval").format(measure=measure_name(name))] = [
                "–" if np.isnan(low) else f"{number(low)} – {number(high)}"
                for low, high in zip(whole[f"{name}_low"], whole[f"{name}_high"], strict=True)
            ]
    return pd.DataFrame(named)


def _choose_row(shown: pd.DataFrame) -> None:
    rows = st.session_state["heads.rows"]["selection"]["rows"]
    if rows and rows[0] < len(shown):
        layer, head = shown.iloc[rows[0], 0].removeprefix("L").split("·H")
        state.choose_head(int(layer), int(head))


def downloads(view: View, figures: list[Figure]) -> None:
    """Offer the statistics, the distances and the picture as files."""
    base = file_name("heads", view.model, view.corpus.name)
    with st.popover(_("Download"), icon=":material/download:"):
        st.markdown(_("**All heads**: every measure with its interval, and the role"))
        with st.container(horizontal=True):
            file_button(".csv", partial(_csv, statistics_frame(view)), base)
            file_button(".parquet", partial(_parquet, statistics_frame(view)), base)
        apart = measuring.distances(view.model, view.corpus, view.found.specials)
        if apart is not None:
            st.markdown(_("**Distances** between every two heads"))
            file_button(".csv", partial(_distance_csv, apart), f"{base}-distances")
        if figures:
            st.markdown(_("**The pictures**, for a browser without a network"))
            file_button(".html", partial(to_html, figures, base), base)


def _csv(whole: pd.DataFrame) -> bytes:
    return whole.to_csv(index=False).encode("utf-8")


def _parquet(whole: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    whole.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _distance_csv(apart: HeadDistances) -> bytes:
    from analysis.distance import frame

    return _csv(frame(apart))


def rules(view: View) -> None:
    """Draw a closed box with the rules of the roles, the chosen head's scores, and a slider for each threshold."""
    box = st.expander(_("The rules of the roles, and their thresholds"), key="heads.rules", on_change="rerun")
    if not box.open:
        return
    each = scores(view.found, view.rules)[:, view.head.layer, view.head.index]
    with box:
        st.caption(
            _(
                "A head has the role whose threshold its score exceeds most, as a ratio; below all thresholds it has "
                "no clear role. Move a threshold and the grid follows."
            )
        )
        for rule, score in zip(view.rules, each, strict=True):
            with st.container(horizontal=True, vertical_alignment="center"):
                with st.container(width=430):
                    st.markdown(
                        _("**{letter}** {role}: {measures} · {head} scores {score}, {count} heads").format(
                            letter=rule.letter,
                            role=role_name(rule.role),
                            measures=rule_measures(rule),
                            head=view.head,
                            score=number(float(score)),
                            count=int((view.roles == rule.role).sum()),
                        )
                    )
                _threshold_slider(rule.letter, rule.threshold, role_name(rule.role))
        st.button(_("Back to the written rules"), key="heads.rules.reset", on_click=_reset)


def _threshold_slider(letter: str, threshold: float, role: str) -> None:
    boxes.draw(
        st.slider,
        _("Threshold of “{role}”").format(role=role),
        0.05,
        1.0,
        key=f"heads.rule.{letter}",
        shown=threshold,
        take=lambda chosen: thresholds.choose(letter, round(chosen, 2)),
        step=0.01,
        label_visibility="collapsed",
        width=260,
    )


def _reset() -> None:
    state.acted()
    thresholds.reset()
