"""What the Ablation page is asked: the task, its data, the protocol, what stands in for a head, and which heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from analysis.datasets import COLUMNS, SHIPPED, Data, read_data, shipped
from analysis.messages import HeadroomError
from analysis.texts import HUB, columns_of, is_table
from dashboard import ablating, boxes, cache, keys, sidebar, state
from dashboard.corpus import KINDS, MOST_LETTERS
from dashboard.naming import protocol_name, replacement_name, task_name
from dashboard.text import _, language, say_markdown

if TYPE_CHECKING:
    from analysis.experiment import Options
    from analysis.models import Model

OWN, ERROR = "data.own", "data.error"  # OWN holds the task, its data and the columns of the copy
PASTED = "pasted.tsv"


@st.cache_resource(show_spinner=False)
def _shipped(task: str, which: str) -> Data:
    return shipped(task, which)


def task_box(model: Model) -> str:
    """Draw the choice of the task, of those that the model can do."""
    offered = [task for task in keys.TASK.options if task != "masked" or model.readout.kind == "masked"]
    names = {task: task_name(task) for task in offered}
    return boxes.choose(
        keys.TASK,
        _("Task"),
        names,
        widget=st.selectbox,
        width=140,
        help=_(
            "Similarity: do embeddings rank graded pairs rightly? Classification: the checkpoint’s classes, or a "
            "logistic regression on its embeddings. Masked words: for models that guess them. Fidelity: how close the "
            "output stays to the whole model’s; no grades needed."
        ),
    )


def data_box(task: str) -> Data:
    """Draw the choice of the data, and the box to bring one's own; return what is chosen."""
    own = st.session_state.get(OWN)
    own = own[1] if own is not None and own[0] == task else None
    names = {}
    for which, label in (("en", _("English, {count} (shipped)")), ("id", _("Indonesian, {count} (shipped)"))):
        if (task, which) in SHIPPED:
            names[which] = label.format(count=len(_shipped(task, which)))
    if own is not None:
        names[keys.OWN_DATA] = _("your own, {count:,}").format(count=len(own))
    which = boxes.choose(keys.DATA, _("Data"), names, widget=st.selectbox, width=180)
    with st.popover(_("Own data"), icon=":material/upload:"):
        _own(task)
    return own if own is not None and which == keys.OWN_DATA else _shipped(task, which)


def protocol_boxes() -> None:
    """Draw the choices of protocol, replacement and precision, and the heads where the protocol needs them."""
    names = {name: protocol_name(name) for name in keys.PROTOCOL.options}
    protocol = boxes.choose(
        keys.PROTOCOL,
        _("Switched off"),
        names,
        widget=st.selectbox,
        width=150,
        help=_(
            "Each head alone; in each layer all heads but one; a set of heads together; or every two of some heads, to "
            "see which stand in for each other."
        ),
    )
    boxes.choose(
        keys.REPLACEMENT,
        _("Replaced by"),
        {name: replacement_name(name) for name in keys.REPLACEMENT.options},
        widget=st.selectbox,
        width=140,
        help=_(
            "Zero, as Michel et al. 2019 and as removal does; the head’s mean context over the other half of the data; or "
            "the mean of all it could look at (Kovaleva et al. 2019)."
        ),
    )
    boxes.choose(
        keys.PRECISION,
        _("Precision"),
        {"full": _("full"), "draft": _("draft")},
        widget=st.selectbox,
        width=90,
        help=_("A draft computes in bfloat16: faster where the processor has it, and less exact."),
    )
    if protocol in ("set", "pairs"):
        about = _("layer.head, with commas between; both are counted from 0.")
        boxes.heads_box(_("Heads"), keys.SET, "ablation.heads", width=140, help=about)


def options(data: Data, task: str) -> Options:
    """Return what is asked, in the terms of the shell."""
    from analysis.experiment import SAMPLE, Options

    own = st.session_state.get(OWN)
    is_own = own is not None and own[1] is data
    which = st.session_state[keys.DATA.key]
    which = which if (task, which) in SHIPPED else keys.DATA.default  # what another task has is kept for it
    name, revision, _device = cache.parts_of(sidebar.model_key())
    protocol = st.session_state[keys.PROTOCOL.key]
    return Options(
        data=data.name if is_own else SAMPLE + which,
        task=task,  # type: ignore[arg-type]
        columns=own[2] if own is not None and is_own else (),
        model=name,
        revision=revision,
        protocol=protocol,
        heads=(st.session_state[keys.SET] or "") if protocol in ("set", "pairs") else "",
        replacement=st.session_state[keys.REPLACEMENT.key],
        precision=st.session_state[keys.PRECISION.key],
    )


