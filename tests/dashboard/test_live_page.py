"""Ablate live as a person meets it, without a browser: switches, what is said before and after, sessions, links."""

from __future__ import annotations

import numpy as np
import pytest

import dashboard.components.grid as grid_module
import dashboard.components.switches as switches_module
from analysis.answers import distances, moved
from analysis.live import answer, effects
from analysis.maps import Head, in_units, with_specials
from dashboard import cache, switched
from dashboard.examples import EXAMPLES
from dashboard.naming import number
from tests.dashboard.test_compare_page import boxes, grids, titles, values_of
from tests.dashboard.test_lens_views import files, press
from tests.dashboard.test_pages import (
    LONG,
    _nothing_opened_before,
    open_page,
    put,
    ran,
    said,
    sent,
    write,
    z_of,
)

__all__ = ["_nothing_opened_before", "files", "press"]  # fixtures for this file too

LIVE = "views/live.py"
TEXT = EXAMPLES[0].text
SHAPE = (6, 12)


@pytest.fixture
def switch(press):
    """Return a function that sends that these heads are off, the last one pressed."""

    def switched_to(at, *heads, pressed=None):
        layer, head = pressed or heads[-1]
        message = {"layer": layer, "head": head, "number": 1, "off": [f"{a}.{b}" for a, b in heads]}
        return press(at, switches_module, "_SWITCHES", "live.switches", message)

    return switched_to


def mask_of(*heads, shape=SHAPE):
    off = np.zeros(shape, dtype=bool)
    for at in heads:
        off[at] = True
    return off


def off_in(at):
    """Return the heads that the page shows as off; what it says, hatches and keeps in its link agree."""
    shown = sent(at, "switches")
    shape = len(shown["cells"]), len(shown["cells"][0])
    heads = [tuple(int(n) for n in name.split(".")) for name in shown["off"]]
    hatched = np.array([[cell[4] == "off" for cell in row] for row in shown["cells"]])
    mask = mask_of(*heads, shape=shape)
    np.testing.assert_array_equal(hatched, mask)
    np.testing.assert_array_equal(switched.read(at.query_params.get("off"), *shape), mask)
    assert ("**All heads are on.**" in said(at)) == (not heads)
    assert (f"**{len(heads)} of {mask.size} heads off**" in said(at)) == bool(heads)
    return heads


def headline(before, after):
    """Return how one number is told."""
    return f"### {number(before)} → {number(after)} :gray[:small[change {number(after - before)}]]"


# Arrival and switches


def test_arrival_tries_every_head_alone(bundled):
    at = open_page(LIVE)
    assert at.subheader[0].value.startswith("Ablate live")
    assert off_in(at) == []
    whole = answer(bundled, TEXT)
    found = effects(bundled, TEXT, None, whole)
    shown = sent(at, "switches")
    np.testing.assert_allclose(values_of(shown), found, atol=5.1e-4)
    assert shown["chosen"] == list(divmod(int(found.argmax()), 12)) == list(boxes(at))
    assert "if only this head is off: change of the distance from" in shown["label"]
    assert headline(0, 0) in said(at)
    assert "This checkpoint has no task head" in said(at)
    assert grids(at) == []
    assert not at.get("plotly_chart")
    assert dict(at.query_params) == {}


def test_a_switch_changes_the_numbers_the_maps_and_the_link(switch, bundled):
    at = switch(open_page(LIVE), (0, 3), (2, 5))
    assert off_in(at) == [(0, 3), (2, 5)]
    assert boxes(at) == (2, 5)
    before, after = answer(bundled, TEXT), answer(bundled, TEXT, off=mask_of((0, 3), (2, 5)))
    assert headline(0, distances(before, after)[0]) in said(at)
    values = moved(before.maps[0], after.maps[0])
    best = Head(*(int(i) for i in divmod(int(values.argmax()), 12)))
    [grid] = grids(at)
    np.testing.assert_allclose(values_of(grid), values, atol=5.1e-4)
    assert grid["chosen"] == [best.layer, best.index]
    assert f"Where does attention move most? **{best}**, {number(values.max())} bits" in said(at)
    for units, specials in (("words", "keep"), ("pieces", "hide")):
        put(at, units=units, specials=specials)
        one, two = (
            with_specials(in_units(side.maps[0], units), specials).weights[best.layer, best.index]
            for side in (before, after)
        )
        for name, wanted in (("first", one), ("second", two), ("difference", two - one)):
            np.testing.assert_allclose(z_of(put(at, picture=name)), wanted, atol=1e-6)
    assert titles(sent(at, "switches"))[2][5] == "L2·H5: off"
    again = open_page(LIVE, **at.query_params)
    assert (off_in(again), boxes(again), said(again)) == (off_in(at), boxes(at), said(at))


