"""Which heads a session has switched off: kept as the link says it, with what was before, for undo."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence

import numpy as np
import streamlit as st

from analysis.maps import Head
from analysis.tokens import Bools
from dashboard import keys, state
from dashboard.components.switches import At

MOST_UNDO = 50


def write(off: Bools) -> str | None:
    """Return a mask [layer, head] as a link says it: ``6x12.`` and its bits, row by row, as base64url.

    None where all are on.
    """
    if not off.any():
        return None
    bits = base64.urlsafe_b64encode(np.packbits(off.ravel()).tobytes()).decode("ascii").rstrip("=")
    return _shape(*off.shape) + bits


def read(text: str | None, layers: int, heads: int) -> Bools:
    """Return the mask [layer, head] that a link says; all on where it says none of this shape."""
    nothing = np.zeros((layers, heads), dtype=bool)
    said = (text or "").removeprefix(_shape(layers, heads))
    if said == text or not re.fullmatch(r"[\w-]+", said, flags=re.ASCII):
        return nothing
    try:
        packed = base64.urlsafe_b64decode(said + "=" * (-len(said) % 4))
    except binascii.Error:
        return nothing
    bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8)).astype(bool)
    if len(packed) != -(-layers * heads // 8) or bits[layers * heads :].any():
        return nothing
    return bits[: layers * heads].reshape(layers, heads)


def _shape(layers: int, heads: int) -> str:
    """Return what a mask begins with: the bits alone would read as other heads in a model of another shape."""
    return f"{layers}x{heads}."


def of_session(layers: int, heads: int) -> Bools:
    """Return the mask [layer, head] of the session; all on where it is of a model of another shape."""
    return read(st.session_state[keys.OFF], layers, heads)


def places(off: Bools) -> list[At]:
    """Return the layer and head of all that are off."""
    return [(int(layer), int(head)) for layer, head in np.argwhere(off)]


def switch(off: Bools) -> None:
    """Switch exactly these heads off, and remember what was before."""
    state.acted()
    before = st.session_state[keys.OFF]
    now = write(off)
    if now == before:
        return
    past: Sequence[str | None] = st.session_state.get(keys.OFF_BEFORE, ())
    st.session_state[keys.OFF_BEFORE] = (*past, before)[-MOST_UNDO:]
    st.session_state[keys.OFF] = now


def press(head: At, off: Sequence[At], shape: tuple[int, int]) -> None:
    """Take what the map of switches says: the head that was pressed or walked to, and all that are off."""
    state.choose_head(*head)
    mask = np.zeros(shape, dtype=bool)
    for layer, index in off:
        mask[layer, index] = True
    switch(mask)


def turn_on(head: Head, shape: tuple[int, int]) -> None:
    """Switch one head on, and leave all others."""
    mask = of_session(*shape)
    mask[head.layer, head.index] = False
    switch(mask)


def turn_off(head: Head, shape: tuple[int, int]) -> None:
    """Switch one head off, beside those that are off already."""
    mask = of_session(*shape)
    mask[head.layer, head.index] = True
    switch(mask)


def only(head: Head, shape: tuple[int, int]) -> None:
    """Switch one head off, and all others on."""
    mask = np.zeros(shape, dtype=bool)
    mask[head.layer, head.index] = True
    switch(mask)


def layer_off(layer: int, shape: tuple[int, int], gone: Bools | None = None) -> None:
    """Switch all heads of a layer off but those that are ``gone`` [layer, head], beside those that are off already."""
    mask = of_session(*shape)
    mask[layer] |= True if gone is None else ~gone[layer]
    switch(mask)


def all_on(shape: tuple[int, int]) -> None:
    """Switch all heads on."""
    switch(np.zeros(shape, dtype=bool))


def can_undo() -> bool:
    """Whether there is something to take back."""
    return bool(st.session_state.get(keys.OFF_BEFORE))


def undo() -> None:
    """Take the last switching back; nothing where a second quick click finds nothing left."""
    if not can_undo():
        return
    state.acted()
    *past, last = st.session_state[keys.OFF_BEFORE]
    st.session_state[keys.OFF_BEFORE], st.session_state[keys.OFF] = tuple(past), last
