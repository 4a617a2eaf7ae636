"""Which heads are off: the mask in the link, and how a session switches, takes back and forgets."""

from __future__ import annotations

import base64
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays

from analysis.maps import Head
from dashboard import keys, state, switched
from tests.dashboard.test_state import Link

SHAPE = (6, 12)
SHAPES = some.tuples(some.integers(1, 26), some.integers(1, 18))
MASKS = SHAPES.flatmap(lambda shape: arrays(bool, shape))


@pytest.fixture
def session(monkeypatch):
    """A session without Streamlit, at its first run."""
    fake = SimpleNamespace(session_state={}, query_params=Link())
    monkeypatch.setattr(state, "st", fake)
    monkeypatch.setattr(switched, "st", fake)
    state.start("live")
    return fake


def off():
    """Return the heads that the session has off, as layer and head."""
    return switched.places(switched.of_session(*SHAPE))


# The mask in the link


@given(MASKS)
@example(np.zeros((6, 12), dtype=bool))
@example(np.ones((24, 16), dtype=bool))
def test_a_mask_is_read_as_it_was_written(mask):
    text = switched.write(mask)
    assert (text is None) == (not mask.any())
    np.testing.assert_array_equal(switched.read(text, *mask.shape), mask)
    if text is not None:
        assert len(text) < state.LONGEST
        assert not set(text) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


@given(MASKS, SHAPES)
@example(np.eye(4, dtype=bool), (2, 8))
@example(np.ones((6, 12), dtype=bool), (12, 6))
def test_a_mask_of_a_model_of_another_shape_is_all_on(mask, shape):
    found = switched.read(switched.write(mask), *shape)
    assert found.shape == shape
    assert found.any() == (shape == mask.shape and mask.any())


FULL = base64.urlsafe_b64encode(bytes([255] * 9)).decode()  # all 72 heads off


@pytest.mark.parametrize(
    ("said", "layers", "heads"),
    [
        (None, 6, 12),
        ("", 6, 12),
        ("6x12.", 6, 12),
        (FULL, 6, 12),
        ("6x12" + FULL, 6, 12),
        ("12x6." + FULL, 6, 12),
        ("06x12." + FULL, 6, 12),
        ("6x12." + FULL[:-1], 6, 12),
        ("6x12." + FULL[:-2], 6, 12),
        ("6x12." + FULL[:-4], 6, 12),
        ("6x12." + FULL + "____", 6, 12),
        ("6x12." + FULL * 300, 6, 12),
        ("6x12." + "_" * 4_090, 6, 12),
        ("6x12.________ ___", 6, 12),
        ("6x12.____________\n", 6, 12),
        ("6x12._________+/_", 6, 12),
        ("6x12.__________==", 6, 12),
        ("6x12.___________é", 6, 12),
        ("6x12.___________٣", 6, 12),
        ("6x12.<script>____", 6, 12),
        ("6x12.____________\x00", 6, 12),
        ("6x12.\ud800___________", 6, 12),
        ("3x3.__8", 3, 3),  # sixteen bits, nine heads
        ("3x3.gAE", 3, 3),  # the last bit is of no head
        ("1x1._w", 1, 1),
    ],
    ids=ascii,
)
def test_what_is_no_mask_of_this_model_is_all_on(said, layers, heads):
    found = switched.read(said, layers, heads)
    assert found.shape == (layers, heads)
    assert not found.any()


def test_bits_stand_row_by_row():
    np.testing.assert_array_equal(switched.places(switched.read("2x4.gQ", 2, 4)), [(0, 0), (1, 3)])
    assert switched.read("6x12." + FULL, 6, 12).all()


@given(some.text() | some.text("ABab01-_.x=", max_size=20).map("6x12.".__add__))
def test_whatever_a_link_says_is_a_mask(said):
    found = switched.read(said, *SHAPE)
    assert (found.shape, found.dtype) == (SHAPE, bool)


# The session


def test_a_session_starts_with_all_on_and_nothing_to_take_back(session):
    assert off() == []
    assert not switched.can_undo()
    switched.undo()  # a second quick click on Undo comes when nothing is left
    assert off() == []


