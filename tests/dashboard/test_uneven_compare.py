"""Compare and Ablate live on a model without some of its heads, and what a session starts with there."""

from __future__ import annotations

import numpy as np
import pytest

import dashboard.components.switches as switches_module
from analysis.maps import Head
from analysis.saving import save_model, smaller
from dashboard import keys, state, switched
from tests.dashboard.test_compare_page import _few_texts_ship, boxes, grids, measured, titles
from tests.dashboard.test_lens_views import files, press
from tests.dashboard.test_pages import _nothing_opened_before, open_other, open_page, put, ran, said, sent
from tests.dashboard.test_uneven_page import (
    AWAY,
    GONE,
    REMOVED,
    SHAPE,
    check_charts,
    check_grids,
    folder,
    opened,
    shows_removed,
)

# fixtures for this file too
__all__ = ["_few_texts_ship", "_nothing_opened_before", "files", "folder", "opened", "press"]
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

COMPARE, LIVE = "views/compare.py", "views/live.py"


# Compare


@pytest.mark.parametrize("compare", keys.COMPARE.options)
@pytest.mark.parametrize("turned", [False, True])
def test_whole_against_smaller_shows_what_both_have(opened, folder, compare, turned):
    at = opened(COMPARE, compare=compare)
    if turned:
        put(at, model="bundled", model2=folder)
    one_model = compare in ("sentences", "heads")
    at = measured(at)
    if not (turned and one_model):
        check_grids(at)
    shows_removed(at, head=False)
    check_charts(at)
    assert len(at.get("plotly_chart")) == 1
    layer, head, *_second = boxes(at)
    assert turned or not GONE[layer, head]
    if compare == "models":
        assert " of 52 heads** differ beyond noise" in said(at)
    if not one_model:
        name = "smaller"
        at = measured(put(at, layer=3, head=1, layer2=3, head2=1))
        assert shows_removed(at) == [REMOVED.replace("this model", name)]
        assert not at.get("plotly_chart")


@pytest.mark.parametrize("compare", ["sentences", "heads"])
def test_a_head_that_is_gone_is_not_compared(opened, files, compare):
    at = measured(opened(COMPARE, compare=compare, layer="3", head="1"))
    assert shows_removed(at) == [REMOVED]
    assert not at.get("plotly_chart")
    assert not at.dataframe
    assert not files(at)
    at = measured(opened(COMPARE, compare="heads", layer="4", head="6"))
    assert boxes(at) == (4, 6, 4, 8)


def test_two_that_have_no_head_in_common_say_so(bundled, tmp_path):
    for name, mask in (("one", GONE), ("other", ~GONE)):
        save_model(smaller(bundled, mask), tmp_path / name)
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    at = open_other(open_other(open_page(COMPARE, compare="sources"), other), one)
    at = put(at, model2=other)
    assert "Every head was removed from one of the two, so none can be compared." in [
        i.value for i in at.info
    ]


# Ablate live


def test_live_tries_the_heads_that_are_there(opened):
    at = opened(LIVE)
    check_grids(at, switches=True)
    layer, head = boxes(at)
    assert not GONE[layer, head]
    at = put(at, layer=5, head=11)
    at.button(key="live.layer").click()
    at = ran(at.run())
    assert "**10 of 52 heads off**" in said(at)
    assert "All heads of layer 5 are off" in said(at)
    assert "layer 2" not in said(at), "nobody switched that off"
    shown = sent(at, "switches")
    assert shown["off"] == [f"5.{head}" for head in range(12) if not GONE[5, head]]
    cells = np.array([[cell[4] == "off" for cell in row] for row in shown["cells"]])
    np.testing.assert_array_equal(cells, ~GONE & (np.arange(6) == 5)[:, None])
    check_grids(at)
    check_charts(at)
    at.session_state["live.table"] = True
    table = ran(at.run()).dataframe[1].value
    for name in ("change if off alone", "attention moved (bits)"):
        np.testing.assert_array_equal(table[name].isna().to_numpy(), GONE.ravel())


def test_what_is_gone_cannot_be_switched_off_live(opened, press):
    at = opened(LIVE, layer="3", head="1")
    assert shows_removed(at) == [REMOVED]
    assert {key: at.button(key=f"live.{key}").disabled for key in ("toggle", "only", "layer")} == {
        "toggle": True, "only": True, "layer": False,
    }  # fmt: skip
    message = {"layer": 3, "head": 1, "number": 1, "off": ["3.1", "0.0"]}
    at = press(at, switches_module, "_SWITCHES", "live.switches", message)
    assert "**All heads are on.**" in said(at)
    assert "off" not in at.query_params
    assert at.button(key="live.undo").disabled
    off = GONE.copy()
    off[3, 3] = True  # of the whole model: a link that was made there
    at = opened(LIVE, off=switched.write(off))
    assert "**1 of 52 heads off**: L3·H3" in said(at)
    put(at, watch="3.1")
    assert shows_removed(at) == [REMOVED]
    every = opened(LIVE, off=switched.write(~GONE))
    assert "**52 of 52 heads off**" in said(every)
    assert "Every head is off" in said(every)
    assert at.button(key="live.layer").label == "All of layer 5 off"
    assert put(at, layer=2, head=0).button(key="live.layer").disabled


# A model without any head, and which head is the next


def test_a_model_without_any_head_is_refused_in_one_sentence(bundled, tmp_path):
    save_model(smaller(bundled, np.ones(SHAPE, dtype=bool)), tmp_path / "none")
    at = open_other(open_page(), str(tmp_path / "none"))
    [error] = [error.value for error in at.error]
    assert "were removed: there is nothing to see of it" in error
    assert "removed" not in str(titles(grids(at)[0])), "the model before stays"


def test_the_next_head_is_one_that_is_there(monkeypatch):
    session = {keys.LAYER: None, keys.HEAD: None}
    monkeypatch.setattr(state.st, "session_state", session)
    assert state.chosen_head(*SHAPE) == AWAY
    assert state.chosen_head(*SHAPE, GONE) == Head(3, 3)
    session[keys.LAYER] = 2
    assert state.chosen_head(*SHAPE, GONE) == Head(3, 0), "a layer without heads: the next layer"
    session[keys.HEAD] = 7
    assert state.chosen_head(*SHAPE, GONE) == Head(2, 7), "what a person chose stays"
    assert state.chosen_head(*SHAPE, GONE | True) == Head(2, 7)
    assert state.beside(Head(5, 11), 12, GONE) == Head(5, 1)
