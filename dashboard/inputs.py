"""What a page reads from a person: one sentence or two, and how its tokens are shown."""

from __future__ import annotations

import streamlit as st

from dashboard import keys, state
from dashboard.examples import EXAMPLES
from dashboard.text import _, language

EXAMPLE_BOX = "example.box"
MOST_LETTERS = 20_000  # several times what any of the models reads


def sentences() -> None:
    """Draw the box for a sentence, the examples to pick, and a second box for a pair."""
    pair = st.session_state[keys.PAIR]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _text_box(_("Sentence"), "text.box", st.session_state[keys.TEXT])
        _example_box()
        if pair is None:
            st.button(_("Add a second"), icon=":material/add:", key="pair.add", on_click=_add_pair)
        else:
            st.button(_("One sentence"), icon=":material/close:", key="pair.remove", on_click=_remove_pair)
    if pair is not None:
        _text_box(_("Second sentence"), "pair.box", pair)


def token_controls(is_pair: bool) -> None:
    """Draw the choices of how tokens are shown: special tokens, words or pieces, and a pair's blocks."""
    with st.container(horizontal=True):
        state.choose(
            keys.SPECIALS,
            _("Special tokens"),
            {"keep": _("keep"), "hide": _("hide"), "renormalise": _("renormalise")},
            help=_(
                "[CLS], [SEP] and their like. Hidden, the rows keep their values and no longer sum to 1; "
                "renormalised, each row is divided by what is left of it."
            ),
        )
        state.choose(
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
            state.choose(keys.BLOCK, _("Sentences"), names)


def _text_box(label: str, key: str, value: str) -> None:
    st.session_state[key] = value
    st.text_input(label, key=key, on_change=_take_boxes, autocomplete="off", max_chars=MOST_LETTERS)


def _take_boxes() -> None:
    pair = st.session_state.get("pair.box") if st.session_state[keys.PAIR] is not None else None
    state.take_text(st.session_state["text.box"], pair)


def _example_box() -> None:
    """Offer the shipped sentences; the box shows which one is read, or none."""
    state.select(
        _("Examples"),
        range(1, len(EXAMPLES) + 1),
        st.session_state[keys.EXAMPLE],
        state.take_example,
        key=f"{EXAMPLE_BOX}.{language()}",
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
