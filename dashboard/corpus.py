"""The texts that heads are measured on: those that ship, or a person's own, which never leave the session."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from analysis.messages import HeadroomError, message
from analysis.texts import HUB, Text, columns_of, is_table, read_texts, sample
from analysis.tokens import clip
from dashboard import boxes, keys, state
from dashboard.text import _, escape, language, say_markdown

OWN, ERROR = "texts.own", "texts.error"
KINDS = ("txt", "csv", "tsv", "jsonl", "parquet")
LONGEST_LINE = 140  # letters of a text where it is named
MOST_LETTERS = 2_000_000  # of what is pasted; more belongs into a file


@dataclass(frozen=True)
class Corpus:
    """A collection of texts: its name, and a key that is the same for the same texts."""

    name: str
    key: str
    texts: tuple[Text, ...]


def corpus(name: str, texts: list[Text]) -> Corpus:
    """Return ``texts`` as a collection; its key depends on the texts alone."""
    packed = json.dumps(texts, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return Corpus(name, hashlib.sha256(packed).hexdigest()[:24], tuple(texts))


@st.cache_resource(show_spinner=False)
def _shipped(which: str) -> Corpus:
    return corpus(which, sample({"english": "en", "indonesian": "id"}[which]))


def chosen() -> Corpus:
    """Return the collection that the session looks at."""
    own = st.session_state.get(OWN)
    which = st.session_state[keys.TEXTS.key]
    if which == "own" and own is not None:
        return own
    return _shipped("english" if which == "own" else which)


def controls() -> None:
    """Draw the choice of texts, and the box to bring one's own."""
    own = st.session_state.get(OWN)
    names = {
        name: label.format(count=len(_shipped(name).texts))
        for name, label in (
            ("english", _("{count} English texts (shipped)")),
            ("indonesian", _("{count} Indonesian texts (shipped)")),
        )
    }
    if own is not None:
        names["own"] = _("{name} ({count:,} texts)").format(name=own.name, count=len(own.texts))
    elif st.session_state[keys.TEXTS.key] == "own":
        st.session_state[keys.TEXTS.key] = keys.TEXTS.default
    boxes.choose(keys.TEXTS, _("Texts"), names, widget=st.selectbox, width=250)
    with st.popover(_("Own texts"), icon=":material/upload:"):
        _own_texts()


def settings() -> None:
    """Draw the choice of texts and of how they are counted."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        controls()
        boxes.choose(
            keys.SPECIALS,
            _("Special tokens"),
            {"keep": _("keep"), "hide": _("hide"), "renormalise": _("renormalise")},
            help=_(
                "Hidden, [CLS] and [SEP] are no queries; renormalised, they are neither queries nor keys and each "
                "row is divided by what is left of it."
            ),
        )
        boxes.choose(
            keys.WEIGHTING,
            _("Average over"),
            {"queries": _("tokens"), "texts": _("texts")},
            help=_("Whether a mean is taken over all tokens of the collection, or over its texts."),
        )


def _own_texts() -> None:
    kind_names = {"paste": _("paste"), "file": _("file"), "hub": _("hub")}
    kind = st.segmented_control(
        _("From"),
        list(kind_names),
        format_func=lambda name: kind_names[name],
        default="paste",
        key=f"texts.kind.{language()}",
        on_change=_forget_error,
        required=True,
    )
    {"paste": _paste, "file": _upload, "hub": _fetch}[kind or "paste"]()
    error = st.session_state.get(ERROR)
    if error is not None:
        st.error(say_markdown(error))
    st.caption(_("Your texts stay in this session on this machine; no link carries them."))


def _paste() -> None:
    st.text_area(
        _("One text a line; a tab between the two sentences of a pair"),
        key="texts.paste",
        height=180,
        max_chars=MOST_LETTERS,
    )
    st.button(_("Use these texts"), key="texts.paste.use", on_click=_use_pasted)


def _use_pasted() -> None:
    lines = [line.strip() for line in (st.session_state["texts.paste"] or "").splitlines() if line.strip()]
    pairs = [tuple(part.strip() for part in line.split("\t", 1)) for line in lines]
    texts: list[Text] = [(pair[0], pair[1]) if len(pair) == 2 and all(pair) else pair[0] for pair in pairs]
    _take(lambda: (_("pasted"), texts or read_texts(_("The box"), data=b"")))


def _upload() -> None:
    file = st.file_uploader(
        _("A file with one text a line, or a table"),
        type=list(KINDS),
        key="texts.file",
        on_change=_forget_error,
    )
    if file is None:
        return
    columns: list[str] = []
    if is_table(file.name):
        try:
            there = columns_of(file.name, file.getvalue())
        except HeadroomError as error:
            st.error(say_markdown(error.message))
            return
        columns = st.multiselect(
            _("Column of the texts (two for pairs)"), there, key="texts.columns", max_selections=2
        )
        if not columns:
            return

    def use() -> None:
        _take(lambda: (file.name, read_texts(file.name, columns, data=file.getvalue(), by_number=False)))

    st.button(_("Use these texts"), key="texts.file.use", on_click=use)


def _fetch() -> None:
    st.text_input(
        _("A file of a data set on the Hugging Face hub"),
        key="texts.hub",
        placeholder=f"{HUB}owner/name/file.parquet",
        autocomplete="off",
    )
    st.text_input(
        _("Column of the texts (two for pairs, with a comma)"), key="texts.hub.columns", autocomplete="off"
    )
    st.button(_("Fetch these texts"), key="texts.hub.use", on_click=_use_fetched)


def _use_fetched() -> None:
    path = (st.session_state["texts.hub"] or "").strip()
    if path.removeprefix(HUB).strip("/").count("/") < 2:
        state.acted()
        st.session_state[ERROR] = message(
            "“{path}” names no file of a data set. Write {example}.",
            path=path,
            example=f"{HUB}owner/name/file.parquet",
        )
        return
    named = (st.session_state["texts.hub.columns"] or "").split(",")
    columns = [column.strip() for column in named if column.strip()]
    # A name of the hub alone is asked here: a path of this machine belongs into the upload.
    path = path if path.startswith(HUB) or "://" in path else f"{HUB}{path}"
    _take(lambda: (path.removeprefix(HUB), read_texts(path, columns)))


def _forget_error() -> None:
    """What was wrong with one file is not said of another."""
    st.session_state[ERROR] = None


def _take(read: Callable[[], tuple[str, list[Text]]]) -> None:
    """Look at one's own texts from now on; where they cannot be read, keep the error to show."""
    state.acted()
    st.session_state[ERROR] = None
    try:
        name, texts = read()
    except HeadroomError as error:
        st.session_state[ERROR] = error.message
        return
    st.session_state[OWN] = corpus(name, texts)
    st.session_state[keys.TEXTS.key] = "own"


def text_line(text: Text) -> str:
    """Return a text, or a pair with a slash, for a place that reads Markdown."""
    whole = text if isinstance(text, str) else " / ".join(text)
    return escape(clip(" ".join(whole.split()), LONGEST_LINE))
