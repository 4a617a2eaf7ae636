"""Home, Attention and Heads on a model without some heads: those are empty cells, nowhere chosen, counted or drawn."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pandas as pd
import pytest

from analysis.capture import capture
from analysis.maps import Head, in_units, largest
from analysis.models import open_model
from analysis.saving import save_model, smaller
from analysis.statistics import link
from dashboard import cache, keys
from dashboard.cache import NOTHING
from dashboard.examples import EXAMPLES
from tests.dashboard.test_compare_page import _few_texts_ship, boxes, grids, measured
from tests.dashboard.test_lens_views import files, numbers_of
from tests.dashboard.test_pages import (
    ATTENTION,
    HOME,
    _nothing_opened_before,
    open_other,
    open_page,
    put,
    ran,
    said,
    sent,
    spec,
    z_of,
)

# fixtures for this file too
__all__ = ["_few_texts_ship", "_nothing_opened_before", "files"]
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

HEADS = "views/heads.py"
SHAPE = (6, 12)
GONE = np.zeros(SHAPE, dtype=bool)
GONE[2] = True  # a whole layer
for _at in [(0, 0), (0, 5), (1, 11), (3, 1), (3, 2), (4, 7), (5, 0), (5, 8)]:
    GONE[_at] = True  # (3, 1) is where a session arrives, and links "it" to "animal" most
AWAY = Head(3, 1)
REMOVED = "L3·H1 was removed from this model: there is nothing to see of it. Choose another head."
TEXT = EXAMPLES[0].text


@pytest.fixture(scope="module")
def folder(bundled, tmp_path_factory):
    """The bundled model without 20 of its heads, saved."""
    path = tmp_path_factory.mktemp("models") / "smaller"
    save_model(smaller(bundled, GONE), path, whole=bundled)
    return str(path)


@pytest.fixture(scope="module")
def small(folder):
    """The smaller model, opened."""
    return open_model(folder)


@pytest.fixture
def opened(folder):
    """Return a function that opens a page with the smaller model, by a link."""

    def page(name, **link):
        cache.source(folder, None, "cpu")
        cache._opened()[folder] = folder
        return open_page(name, model=folder, **link)

    return page


def shows_removed(at, *, head=True):
    """Whether the page says that the chosen head was removed, once."""
    found = [info.value for info in at.info if "was removed from" in info.value]
    assert not [error.value for error in at.error]
    assert len(found) == head
    return found


def check_grids(at, *, switches=False):
    """Assert that the cells of all grids are empty where a head is gone, and there only; none is hatched."""
    shown = [*grids(at), *([sent(at, "switches")] if switches else [])]
    assert shown
    for grid in shown:
        cells = grid["cells"]
        for layer, head in np.ndindex(*SHAPE):
            fill, _ink, text, title, mark = cells[layer][head]
            name = f"L{layer}·H{head}"
            if GONE[layer, head]:
                assert (fill, text, title, mark) == ("transparent", "", f"{name}: removed", "")
            else:
                assert "removed" not in title
    return shown


def check_charts(at):
    """Assert that every chart is JSON, without a number that is none."""

    def no_number(name):
        raise AssertionError(f"{name} is not JSON")

    for chart in at.get("plotly_chart"):
        json.loads(chart.proto.spec, parse_constant=no_number)


def strongest_link(model):
    """Return the head that links "it" to "animal" most, and how much."""
    maps = in_units(capture(model, TEXT), "words")
    labels = maps.queries.labels
    values = link(maps, labels.index("it"), labels.index("animal"))
    best = largest(values)
    return best, values[best.layer, best.index]


# Home and Attention


def test_it_opens_from_the_sidebar_and_says_what_it_is(folder):
    at = open_other(open_page(), folder)
    assert "20 of 72 heads were removed from this model; the others keep their numbers." in said(at)
    check_grids(at)
    shows_removed(at, head=False)
    assert boxes(at) == (3, 3), "arrival is on the next head that is there"


def test_home_names_a_head_that_is_there(opened, small, bundled):
    assert strongest_link(bundled)[0] == AWAY
    best, weight = strongest_link(small)
    at = opened(HOME)
    assert f"Most of all **{best}**, with weight {weight:.2f}." in said(at)
    assert check_grids(at)[0]["chosen"] == [best.layer, best.index]


@pytest.mark.parametrize("colour", ["link", "entropy"])
@pytest.mark.parametrize("specials", keys.SPECIALS.options)
def test_the_grid_of_attention_has_empty_cells(opened, small, colour, specials):
    at = opened(ATTENTION, colour=colour, specials=specials)
    check_grids(at)
    if colour == "link" and specials != "renormalise":
        best, weight = strongest_link(small)
        assert f"Most: **{best}** {weight:.2f}" in said(at)


@pytest.mark.parametrize("head", ["3.1", "2.0"])
@pytest.mark.parametrize("view", keys.VIEW.options)
def test_a_head_that_is_gone_is_said_in_one_sentence(opened, files, view, head):
    layer, index = head.split(".")
    at = opened(ATTENTION, view=view, layer=layer, head=index)
    assert shows_removed(at) == [REMOVED.replace("L3·H1", f"L{layer}·H{index}")]
    assert "looks most at" not in said(at)
    check_grids(at)
    check_charts(at)
    assert len(at.get("plotly_chart")) == (view == "heads")
    assert all(name.split("-", 2)[1] == "smaller" for name in files(at))
    assert not [name for name in files(at) if f"L{layer}-H{index}" in name and not name.endswith(".html")]
    assert {word[3] for word in sent(at, "words")["words"]} == {"–"}
    put(at, layer=5, head=11)
    shows_removed(at, head=False)
    assert "looks most at" in said(at)


def test_rollout_is_of_the_layer_whatever_was_removed(opened, small):
    from analysis.lenses import rollout

    expected = in_units(rollout(capture(small, TEXT)), "words").weights
    for layer, head in ((3, 1), (3, 3), (2, 0)):
        at = opened(ATTENTION, lens="rollout", layer=str(layer), head=str(head))
        np.testing.assert_allclose(z_of(at), expected[layer, 0], atol=1e-6)
        assert f"up to layer {layer} most has flowed from" in said(at)


def test_small_maps_are_empty_where_nothing_is(opened):
    at = opened(ATTENTION, view="heads", scope="model")
    picture = np.array(z_of(at))
    rows, columns = picture.shape[0] // 6, picture.shape[1] // 12
    tiles = picture.reshape(6, rows, 12, columns).transpose(0, 2, 1, 3)
    np.testing.assert_array_equal((tiles == NOTHING).all(axis=(2, 3)), GONE)
    notes = spec(at)["data"][1]["hovertext"]
    np.testing.assert_array_equal([note.endswith(": removed") for note in notes], GONE.ravel())
    check_charts(at)


def test_the_second_head_and_further_heads_are_there(opened):
    at = opened(ATTENTION, view="beside", layer="4", head="6")
    assert boxes(at) == (4, 6, 4, 8), "the neighbour is gone, so the next one"
    shows_removed(at, head=False)
    put(at, layer2=3, head2=1)
    assert shows_removed(at) == [REMOVED]
    assert "looks most at" in said(at), "the first is there"
    at = opened(ATTENTION, view="lines", layer="4", head="6", **{"with": "3.1,5.11"})
    [box] = [box for box in at.multiselect if box.key == "lines.with"]
    assert box.value == ["L5·H11"]
    assert len(box.options) == (~GONE).sum() - 1
    put(at, layer=3, head=1)
    shows_removed(at)
    assert [strand[0] for strand in sent(at, "lines")["strands"]] == ["L5·H11"]


def test_the_table_of_all_heads_has_empty_rows(opened):
    at = opened(ATTENTION)
    at.session_state["attention.table"] = True
    table = ran(at.run()).dataframe[-1].value
    np.testing.assert_array_equal((table["strongest link"] == "removed").to_numpy(), GONE.ravel())
    for name in ("entropy (bits)", "entropy (share of maximum)", "its weight"):
        np.testing.assert_array_equal(table[name].isna().to_numpy(), GONE.ravel())


# Heads


def test_heads_counts_only_what_is_there(opened):
    at = measured(opened(HEADS))
    [line] = [line for line in said(at).splitlines() if " of 52 heads** have a clear role" in line]
    clear, *each = (int(n) for n in re.findall(r"\*\*(\d+) of 52|\((\d+)\)", line) for n in n if n)
    assert clear == sum(each) > 0
    check_grids(at)
    layer, head = boxes(at)
    assert not GONE[layer, head]
    at.session_state["heads.rules"] = True
    counts = [line for line in said(ran(at.run())).splitlines() if " scores " in line]
    assert len(counts) == 8
    for measure in keys.MEASURE.options:
        if "block" not in measure:
            check_grids(measured(put(at, measure=measure)))


@pytest.mark.parametrize("panel", keys.PANEL.options)
def test_the_pictures_of_heads_leave_out_what_is_gone(opened, panel):
    at = measured(opened(HEADS, panel=panel, measure="entropy"))
    check_charts(at)
    data = spec(at)["data"]
    if panel == "map":
        np.testing.assert_array_equal(np.isnan(numbers_of(data[0]["x"])), GONE.ravel())
        assert "Map of 52 heads" in at.get("plotly_chart")[0].proto.alt
    elif panel == "matrix":
        assert sorted(data[0]["x"]) == sorted(str(Head(*map(int, at))) for at in np.argwhere(~GONE))
        assert np.isfinite(z_of(at)).all()
    elif panel == "layers":
        np.testing.assert_array_equal(np.isnan(numbers_of(data[0]["y"])), GONE.ravel())
        np.testing.assert_array_equal(np.isnan(numbers_of(data[1]["y"])), GONE.all(axis=1))
        values = np.ma.masked_array(numbers_of(data[0]["y"]).reshape(SHAPE), GONE).mean(axis=1)
        np.testing.assert_allclose(
            numbers_of(data[1]["y"])[~GONE.all(axis=1)], values.compressed(), atol=1e-6
        )
    else:
        assert all("of 51 other heads" in note for note in data[1]["hovertext"] if note.split(": ")[1] != "–")
    put(at, layer=3, head=1)
    check_charts(at)
    assert shows_removed(at, head=panel == "head") == ([REMOVED] if panel == "head" else [])
    assert "is most focused on" not in said(at)


def test_the_files_of_heads_name_what_is_gone(opened, files):
    at = measured(opened(HEADS))
    found = {name: data for name, data in files(at).items() if name.endswith(".csv")}
    table, apart = (pd.read_csv(io.BytesIO(data)) for data in found.values())
    np.testing.assert_array_equal((table["role"] == "removed").to_numpy(), GONE.ravel())
    np.testing.assert_array_equal(table["entropy"].isna().to_numpy(), GONE.ravel())
    assert apart["distance"].notna().sum() == 52 * 51 // 2
    at.session_state["heads.table"] = True
    shown = ran(at.run()).dataframe[0].value
    assert (shown["role"] == "removed").sum() == 20
    assert set(shown[shown["role"] == "removed"]["confidence: 95% interval"]) == {"–"}