def test_a_message_that_makes_no_sense_switches_nothing(press):
    at = open_page(LIVE)
    for message in (
        {},
        {"layer": 0, "head": 0},
        {"layer": 0, "head": 0, "off": "0.0"},
        {"layer": 0, "head": 0, "off": ["0.0", "6.0"]},
        {"layer": 0, "head": 0, "off": [["0.0"]]},
        {"layer": 0, "head": 12, "off": ["0.0"]},
        {"layer": True, "head": 0, "off": ["0.0"]},
    ):
        press(at, switches_module, "_SWITCHES", "live.switches", message)
        assert off_in(at) == []


def test_buttons_for_several_at_once_and_undo(switch):
    at = switch(open_page(LIVE), (1, 4), (1, 7))

    def click(name, wanted):
        assert off_in(ran(at.button(key=f"live.{name}").click().run())) == wanted

    layer = [(1, head) for head in range(12)]
    click("toggle", [(1, 4)])
    click("toggle", [(1, 4), (1, 7)])
    click("layer", layer)
    assert "All heads of layer 1 are off: there, no word sees another." in said(at)
    click("only", [(1, 7)])
    click("on", [])
    for wanted in ([(1, 7)], layer, [(1, 4), (1, 7)], [(1, 4)], [(1, 4), (1, 7)], []):
        click("undo", wanted)
    assert at.button(key="live.undo").disabled


def test_everything_off_and_the_last_layer_off_are_said_plainly(switch, bundled):
    everything = np.ones(SHAPE, dtype=bool)
    at = switch(open_page(LIVE), *switched.places(everything))
    assert "Every head is off: no word sees another" in said(at)
    found = distances(answer(bundled, TEXT), answer(bundled, TEXT, off=everything))[0]
    assert headline(0, found) in said(at)
    switch(at, (5, 3))
    assert "No attention moves: what is off has no layer after it" in said(at)
    assert not np.any(z_of(at))


def test_the_boxes_choose_a_head_without_switching(bundled):
    at = open_page(LIVE)
    layer, head = boxes(at)
    ran(at.selectbox(key="head.box").set_value((head + 3) % 12).run())
    assert boxes(at) == (layer, (head + 3) % 12)
    assert at.button(key="live.toggle").label == f"Switch {Head(*boxes(at))} off"
    assert sent(at, "switches")["chosen"] == list(boxes(at))
    assert off_in(at) == []
    for link in ({"layer": "4"}, {"head": "7"}, {"layer": "99", "head": "99"}):
        at = open_page(LIVE, **link)
        assert sent(at, "switches")["chosen"] == list(boxes(at))


def test_watch_a_head_and_then_again_what_moves_most(switch, press):
    at = switch(open_page(LIVE), (0, 3))
    most = grids(at)[0]["chosen"]
    other = [5, 0] if most != [5, 0] else [5, 1]
    assert "live.watch" not in [button.key for button in at.button]
    press(at, grid_module, "_GRID", "live.moved", {"layer": other[0], "head": other[1], "number": 1})
    assert grids(at)[0]["chosen"] == other
    assert at.query_params["watch"] == f"{other[0]}.{other[1]}"
    assert boxes(at) == (0, 3)  # what is switched stays chosen
    assert f"Attention of {Head(*other)}" in at.get("plotly_chart")[0].proto.alt
    ran(at.button(key="live.watch").click().run())
    assert grids(at)[0]["chosen"] == most
    assert "watch" not in at.query_params
    assert grids(open_page(LIVE, off=at.query_params["off"], watch="9.99"))[0]["chosen"] == most


