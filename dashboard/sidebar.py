"""The sidebar: which model is looked at, and in which language the pages speak.

A link may open what ships and what someone already opened here. Everything else is asked first: a link
must not start a download, nor read a folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from analysis.messages import HeadroomError
from dashboard import boxes, cache, keys, state
from dashboard.text import LANGUAGE_KEY, _, escape, language, languages, say_markdown

if TYPE_CHECKING:
    from analysis.models import Model, Readout
    from analysis.toy import Toy

BUNDLED, TOY, OTHER = "bundled", "toy", "other"
BUNDLED_NAME = "all-MiniLM-L6-v2"
PRESETS = (
    "google-bert/bert-base-uncased",
    "distilbert/distilbert-base-uncased-finetuned-sst-2-english",
    "FacebookAI/roberta-base",
    "google/bert_uncased_L-2_H-128_A-2",
    "indobenchmark/indobert-base-p1",
)
LANGUAGE_NAMES = {"en": "EN", "id": "ID"}


def draw() -> None:
    """Draw the sidebar's controls and settle which model this session looks at."""
    _settle_model()
    with st.sidebar:
        _model_box()
        _language_switch()


def model_key() -> str:
    """Return the key of the model this session looks at, see `cache.key_of`."""
    return str(st.session_state[keys.MODEL])


def link_name() -> str | None:
    """Return what a link should say of the model: nothing for the bundled one."""
    asked = st.session_state.get(keys.MODEL_ASKED)
    return asked or (model_key() if model_key() != BUNDLED else None)


def model_name(key: str) -> str:
    """Return what a model is called beside another."""
    names = {BUNDLED: BUNDLED_NAME, TOY: _("toy")}
    return names.get(key) or (key.rstrip("/").rsplit("/", 1)[-1] if key.startswith(("/", ".", "~")) else key)


def second_model() -> str:
    """Return the key of the model that the chosen one is compared with: what ships or was opened here."""
    asked = st.session_state[keys.MODEL_B]
    offered = _second_models()
    return asked if asked in offered else offered[0]


def _second_models() -> list[str]:
    ready = [BUNDLED, TOY, *cache.opened()]
    others = [key for key in ready if key != model_key()]
    return [*(key for key in others if key != TOY), TOY] if TOY in others else others


def second_model_box() -> None:
    """Draw the choice of the model that the chosen one is compared with."""
    boxes.select(
        _("Second model"),
        _second_models(),
        key=f"model.second.{language()}",
        shown=second_model(),
        take=boxes.into(keys.MODEL_B),
        format_func=lambda name: {BUNDLED: BUNDLED_NAME, TOY: _("toy")}.get(name, name),
        width=260,
        help=_("The models that are open here. Open another one at the left, and it can be chosen here too."),
    )
    asked = st.session_state[keys.MODEL_B]
    if asked and asked not in _second_models() and asked != model_key():
        st.caption(_("{name} is not open here: open it at the left first.").format(name=escape(asked)))


def is_ready() -> bool:
    """Whether the model has been opened in this session, so that it comes at once."""
    return st.session_state.get(keys.MODEL_READY) == model_key()


def open_model() -> Model | Toy:
    """Open the chosen model and write its facts into the sidebar; a broken one gives way to the bundled."""
    asked = st.session_state.get(keys.MODEL_ASKED)
    if asked:
        _ask(asked)
    try:
        model = cache.source(*cache.parts_of(model_key()))
    except HeadroomError as error:
        if model_key() == BUNDLED:
            st.error(say_markdown(error.message))
            st.stop()
        st.session_state[keys.MODEL_ERROR] = error.message
        st.session_state[keys.MODEL] = BUNDLED
        st.rerun()
    st.session_state[keys.MODEL_READY] = model_key()
    with st.sidebar:
        st.caption(_facts(model))
        for note in getattr(model, "notes", ()):
            st.caption(say_markdown(note))
    return model


def _settle_model() -> None:
    if keys.MODEL in st.session_state:
        return
    st.session_state[keys.MODEL] = BUNDLED
    asked = st.query_params.get(keys.MODEL)
    if asked in (TOY, *cache.opened()):
        st.session_state[keys.MODEL] = asked
    elif asked and asked != BUNDLED:
        st.session_state[keys.MODEL_ASKED] = asked


