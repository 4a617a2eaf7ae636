"""Home: what is this, where do I start."""

from __future__ import annotations

import streamlit as st

from analysis.maps import largest
from analysis.tokens import clip
from dashboard import keys, panels, sidebar, state
from dashboard.examples import EXAMPLES
from dashboard.reading import first_link, read
from dashboard.text import _, escape

ATTENTION_PAGE = "views/attention.py"


def go_to(layer: int, head: int) -> None:
    """Choose a head and go on to the Attention page after this run's start."""
    state.take_example(1)
    state.choose_head(layer, head)
    st.session_state["home.go"] = True


if st.session_state.pop("home.go", False):
    st.switch_page(ATTENTION_PAGE)

panels.title("Headroom", _("What does each attention head do, and how many can the model do without?"))
example = EXAMPLES[0]
slot = st.empty()
if not sidebar.is_ready():
    with slot.container():
        panels.waiting_grid(6, 12)
sidebar.open_model()
reading = read(sidebar.model_key(), example.text, example.pair, "words", "keep")
labels = [clip(label) for label in reading.tokens.labels]
head = state.chosen_head(reading.maps.layers, reading.maps.heads, reading.maps.gone)
query, key = first_link(reading, head, example)
values = reading.links(query, key)
best = largest(values) or head
with slot.container(horizontal=True, gap="large"):
    with st.container(width=480):
        st.markdown(
            _("Every cell is one attention head. Which one links **{query}** to **{key}**?").format(
                query=escape(labels[query]), key=escape(labels[key])
            )
            + "  \n"
            + _("Most of all **{head}**, with weight {weight:.2f}.").format(
                head=best, weight=values[best.layer, best.index]
            )
        )
        panels.head_grid(
            values,
            meaning=_("weight of “{query}” on “{key}”").format(query=labels[query], key=labels[key]),
            chosen=best,
            key="home.grid",
            scale=panels.ROOT,
            gone=reading.maps.gone,
            on_choose=go_to,
        )
        st.caption(_("“{text}” Choose a head to see all it does.").format(text=escape(example.text)))
    with st.container(width="stretch"):
        st.markdown(
            _(
                "A BERT-like encoder reads a sentence with many attention heads. Each of them decides, for every "
                "word, which other words to look at. Headroom shows what each head does with **your** sentence, on "
                "this machine: nothing you type leaves it."
            )
        )
        st.markdown(_("**Start with a sentence**"))
        with st.container(gap="xxsmall"):
            for number, example in enumerate(EXAMPLES[:5], start=1):
                text = example.text + (f" / {example.pair}" if example.pair else "")
                if st.button(escape(text), key=f"home.example.{number}", icon=":material/arrow_forward:"):
                    state.take_example(number)
                    st.switch_page(ATTENTION_PAGE)
        st.markdown(_("**Or with a question**"))
        with st.container(gap="xxsmall"):
            for page, question in (
                ("heads", _("What is each head for?")),
                ("compare", _("What changes between two sentences, heads or models?")),
                ("live", _("What happens if I switch this head off?")),
                ("ablation", _("Which heads matter, beyond noise?")),
                ("pruning", _("How many heads can go?")),
                ("by_hand", _("How does multi-head attention work? By hand, step by step")),
            ):
                st.page_link(page=f"views/{page}.py", label=question, icon=":material/arrow_forward:")
        st.markdown(
            _(
                "Or choose another model on the left: a **toy** whose attention is written out by hand, a model "
                "of the Hugging Face hub, or a folder of your own."
            )
        )
state.write_link([], {keys.MODEL: sidebar.link_name()})