def test_heads_and_layers_are_switched_and_taken_back(session):
    switched.press((2, 5), [(2, 5)], SHAPE)
    assert state.chosen_head(*SHAPE) == Head(2, 5)
    switched.turn_off(Head(0, 3), SHAPE)
    switched.layer_off(4, SHAPE)
    layer = [(4, head) for head in range(12)]
    assert off() == [(0, 3), (2, 5), *layer]
    switched.turn_on(Head(4, 0), SHAPE)
    assert off() == [(0, 3), (2, 5), *layer[1:]]
    switched.only(Head(1, 1), SHAPE)
    assert off() == [(1, 1)]
    switched.all_on(SHAPE)
    assert off() == []
    assert session.session_state[keys.OFF] is None
    steps = [[(1, 1)], [(0, 3), (2, 5), *layer[1:]], [(0, 3), (2, 5), *layer], [(0, 3), (2, 5)], [(2, 5)], []]
    for wanted in steps:
        assert switched.can_undo()
        switched.undo()
        assert off() == wanted
    assert not switched.can_undo()


def test_what_changes_nothing_is_no_step(session):
    for _ in range(2):
        switched.turn_off(Head(0, 3), SHAPE)
        switched.press((5, 5), [(0, 3)], SHAPE)  # walked there
    switched.turn_on(Head(2, 2), SHAPE)
    assert state.chosen_head(*SHAPE) == Head(5, 5)
    switched.undo()
    assert off() == []
    assert not switched.can_undo()


@given(some.lists(arrays(bool, (2, 3)), max_size=70))
def test_undo_goes_back_step_by_step_as_far_as_is_kept(masks):
    with pytest.MonkeyPatch.context() as patch:
        fake = SimpleNamespace(session_state={}, query_params=Link())
        patch.setattr(state, "st", fake)
        patch.setattr(switched, "st", fake)
        state.start("live")
        seen = [np.zeros((2, 3), dtype=bool)]
        for mask in masks:
            switched.switch(mask)
            if (mask != seen[-1]).any():
                seen.append(mask)
        steps = 0
        while switched.can_undo():
            switched.undo()
            steps += 1
            np.testing.assert_array_equal(switched.of_session(2, 3), seen[-1 - steps])
        assert steps == min(len(seen) - 1, switched.MOST_UNDO)


def test_each_switch_counts_as_an_act_on_the_page(session):
    """Else the link, which is late, would undo it."""
    for act in (
        lambda: switched.press((0, 0), [(0, 0)], SHAPE),
        lambda: switched.turn_off(Head(1, 1), SHAPE),
        lambda: switched.turn_on(Head(1, 1), SHAPE),
        lambda: switched.only(Head(0, 0), SHAPE),
        lambda: switched.layer_off(0, SHAPE),
        lambda: switched.all_on(SHAPE),
        switched.undo,
    ):
        session.session_state.pop(keys.ACTED, None)
        act()
        assert session.session_state[keys.ACTED]


def test_the_link_brings_the_mask_back(session):
    switched.press((2, 5), [(2, 5), (0, 0)], SHAPE)
    state.write_link(keys.PAGE_LINKS["live"])
    assert session.query_params[keys.OFF] == switched.write(switched.of_session(*SHAPE))
    switched.all_on(SHAPE)
    state.start("live")  # the link is late
    assert off() == []
    said = session.query_params.to_dict()
    session.session_state.clear()
    session.query_params.from_dict(said)
    state.start("live")
    assert off() == [(0, 0), (2, 5)]
    switched.all_on(SHAPE)
    state.start("live")
    state.write_link(keys.PAGE_LINKS["live"])
    assert keys.OFF not in session.query_params
    session.query_params.from_dict(said)  # Back
    state.start("live")
    assert off() == [(0, 0), (2, 5)]


def test_a_mask_waits_for_its_model(session):
    switched.only(Head(5, 11), SHAPE)
    assert not switched.of_session(12, 6).any()
    switched.turn_off(Head(0, 0), (2, 2))
    assert off() == []
    switched.undo()
    assert off() == [(5, 11)]