def _model_box() -> None:
    current = model_key()
    ready = [BUNDLED, TOY, *cache.opened()]
    ready += [current] if current not in ready else []
    options = [*ready, *(name for name in PRESETS if name not in ready), OTHER]
    names = {BUNDLED: _("all-MiniLM-L6-v2 (bundled)"), TOY: _("toy: by hand, untrained"), OTHER: _("other …")}
    names |= {name: _("{name} (download)").format(name=name) for name in PRESETS if name not in ready}
    key = f"model.box.{language()}"
    is_other = st.session_state.get(key) == OTHER

    def take(picked: str) -> None:
        if picked != OTHER:
            try_source(picked)

    boxes.select(
        _("Model"),
        options,
        key=key,
        shown=OTHER if is_other else current,
        take=take,
        format_func=lambda name: names.get(name, name),
    )
    if is_other:
        _other_box(key)
    error = st.session_state.get(keys.MODEL_ERROR)
    if error:
        st.error(say_markdown(error))


def _other_box(box: str) -> None:
    """Ask for a hub id or a folder; the model in use stays until the new one is open."""
    with st.form("model.other", border=False):
        name = st.text_input(
            _("Hub id or folder"),
            key="model.name",
            placeholder="google-bert/bert-base-cased",
            autocomplete="off",
        )
        revision = st.text_input(
            _("Revision"),
            key="model.revision",
            placeholder="main",
            help=_("A branch, tag or commit of a hub model."),
        )
        devices = cache.libraries().devices
        device = st.selectbox(_("Device"), devices, key="model.device") if len(devices) > 1 else devices[0]
        if st.form_submit_button(_("Open the model")):
            name, revision = (name or "").strip(), (revision or "").strip()
            if try_source(cache.key_of(name, revision or None, device)):
                st.session_state.pop(box, None)
            st.rerun()


def try_source(key: str) -> bool:
    """Open ``key`` and look at it from now on; where it cannot be opened, say why and stay."""
    state.acted()
    st.session_state[keys.MODEL_ERROR] = None
    st.session_state[keys.MODEL_ASKED] = None
    try:
        with st.spinner(_("Opening {name} …").format(name=escape(key))):
            cache.source(*cache.parts_of(key))
    except HeadroomError as error:
        st.session_state[keys.MODEL_ERROR] = error.message
        return False
    st.session_state[keys.MODEL] = key
    st.session_state[keys.QUERY] = st.session_state[keys.KEY] = st.session_state[keys.LINES] = None
    return True


def _ask(asked: str) -> None:
    """Ask before opening what only a link named."""
    with st.container(border=True):
        st.markdown(
            _(
                "This link asks for the model **{name}**, which is not open here. Opening it reads a folder of this "
                "machine or downloads from the Hugging Face hub."
            ).format(name=escape(asked))
        )
        with st.container(horizontal=True):
            if st.button(_("Open it"), key="model.ask.open", type="primary"):
                try_source(asked)
                st.rerun()
            if st.button(_("Stay with the bundled model"), key="model.ask.stay"):
                state.acted()
                st.session_state[keys.MODEL_ASKED] = None
                st.rerun()


def _facts(model: Model | Toy) -> str:
    from analysis.toy import Toy

    if isinstance(model, Toy):
        return _("1 × {heads} heads, width {width}, random weights from seed {seed}").format(
            heads=model.num_heads, width=model.d_model, seed=model.seed
        )
    geometry = model.geometry
    sizes = _("{layers} × {heads} heads, {millions:.3g} M parameters").format(
        layers=geometry.layers, heads=geometry.heads, millions=geometry.parameters / 1e6
    )
    return f"{sizes} · {_readout(model.readout)}"


def _readout(readout: Readout) -> str:
    if readout.kind == "classification":
        labels = ", ".join(escape(label) for label in readout.labels[:6])
        return _("classifier: {labels}").format(labels=labels)
    names = {
        "regression": _("one score"),
        "masked": _("masked words"),
        "embedding": _("no task head"),
    }
    return names[readout.kind]


def _language_switch() -> None:
    """Offer the languages that have a catalogue, where there are several."""
    found = languages()
    if len(found) < 2:
        return
    boxes.draw(
        st.segmented_control,
        _("Language"),
        found,
        key="language.box",
        shown=language(),
        take=boxes.into(LANGUAGE_KEY),
        format_func=lambda name: LANGUAGE_NAMES.get(name, name.upper()),
        required=True,
    )