def _own(task: str) -> None:
    kinds = {"paste": _("paste"), "file": _("file"), "hub": _("hub")}
    kind = st.segmented_control(
        _("From"),
        list(kinds),
        format_func=lambda name: kinds[name],
        default="paste",
        key=f"data.kind.{language()}",
        on_change=_forget_error,
        required=True,
    )
    {"paste": _paste, "file": _upload, "hub": _fetch}[kind or "paste"](task)
    error = st.session_state.get(ERROR)
    if error is not None:
        st.error(say_markdown(error))
    st.caption(
        _("Your data stays on this machine; a copy is kept beside the runs, so that they can be repeated.")
    )


def _what(task: str) -> str:
    """Say what a line or a row of a task's data holds."""
    said = {
        "similarity": _("first sentence, second sentence, grade"),
        "classification": _("text, label (or: first sentence, second sentence, label)"),
        "masked": _("text"),
        "fidelity": _("text (or: first sentence, second sentence)"),
    }
    return said[task]


def _paste(task: str) -> None:
    st.text_area(
        _("One example a line, with tabs between: {what}").format(what=_what(task)),
        key="data.paste",
        height=180,
        max_chars=MOST_LETTERS,
    )

    def use() -> None:
        text = st.session_state["data.paste"] or ""
        width = max((line.count("\t") + 1 for line in text.splitlines() if line.strip()), default=1)
        columns = [str(i) for i in range(min(width, max(COLUMNS[task])))]
        _take(
            task,
            lambda: read_data(PASTED, task, columns, data=text.encode("utf-8", "replace"), by_number=True),
        )

    st.button(_("Use this data"), key="data.paste.use", on_click=use)


def _upload(task: str) -> None:
    file = st.file_uploader(
        _("A table, or a file with one text a line"),
        type=list(KINDS),
        key="data.file",
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
            _("Columns, in this order: {what}").format(what=_what(task)),
            there,
            key="data.columns",
            max_selections=max(COLUMNS[task]),
        )
        if len(columns) not in COLUMNS[task]:
            return

    def use() -> None:
        _take(task, lambda: read_data(file.name, task, columns, data=file.getvalue(), by_number=False))

    st.button(_("Use this data"), key="data.file.use", on_click=use)


def _fetch(task: str) -> None:
    st.text_input(
        _("A file of a data set on the Hugging Face hub"),
        key="data.hub",
        placeholder=f"{HUB}owner/name/file.parquet",
        autocomplete="off",
    )
    st.text_input(
        _("Columns with commas between, in this order: {what}").format(what=_what(task)),
        key="data.hub.columns",
        autocomplete="off",
    )

    def use() -> None:
        path = (st.session_state["data.hub"] or "").strip()
        path = path if path.startswith(HUB) else HUB + path.removeprefix("/")  # never a path of this machine
        named = (st.session_state["data.hub.columns"] or "").split(",")
        columns = [column.strip() for column in named if column.strip()]
        _take(task, lambda: read_data(path, task, columns))

    st.button(_("Fetch this data"), key="data.hub.use", on_click=use)


def _forget_error() -> None:
    """What was wrong with one file is not said of another."""
    st.session_state[ERROR] = None


def _take(task: str, read: Callable[[], Data]) -> None:
    """Take one's own data from now on; where it cannot be read, keep the error to show."""
    state.acted()
    st.session_state[ERROR] = None
    try:
        data = ablating.keep_data(read(), task)
    except HeadroomError as error:
        st.session_state[ERROR] = error.message
        return
    # As the copy says it, so that the shell reads the same.
    columns = ablating.columns_of(data.name)
    again = read_data(data.name, task, columns)
    st.session_state[OWN] = (task, replace(again, notes=data.notes), columns)
    st.session_state[keys.DATA.key] = keys.OWN_DATA
