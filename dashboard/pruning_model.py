"""Below the curves: the smaller model made real, checked, timed, saved, opened, downloaded."""

from __future__ import annotations

import io
import zipfile
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from analysis.messages import HeadroomError
from dashboard import jobs, pruning_jobs, sidebar, state
from dashboard.downloads import file_name
from dashboard.pruning_jobs import Built
from dashboard.pruning_panels import View, default_folder
from dashboard.text import _, escape, say_markdown

if TYPE_CHECKING:
    from analysis.models import Model

# Where what is on the page was saved, why it could not be, and which model that is of.
SAVED, ERROR, SAVED_OF = "pruning.saved", "pruning.save.error", "pruning.saved.of"
MOST_BYTES = 180_000_000  # of a download: what the page sends goes through one message


def make_real(view: View, whole: Model) -> None:
    """Offer to build the model without the heads that are gone at the step, and show what was built."""
    if not view.mask.any():
        st.caption(_("Move the slider: nothing is removed here."))
        return
    model = sidebar.model_key()
    job = jobs.find(pruning_jobs.build_key(model, view.mask))

    def build() -> None:
        state.acted()
        if job is not None:
            jobs.forget(job.key)
        pruning_jobs.build(model, view.mask)

    count = int(view.mask.sum())
    busy = job is not None and job.state in ("waiting", "running", "done")
    st.button(
        _("Make it real: remove {count} heads").format(count=count),
        key="pruning.build",
        type="primary",
        on_click=build,
        disabled=busy,
    )
    if job is None:
        st.caption(
            _(
                "Builds a copy of the model without these heads, checks that it says what the masked model says, and times "
                "both. A masked model is never faster: it computes every head."
            )
        )
        return
    built = jobs.result(job)
    if isinstance(built, Built):
        show(built, whole)
    elif job.state == "failed" and job.error is not None:
        st.error(say_markdown(job.error))
    elif job.state == "cancelled":
        st.info(_("Cancelled. Nothing was kept."))
    else:
        st.caption(_("Under way: other pages can be used meanwhile."))


def show(built: Built, whole: Model) -> None:
    """Draw what was built: its size, its speed, and what can be done with it."""
    before, after = built.before, built.after
    st.markdown(
        _(
            "**{parameters:,} of {all:,} parameters** ({share:.1%}), {products:.1%} of the multiply-adds at {tokens} tokens. "
            "Differs from the masked model by {apart} at most."
        ).format(
            parameters=after.parameters,
            all=before.parameters,
            share=after.parameters / before.parameters,
            products=after.products / before.products,
            tokens=after.tokens,
            apart=f"{built.apart:.0e}" if built.apart else "0",
        )
    )
    st.dataframe(pd.DataFrame(pruning_jobs.timing_rows(built.timings)), hide_index=True, width="stretch")
    turns = built.timings[0].turns if built.timings else 0
    st.caption(
        _(
            "Whole and smaller model in turn, {turns} turns, {tokens} tokens, one thread, on this machine while the page "
            "was in use. Arithmetic: the share of multiply-adds that is saved."
        ).format(turns=turns, tokens=after.tokens)
    )
    _save_box(built, whole)
    _downloads(built, whole)


def _save_box(built: Built, whole: Model) -> None:
    of = pruning_jobs.build_key(sidebar.model_key(), built.mask)
    if st.session_state.get(SAVED_OF) != of:  # what was said of another model is not said of this one
        st.session_state[SAVED_OF] = of
        st.session_state[SAVED] = st.session_state[ERROR] = None
        st.session_state.pop("pruning.folder", None)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.session_state.setdefault("pruning.folder", default_folder(whole, built.mask))
        st.text_input(_("Folder"), key="pruning.folder", autocomplete="off", max_chars=state.LONGEST)
        st.button(_("Save it"), key="pruning.save", on_click=_save, args=(built, whole, False))
    error = st.session_state.get(ERROR)
    if error is not None:
        st.error(say_markdown(error))
    saved = st.session_state.get(SAVED)
    if saved is not None:
        st.markdown(_("Saved in {folder}.").format(folder=f"`{saved}`"))
        st.button(
            _("Open it here"),
            key="pruning.open",
            icon=":material/arrow_forward:",
            on_click=_open,
            args=(saved,),
            help=_("It can then be chosen at the left, and compared with the whole model on every page."),
        )


def _save(built: Built, whole: Model, zeros: bool) -> None:
    state.acted()
    st.session_state[SAVED] = st.session_state[ERROR] = None
    typed = st.session_state["pruning.folder"] or default_folder(whole, built.mask)
    folder = Path(typed.strip()).expanduser()
    try:
        pruning_jobs.save(built, whole, folder, zeros=zeros)
    except HeadroomError as error:
        st.session_state[ERROR] = error.message
        return
    st.session_state[SAVED] = str(folder)


def _open(folder: str) -> None:
    sidebar.try_source(str(Path(folder).resolve()))


def _downloads(built: Built, whole: Model) -> None:
    from analysis.onnx_file import check_packages

    with st.popover(_("Download the model"), icon=":material/download:"):
        base = file_name(whole.name, f"without-{int(built.mask.sum())}-heads")
        if built.after.bytes > MOST_BYTES:
            st.caption(_("The model is too large for a download through the page: save it as a folder."))
            return
        st.markdown(_("**The smaller model** as a folder, for Headroom"))
        _button("ZIP", partial(_zip, built, whole, False), f"{base}.zip", "small")
        st.markdown(
            _(
                "**With zeros in place of the heads**, for plain from_pretrained; as large and as slow as before"
            )
        )
        _button("ZIP", partial(_zip, built, whole, True), f"{base}-zeros.zip", "zeros")
        st.markdown(_("**ONNX**, with its pooling or head inside, checked against torch"))
        try:
            check_packages()
        except HeadroomError as error:
            st.caption(escape(str(error)))
            return
        _button("ONNX", partial(_onnx, built), f"{base}.onnx", "onnx")


def _button(label: str, data: object, name: str, key: str) -> None:
    st.download_button(
        label,
        data=data,  # type: ignore[arg-type]
        file_name=name,
        mime="application/octet-stream",
        key=f"pruning.download.{key}",
        on_click="ignore",
    )


def _zip(built: Built, whole: Model, zeros: bool) -> bytes:
    buffer = io.BytesIO()
    with TemporaryDirectory() as place, zipfile.ZipFile(buffer, "w") as archive:
        folder = Path(place) / "model"
        pruning_jobs.save(built, whole, folder, zeros=zeros)
        for path in sorted(folder.iterdir()):
            archive.write(path, path.name)
    return buffer.getvalue()


def _onnx(built: Built) -> bytes:
    from analysis.onnx_file import to_bytes

    return to_bytes(built.small)
