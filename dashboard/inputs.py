"""What a page reads from a person: one sentence or two, and how its tokens are shown."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dashboard import boxes, keys, state
from dashboard.examples import EXAMPLES
from dashboard.text import _, language

EXAMPLE_BOX = "example.box"
MOST_LETTERS = 20_000  # several times what any of the models reads


def sentences() -> None:
    """Draw the box for a sentence, the examples to pick, and a second box for a pair."""
    pair = st.session_state[keys.PAIR]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text_box(_("Sentence"), "text.box", st.session_state[keys.TEXT], _take_first)
        _example_box()
        if pair is None:
            st.button(_("Add a second"), icon=":material/add:", key="pair.add", on_click=_add_pair)
        else:
            st.button(_("One sentence"), icon=":material/close:", key="pair.remove", on_click=_remove_pair)
    if pair is not None:
        text_box(_("Second sentence"), "pair.box", pair, _take_second)


def token_controls(is_pair: bool) -> None:
    """Draw the choices of how tokens are shown: special tokens, words or pieces, and a pair's blocks."""
    with st.container(horizontal=True):
        boxes.choose(
            keys.SPECIALS,
            _("Special tokens"),
            {"keep": _("keep"), "hide": _("hide"), "renormalise": _("renormalise")},
            help=_(
                "[CLS], [SEP] and their like. Hidden, the rows keep their values and no longer sum to 1; "
                "renormalised, each row is divided by what is left of it."
            ),
        )
        boxes.choose(
            keys.UNITS,
            _("Units"),
            {"words": _("words"), "pieces": _("pieces")},
            help=_(
                "Models read pieces of words. To a split word the weights of its pieces are summed, from it they "
                "are averaged; rows still sum to 1."
            ),
        )
        if is_pair:
            names = {"all": _("all"), "AA": "A → A", "AB": "A → B", "BA": "B → A", "BB": "B → B"}
            boxes.choose(keys.BLOCK, _("Sentences"), names)


def text_box(label: str, key: str, shown: str, take: Callable[[str], object]) -> None:
    """Draw a box for a sentence; ``take`` gets what is typed."""
    boxes.draw(
        st.text_input, label, key=key, shown=shown, take=take, autocomplete="off", max_chars=MOST_LETTERS
    )


def _take_first(text: str) -> None:
    state.take_text(text, st.session_state[keys.PAIR])


def _take_second(text: str) -> None:
    state.take_text(st.session_state[keys.TEXT], text)


def _example_box() -> None:
    """Offer the shipped sentences; the box shows which one is read, or none."""
    boxes.select(
        _("Examples"),
        range(1, len(EXAMPLES) + 1),
        key=f"{EXAMPLE_BOX}.{language()}",
        shown=st.session_state[keys.EXAMPLE],
        take=state.take_example,
        format_func=_example_name,
        placeholder=_("your own"),
        width=170,
    )


def _example_name(number: int) -> str:
    example = EXAMPLES[number - 1]
    return example.text if example.pair is None else f"{example.text} / {example.pair}"


def _add_pair() -> None:
    state.take_text(st.session_state[keys.TEXT], "")


def _remove_pair() -> None:
    state.take_text(st.session_state[keys.TEXT], None)