# Texts


@pytest.mark.parametrize("text", ["", "   ", "\t", "\u200b"])
def test_nothing_to_read_is_one_sentence_and_the_page_lives(text, switch):
    at = write(switch(open_page(LIVE), (0, 3)), text)
    assert len(at.info) == 1
    assert at.info[0].value.count(".") <= 2
    assert not at.get("plotly_chart")
    assert at.query_params["off"] == switched.write(mask_of((0, 3)))
    assert off_in(write(at, "a cat")) == [(0, 3)]
    assert len(at.info) == 0
    write(at, "a cat", text)
    assert len(at.info) == (text == "\u200b")  # else the first is read alone, and that is said


@pytest.mark.parametrize(
    "text", ["cat", "?!", "<b>&amp;</script> **x** $y$ :smile: `z`", "a 😀 cat", "سلام 你好", "[SEP] [MASK]"]
)
def test_odd_texts_are_read_and_shown_literally(text, switch, bundled):
    at = switch(write(open_page(LIVE), text), (0, 3), (1, 1))
    found = distances(answer(bundled, text), answer(bundled, text, off=mask_of((0, 3), (1, 1))))[0]
    assert headline(0, found) in said(at)
    assert len(at.info) == 0
    for units, specials in (("words", "keep"), ("pieces", "hide"), ("words", "renormalise")):
        for picture in ("first", "difference"):
            put(at, units=units, specials=specials, picture=picture)
            assert not [e for e in at.markdown if e.proto.allow_html]
            raw = "\n".join(e.value for e in [*at.markdown, *at.caption])
            assert "<" not in raw.replace("\\<", "")
            assert "$" not in raw.replace("\\$", "")


def test_a_long_text_is_switched_though_not_every_head_is_tried(switch, bundled):
    at = write(open_page(LIVE), LONG)
    assert "This text is too long to try every head alone." in said(at)
    assert "Cut to the 512 tokens" in said(at)
    assert titles(sent(at, "switches"))[0][0] == "L0·H0: on"
    assert boxes(at) == (3, 1)
    switch(at, (0, 3))
    assert off_in(at) == [(0, 3)]
    found = distances(answer(bundled, LONG), answer(bundled, LONG, off=mask_of((0, 3))))[0]
    assert headline(0, found) in said(at)


def test_own_text_never_enters_the_link(switch):
    at = switch(write(open_page(LIVE, example="3"), "Privat zqxj", "Geheim wvkz"), (0, 3))
    for choices in ({}, {"picture": "second"}, {"side": "second", "watch": "1.1"}):
        put(at, **choices)
        link = " ".join(f"{name}={value}" for name, value in at.query_params.items()).lower()
        assert not [word for word in ("privat", "zqxj", "geheim", "wvkz", "example") if word in link]
        assert "off=" in link


# Sessions


def test_sessions_with_other_heads_off_do_not_mix(switch, bundled):
    asked = "bundled", TEXT, None, bytes(72), SHAPE
    kept = cache.answer(*asked)
    before = kept.embeddings.tobytes(), kept.maps[0].weights.tobytes()
    first, second = switch(open_page(LIVE), (0, 3)), switch(open_page(LIVE), (4, 4), (5, 5))
    third = write(switch(open_page(LIVE), (1, 1)), "")
    assert len(third.info) == 1
    for at, heads in ((first, [(0, 3)]), (second, [(4, 4), (5, 5)])):
        assert off_in(ran(at.run())) == heads
        found = distances(answer(bundled, TEXT), answer(bundled, TEXT, off=mask_of(*heads)))[0]
        assert headline(0, found) in said(at)
        assert len(at.info) == 0
    for name in ("on", "undo"):
        ran(first.button(key=f"live.{name}").click().run())
        assert off_in(ran(second.run())) == [(4, 4), (5, 5)]
    cache.answer.clear()
    for one in (kept, cache.answer(*asked)):
        assert (one.embeddings.tobytes(), one.maps[0].weights.tobytes()) == before
