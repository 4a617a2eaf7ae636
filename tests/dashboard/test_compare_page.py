"""Compare as a person meets it, without a browser: two sentences, two models, two heads, and their links."""

from __future__ import annotations

import html
import io
import json
import re
import shutil
import threading
import time

import numpy as np
import pandas as pd
import pytest

import analysis.collection
import dashboard.components.grid as grid_module
from analysis.capture import capture
from analysis.collection import summarise
from analysis.compare import align, as_maps, changes, difference
from analysis.distance import distances
from analysis.findings import difference as findings_difference
from analysis.maps import Head, in_units, with_specials
from analysis.models import open_model
from analysis.statistics import head_entropy
from analysis.toy import make_toy
from dashboard import cache, corpus, jobs, keys, measuring
from dashboard.examples import EXAMPLES, MINIMAL_PAIRS
from dashboard.naming import interval, measure_name
from tests.conftest import SST2
from tests.dashboard.test_lens_views import files, in_page, numbers_of, press
from tests.dashboard.test_pages import (
    ATTENTION,
    LONG,
    _nothing_opened_before,
    asked_for,
    open_other,
    open_page,
    put,
    ran,
    said,
    sent,
    spec,
    write,
    z_of,
)
from tests.tiny import save_tiny

__all__ = ["_nothing_opened_before", "asked_for", "files", "press"]  # fixtures for this file too

COMPARE, HEADS = "views/compare.py", "views/heads.py"
TEXTS = (
    "the cat sat on the mat",
    "a dog is good",
    "it was too tired to cross the street",
    ("the film is bad", "i love this bird"),
    "you walk and run.",
    "the animal was good and the film was bad",
)
SHORT = ("a cat sat", "the dog ran")


@pytest.fixture(autouse=True)
def _few_texts_ship(monkeypatch):
    """Let two small collections ship, so that nothing waits for long measurements."""
    few = {
        "english": corpus.corpus("english", list(TEXTS)),
        "indonesian": corpus.corpus("indonesian", list(SHORT)),
    }
    monkeypatch.setattr(corpus, "_shipped", few.__getitem__)


def measured(at):
    """Run the page until all that was started is there; bounded."""
    before = None
    for _attempt in range(600):
        ran(at.run())  # may start what follows from what was there
        idle = not jobs._registry().unfinished()
        if idle and said(at) == before:
            return at
        before = said(at) if idle else None
        time.sleep(0.02)
    raise AssertionError("the measuring does not end")


def over(at, texts, **choices):
    """Look at pasted texts, and wait until they are measured."""
    at.session_state[corpus.OWN] = corpus.corpus("pasted", list(texts))
    return measured(put(at, texts="own", **choices))


def type_sides(at, first, second):
    """Type the two sentences."""
    at.text_input(key="side.first").set_value(first)
    at.text_input(key="side.second").set_value(second)
    return ran(at.run())


def laid_over(source, first, second, units="words", specials="keep"):
    """Return the maps of both sides and their alignment, as the analysis gives them."""
    sides = [
        with_specials(in_units(capture(*side), units), specials)
        for side in ((source, first), second if isinstance(second, tuple) else (source, second))
    ]
    return *sides, align(sides[0].queries, sides[1].queries)


def grids(at):
    """Return what the grids of heads were given, in order."""
    found = [e.proto for e in at.get("bidi_component") if e.proto.component_name.endswith("grid")]
    return [json.loads(proto.json or proto.mixed.json) for proto in found]


def titles(grid):
    return [[cell[3] for cell in row] for row in grid["cells"]]


def values_of(grid):
    """Return the values of the cells, as they are said."""
    return np.array([[float(title.split(": ")[1].split(" ")[0]) for title in row] for row in titles(grid)])


def boxes(at):
    """Return layer and head, of both sides where there are two."""
    found = {box.key: box.value for box in at.selectbox}
    return tuple(found[f"{key}.box"] for key in keys.NUMBERS if f"{key}.box" in found)


def bold(sentence):
    return re.findall(r"\*\*(.*?)\*\*", sentence)


def only_in(at, name):
    """Return the words that are said to be in one side only."""
    line = next(line for line in said(at).splitlines() if "words in both" in line)
    part = [part for part in line.split(" · ") if part.startswith(f"only in {name}: ")]
    return bold(part[0]) if part else []


def difference_table(at):
    return at.dataframe[-1].value


@pytest.fixture
def tiny_pair(tmp_path):
    """Two folders with tiny models of the same shape."""
    return str(save_tiny(tmp_path / "one")), str(save_tiny(tmp_path / "two", seed=3))


# Two sentences


def test_arrival_lays_not_over_its_sentence(bundled):
    at = open_page(COMPARE)
    assert at.subheader[0].value.startswith("Compare")
    assert [box.value for box in at.text_input] == list(MINIMAL_PAIRS[0])
    first, second, alignment = laid_over(bundled, *MINIMAL_PAIRS[0])
    words = int((~alignment.special[alignment.shared]).sum())
    assert f"{words} words in both" in said(at)
    assert (only_in(at, "first"), only_in(at, "second")) == ([], ["not"])
    values = changes(first, second, alignment)
    best = Head(*divmod(int(values.argmax()), 12))
    assert f"Which head changes most? **{best}**, {values.max():.3f} bits" in said(at)
    [grid] = grids(at)
    assert grid["chosen"] == [best.layer, best.index] == list(boxes(at))
    np.testing.assert_allclose(values_of(grid), values, atol=5.1e-4)
    change = difference(first, second, alignment)[best.layer, best.index]
    np.testing.assert_allclose(z_of(at), change, atol=1e-6)  # NaN where the first has no such query
    assert np.isnan(z_of(at)[alignment.labels.index("not")]).all()
    assert dict(at.query_params) == {}


def test_every_minimal_pair_and_its_link(bundled):
    at = open_page(COMPARE)
    for number in range(len(MINIMAL_PAIRS), 0, -1):
        ran(at.selectbox(key="minimal.box.en").set_value(number).run())
        assert at.query_params.get("minimal") == (str(number) if number != 1 else None)
        assert tuple(box.value for box in at.text_input) == MINIMAL_PAIRS[number - 1]
        first, second, alignment = laid_over(bundled, *MINIMAL_PAIRS[number - 1])
        np.testing.assert_allclose(values_of(grids(at)[0]), changes(first, second, alignment), atol=5.1e-4)
        for name, places in (("first", alignment.second), ("second", alignment.first)):
            assert only_in(at, name) == [alignment.labels[i] for i in np.flatnonzero(places < 0)]
        if number == 2:
            np.testing.assert_array_equal(z_of(open_page(COMPARE, **at.query_params)), z_of(at))


@pytest.mark.parametrize(
    ("units", "specials"), [("pieces", "keep"), ("words", "hide"), ("pieces", "renormalise")]
)
def test_both_sides_and_their_difference_are_as_computed(units, specials, bundled):
    sides = "The unflappable cat didn't sleep.", "A cat did not sleep, unflappable."
    first, second, alignment = laid_over(bundled, *sides, units, specials)
    at = put(open_page(COMPARE), units=units, specials=specials, layer=2, head=4)
    type_sides(at, *sides)
    np.testing.assert_allclose(values_of(grids(at)[0]), changes(first, second, alignment), atol=5.1e-4)
    one = as_maps(first, alignment, alignment.first).weights[2, 4]
    two = as_maps(second, alignment, alignment.second).weights[2, 4]
    np.testing.assert_allclose(z_of(at), two - one, atol=1e-6)
    ticks = spec(at)["layout"]["yaxis"]["categoryarray"]
    assert ticks == [f"{i} {label}" for i, label in enumerate(alignment.labels)]
    change = np.nan_to_num(np.abs(two - one))
    change[:, (alignment.first < 0) | (alignment.second < 0)] = 0  # what one side lacks is told apart
    query, key = divmod(int(change.argmax()), len(alignment.labels))
    labels = alignment.labels
    assert (
        f"Most different: **{labels[query]}** → **{labels[key]}**, {one[query, key]:.2f} in first, "
        f"{two[query, key]:.2f} in second" in said(at)
    )
    assert "Blue: more in the second" in said(at)
    for name, wanted in (("first", one), ("second", two)):
        put(at, picture=name)
        np.testing.assert_allclose(z_of(at), wanted, atol=1e-6)
        assert at.query_params["picture"] == name
        assert "Blue: more in the second" not in said(at)


def test_a_click_on_the_grid_of_changes_chooses_the_head(press, bundled):
    at = press(
        open_page(COMPARE), grid_module, "_GRID", "compare.changes", {"layer": 1, "head": 9, "number": 1}
    )
    assert boxes(at) == (1, 9)
    assert grids(at)[0]["chosen"] == [1, 9]
    assert (at.query_params["layer"], at.query_params["head"]) == ("1", "9")
    maps = laid_over(bundled, *MINIMAL_PAIRS[0])
    np.testing.assert_allclose(z_of(at), difference(*maps)[1, 9], atol=1e-6)


def test_own_sentences_never_enter_the_link():
    at = type_sides(open_page(COMPARE, minimal="3"), "Privat zqxj", "Geheim wvkz")

    def check():
        link = " ".join(f"{name}={value}" for name, value in at.query_params.items()).lower()
        assert not [word for word in ("privat", "zqxj", "geheim", "wvkz") if word in link]
        assert "minimal" not in at.query_params

    check()
    assert at.selectbox(key="minimal.box.en").value is None
    put(at, layer=2, head=3, picture="second", units="pieces")
    check()
    put(at, compare="sources")
    check()
    put(at, compare="sentences")
    assert [box.value for box in at.text_input] == ["Privat zqxj", "Geheim wvkz"]
    at.switch_page(ATTENTION)
    ran(at.run())
    check()
    at.switch_page(COMPARE)
    assert [box.value for box in ran(at.run()).text_input] == ["Privat zqxj", "Geheim wvkz"]
    check()


def test_equal_sentences_change_nothing():
    at = type_sides(open_page(COMPARE), "A cat sat.", "A cat sat.")
    np.testing.assert_array_equal(values_of(grids(at)[0]), 0)
    assert "Nothing differs here." in said(at)
    assert not np.any(z_of(at))


def test_nothing_in_common_is_said():
    at = put(open_page(COMPARE), specials="hide")
    for sides in (("cat", "dog"), ("[SEP]", "[SEP]")):
        type_sides(at, *sides)
        assert at.info[0].value == "The two have no word in common, so nothing can be laid over each other."
        assert "0 words in both" in said(at)
        assert grids(at) == []
        for name in keys.PICTURE.options:
            put(at, picture=name)
    type_sides(at, "a cat", "a dog")
    assert len(at.info) == 0
    assert len(grids(at)) == 1


def test_nothing_to_read_is_one_sentence_and_the_page_lives():
    at = put(open_page(COMPARE), layer=1, head=2)
    for sides in (("", "a dog"), ("a dog", "  "), ("", ""), ("\u200b", "a dog")):
        type_sides(at, *sides)
        assert len(at.info) == 1
        assert at.info[0].value.count(".") <= 2
        assert not at.get("plotly_chart")
    type_sides(at, "a cat", "a dog")
    assert len(at.info) == 0
    assert boxes(at) == (1, 2)
    assert z_of(at).shape == (5, 5)


def test_odd_sentences_are_shown_literally():
    at = open_page(COMPARE)
    for first, second, own in (
        ("<b>x</b> **a** $y$ :smile:", "<b>x</b> **b** $y$ :smile:", ["a"]),
        ("a 😀 cat", "a 😎 cat", ["😀"]),
        ("سلام cat", "cat", ["\u2068سلام\u2069"]),
        ("a" * 300, "b", ["a" * 39 + "…"]),
        ("{name} %{x}", "name x", ["{", "}", "%", "{", "}"]),
    ):
        type_sides(at, first, second)
        assert only_in(at, "first") == own
        assert not [e for e in at.markdown if e.proto.allow_html]
        raw = "\n".join(e.value for e in [*at.markdown, *at.caption])
        assert "<" not in raw.replace("\\<", "")
        assert "$" not in raw.replace("\\$", "")
        for name in keys.PICTURE.options:
            assert z_of(put(at, picture=name)).size


@pytest.mark.parametrize("other", [LONG, "a 😀 cat"], ids=["cut", "unknown"])
def test_what_a_person_should_know_of_the_texts_is_said(other):
    at = type_sides(open_page(COMPARE), other, "a cat")
    assert "Cut to the 512 tokens" in said(at) or "read as [UNK]" in said(at)


# One sentence, two models


def test_one_sentence_under_the_bundled_model_and_the_toy(bundled, press):
    toy = make_toy()
    text = EXAMPLES[0].text
    at = put(open_page(COMPARE), compare="sources", layer=5, head=11)
    assert at.selectbox(key="model.second.en").value == "toy"
    assert dict(at.query_params) == {"compare": "sources", "layer": "5", "head": "11", "model2": "toy"}
    first, second, alignment = laid_over(bundled, text, (toy, text))
    assert only_in(at, "all-MiniLM-L6-v2") == ["[CLS]", "[SEP]"]
    assert only_in(at, "toy") == []
    assert "Which head changes most" not in said(at)  # 72 heads and 8: none is the other's
    found = grids(at)
    for grid, maps, shape in zip(found, (first, second), ((6, 12), (1, 8)), strict=True):
        assert (len(grid["cells"]), len(grid["cells"][0])) == shape
        np.testing.assert_allclose(values_of(grid), head_entropy(maps)[1], atol=5.1e-4)
    layer2, head2 = boxes(at)[2:]
    assert [grid["chosen"] for grid in found] == [[5, 11], [layer2, head2]]
    press(at, grid_module, "_GRID", "compare.entropy.1", {"layer": 0, "head": 6, "number": 1})
    press(at, grid_module, "_GRID", "compare.entropy.0", {"layer": 3, "head": 1, "number": 2})
    assert boxes(at) == (3, 1, 0, 6)
    assert "**toy** · **L0·H6**" in said(at)
    one = as_maps(first, alignment, alignment.first).weights[3, 1]
    two = as_maps(second, alignment, alignment.second).weights[0, 6]
    np.testing.assert_allclose(z_of(at), two - one, atol=1e-6)
    for name, wanted in (("first", one), ("second", two)):
        np.testing.assert_allclose(z_of(put(at, picture=name)), wanted, atol=1e-6)
    link = {"compare": "sources", "picture": "second", "model2": "toy", "layer": "3", "head": "1"}
    assert dict(at.query_params) == link | {"layer2": "0", "head2": "6"}
    np.testing.assert_array_equal(z_of(open_page(COMPARE, **at.query_params)), z_of(at))


def test_a_pair_under_two_models_and_the_sentence_of_attention(bundled):
    at = write(open_page(), "She saw it.", "It ran away.")
    at.switch_page(COMPARE)
    put(at, compare="sources", specials="renormalise")
    assert at.text_input(key="text.box").value == "She saw it."
    first = with_specials(in_units(capture(bundled, "She saw it.", "It ran away."), "words"), "renormalise")
    toy = with_specials(capture(make_toy(), "She saw it.", "It ran away."), "renormalise")
    alignment = align(first.queries, toy.queries)
    assert alignment.labels == ("She", "saw", "it", ".", "It", "ran", "away", ".")
    layer, head, layer2, head2 = boxes(at)
    np.testing.assert_allclose(z_of(at), toy.weights[layer2, head2] - first.weights[layer, head], atol=1e-6)
    assert not {"text", "pair", "example"} & set(at.query_params)
    ran(at.text_input(key="text.box").set_value("").run())
    assert "The first sentence of the pair is empty" in at.info[0].value
    assert not at.get("plotly_chart")
    assert at.query_params["compare"] == "sources"


def test_one_sentence_under_a_model_opened_at_the_left(tmp_path):
    folder = str(save_tiny(tmp_path / "tiny"))
    at = open_other(put(open_page(COMPARE), compare="sources", units="pieces"), folder)
    assert at.session_state["model"] == folder
    assert at.selectbox(key="model.second.en").value == "bundled"
    model = open_model(folder)
    first = capture(model, EXAMPLES[0].text)
    layer, head = boxes(at)[:2]
    put(at, picture="first")
    alignment = align(first.queries, capture(cache.source("bundled", None, "cpu"), EXAMPLES[0].text).queries)
    wanted = as_maps(first, alignment, alignment.first).weights[layer, head]
    np.testing.assert_allclose(z_of(at), wanted, atol=1e-5)
    assert at.query_params["model2"] == "bundled"
    ran(at.selectbox(key="model.box.en").set_value("bundled").run())
    assert at.selectbox(key="model.second.en").options == [folder, "toy"]
    ran(at.selectbox(key="model.second.en").set_value(folder).run())
    assert at.query_params["model2"] == folder
    assert [len(grid["cells"]) for grid in grids(at)] == [6, 3]
    # Another session may be sent there now, as the model is open here.
    assert open_page(COMPARE, compare="sources", model2=folder).query_params["model2"] == folder


def two_tiny(pair, **choices):
    """Open both folders and compare the first with the second."""
    at = open_other(open_other(open_page(COMPARE), pair[1]), pair[0])
    return put(at, model2=pair[1], **choices)


def test_models_of_one_shape_have_one_grid_of_changes(tiny_pair):
    at = two_tiny(tiny_pair, compare="sources")
    text = EXAMPLES[0].text
    first, second, alignment = laid_over(open_model(tiny_pair[0]), text, (open_model(tiny_pair[1]), text))
    values = changes(first, second, alignment)
    [grid] = grids(at)
    np.testing.assert_allclose(values_of(grid), values, atol=5.1e-4)
    best = Head(*divmod(int(values.argmax()), 4))
    assert f"Which head changes most? **{best}**" in said(at)
    layer, head = boxes(at)[:2]
    assert Head(layer, head) == best
    put(at, layer2=2, head2=1)
    wanted = as_maps(second, alignment, alignment.second).weights[2, 1]
    wanted = wanted - as_maps(first, alignment, alignment.first).weights[layer, head]
    np.testing.assert_allclose(z_of(at), wanted, atol=1e-5)


@pytest.mark.parametrize("compare", ["sources", "models"])
def test_models_of_one_shape_start_with_the_same_head(tiny_pair, compare, press):
    at = two_tiny(tiny_pair, compare=compare)
    if compare == "models":
        over(at, TEXTS)
    assert boxes(at)[:2] == boxes(at)[2:]


def test_a_click_on_the_changes_between_two_models_chooses_both_sides(tiny_pair, press):
    at = two_tiny(tiny_pair, compare="sources")
    press(at, grid_module, "_GRID", "compare.changes", {"layer": 1, "head": 3, "number": 1})
    assert boxes(at) == (1, 3, 1, 3)


def test_a_second_model_that_is_gone_is_said(tiny_pair):
    at = two_tiny(tiny_pair, compare="sources")
    cache.source.clear()
    cache.maps.clear()
    shutil.rmtree(tiny_pair[1])
    ran(at.run())
    assert "There is no folder" in at.info[0].value.replace("\\", "")
    assert not at.get("plotly_chart")
    ran(at.selectbox(key="model.second.en").set_value("toy").run())
    assert len(at.info) == 0
    assert len(at.get("plotly_chart")) == 1


# Two heads


def test_two_heads_over_texts_are_as_computed(bundled, press):
    at = over(open_page(COMPARE, layer="2", head="6"), TEXTS, compare="heads", layer2=5, head2=11)
    found = summarise(bundled, TEXTS)
    mean, low, high = findings_difference(found, found, Head(2, 6), Head(5, 11))
    table = difference_table(at)
    kept = [i for i, value in enumerate(mean) if not np.isnan(value)]
    assert table["measure"].tolist() == [measure_name(found.names[i]) for i in kept]
    wanted = [interval(mean[i], low[i], high[i]) for i in kept]
    assert table["first minus second"].tolist() == wanted
    beyond = ["yes" if low[i] > 0 or high[i] < 0 else "smaller than noise" for i in kept]
    assert table["beyond noise"].tolist() == beyond
    assert len(set(beyond)) == 2
    for name, head in (("L2·H6", (2, 6)), ("L5·H11", (5, 11))):
        each = [interval(*(part[(i, *head)] for part in (found.mean, found.low, found.high))) for i in kept]
        assert table[name].tolist() == each
    apart = distances(bundled, TEXTS, specials="keep", most_queries=measuring.MOST_QUERIES)
    ends = (part[2 * 12 + 6, 5 * 12 + 11] for part in (apart.mean, apart.low, apart.high))
    assert f"distance {interval(*map(float, ends))} bits" in said(at)
    drawn = {trace.get("name"): trace for trace in spec(at)["data"]}
    shares = [measure for measure in found.names if f"{measure_name(measure)}" in drawn["L2·H6"]["y"]]
    for name, (layer, head) in (("L2·H6", (2, 6)), ("L5·H11", (5, 11))):
        x = [found.table(measure)[layer, head] for measure in shares]
        np.testing.assert_allclose(numbers_of(drawn[name]["x"]), x, atol=1e-6)
    # The grid: a measure, and which of the two a click chooses.
    [grid] = grids(at)
    np.testing.assert_allclose(values_of(grid), found.table("entropy_normalised"), atol=5.1e-4)
    put(at, measure="previous")
    np.testing.assert_allclose(values_of(grids(at)[0]), found.table("previous"), atol=5.1e-4)
    assert grids(at)[0]["chosen"] == [2, 6]
    press(at, grid_module, "_GRID", "compare.heads", {"layer": 0, "head": 2, "number": 1})
    assert boxes(at) == (0, 2, 5, 11)
    put(at, pick="second")
    assert grids(at)[0]["chosen"] == [5, 11]
    press(at, grid_module, "_GRID", "compare.heads", {"layer": 1, "head": 3, "number": 2})
    assert boxes(at) == (0, 2, 1, 3)
    assert difference_table(at).columns[1:3].tolist() == ["L0·H2", "L1·H3"]
    press(at, grid_module, "_GRID", "compare.heads", {"layer": 0, "head": 2, "number": 3})
    assert "the same head: choose another" in said(at)
    assert "distance" not in at.markdown[0].value
    link = dict(at.query_params)
    assert link == {"compare": "heads", "pick": "second", "measure": "previous",
                    "layer": "0", "head": "2", "layer2": "0", "head2": "2"}  # fmt: skip


@pytest.mark.parametrize(("specials", "weighting"), [("hide", "queries"), ("renormalise", "texts")])
def test_special_tokens_and_weighting_reach_the_comparison(specials, weighting, bundled):
    at = over(open_page(COMPARE), TEXTS, compare="heads", specials=specials, weighting=weighting)
    found = summarise(bundled, TEXTS, specials=specials, weighting=weighting)
    mean, low, high = findings_difference(found, found, Head(3, 1), Head(3, 2))
    kept = [i for i, value in enumerate(mean) if not np.isnan(value)]
    wanted = [interval(mean[i], low[i], high[i]) for i in kept]
    assert difference_table(at)["first minus second"].tolist() == wanted
    assert (at.query_params.get("specials"), at.query_params.get("weighting", "queries")) == (
        specials,
        weighting,
    )


def test_induction_is_no_measure_of_these_texts():
    at = over(open_page(COMPARE), TEXTS, compare="heads", measure="induction")
    assert at.selectbox(key="measure.en").value == "entropy_normalised"
    assert at.session_state["measure"] == "induction"  # kept for the page that has it
    assert not [option for option in at.selectbox(key="measure.en").options if "induction" in option]


def test_texts_are_pasted_on_the_page_and_stay_in_the_session():
    at = put(open_page(COMPARE), compare="models", model="toy")
    at.text_area(key="texts.paste").set_value("privat zqxj\ngeheim\twvkz\n")
    measured(ran(at.button(key="texts.paste.use").click().run()))
    assert "pasted (2 texts)" in at.selectbox(key="texts.en").options
    assert len(difference_table(at)) > 5
    link = " ".join(f"{name}={value}" for name, value in at.query_params.items()).lower()
    assert not [word for word in ("privat", "zqxj", "geheim", "wvkz", "own", "texts") if word in link]
    at.text_area(key="texts.paste").set_value("   ")
    ran(at.button(key="texts.paste.use").click().run())
    assert len(at.error) == 1
    assert len(difference_table(at)) > 5


@pytest.fixture
def held(monkeypatch):
    """Hold all measuring back until the event is set."""
    event, real = threading.Event(), analysis.collection.summarise

    def summarise(*args, **options):
        event.wait(20)
        return real(*args, **options)

    monkeypatch.setattr(analysis.collection, "summarise", summarise)
    yield event
    event.set()


@pytest.mark.parametrize("compare", ["heads", "models"])
def test_while_it_is_measured_progress_can_be_seen_and_cancelled(compare, held):
    at = put(open_page(COMPARE, model="toy"), specials="hide", weighting="texts")
    at.session_state[corpus.OWN] = corpus.corpus("held", [f"a cat sat {compare}"])
    put(at, compare=compare, texts="own")
    assert "Not there yet" in said(at)
    shown = [button.key for button in at.button]
    held.set()
    measured(at)
    assert "job.cancel" in shown


def test_texts_that_cannot_be_read_are_said_in_two_heads():
    at = over(open_page(COMPARE), ["\u200b"], compare="heads")
    assert len(at.error) == 1


def test_texts_that_one_model_cannot_read_are_said():
    at = over(open_page(COMPARE), ["\u200b"], compare="models")
    assert "nothing to read" in at.error[0].value
    assert not at.get("plotly_chart")
    over(at, TEXTS)
    assert len(at.error) == 0
    assert len(at.get("plotly_chart")) == 1


def test_a_single_text_has_no_noise_to_tell():
    at = over(open_page(COMPARE, model="toy"), ["a cat sat"], compare="heads", layer2=0, head2=6)
    assert len(difference_table(at))
    assert boxes(at) == (0, 1, 0, 6)


# Two models


def test_two_models_of_different_shapes_have_two_grids(bundled, press):
    at = over(open_page(COMPARE, layer="4", head="7"), TEXTS, compare="models", layer2=0, head2=3)
    first, second = summarise(bundled, TEXTS), summarise(make_toy(), TEXTS)
    control = at.get_by_key("shown.en")
    assert [option.content for option in control.proto.options] == ["all\\-MiniLM\\-L6\\-v2", "toy"]
    assert control.value == "first"
    [grid] = grids(at)
    np.testing.assert_allclose(values_of(grid), first.table("entropy_normalised"), atol=5.1e-4)
    press(at, grid_module, "_GRID", "compare.models", {"layer": 1, "head": 8, "number": 1})
    put(at, shown="second", measure="confidence")
    np.testing.assert_allclose(values_of(grids(at)[0]), second.table("confidence"), atol=5.1e-4)
    press(at, grid_module, "_GRID", "compare.models", {"layer": 0, "head": 5, "number": 2})
    assert boxes(at) == (1, 8, 0, 5)
    mean, low, high = findings_difference(first, second, Head(1, 8), Head(0, 5))
    kept = [i for i, value in enumerate(mean) if not np.isnan(value)]
    wanted = [interval(mean[i], low[i], high[i]) for i in kept]
    assert difference_table(at)["first minus second"].tolist() == wanted
    assert difference_table(at).columns[1:3].tolist() == ["all-MiniLM-L6-v2 L1·H8", "toy L0·H5"]
    assert "distance" not in at.markdown[0].value
    assert at.query_params["model2"] == "toy"


def test_the_grid_of_differences_comes_back_with_the_shape(tiny_pair):
    at = over(two_tiny(tiny_pair), TEXTS[:2], compare="models")
    assert at.get_by_key("shown.en").value == "difference"
    measured(put(at, model2="toy"))
    measured(put(at, model2=tiny_pair[1]))
    assert at.get_by_key("shown.en").value == "difference"


def check_models(at, first, second, press, measures):
    """Check the grid of differences of two models of one shape."""
    layers, heads = first.mean.shape[1:]
    assert at.get_by_key("shown.en").value == "difference"
    for name in measures:
        put(at, measure=name)
        measure = first.names.index(name)
        each = [
            [findings_difference(first, second, Head(a, b), Head(a, b)) for b in range(heads)]
            for a in range(layers)
        ]
        mean, low, high = np.array(
            [[[part[measure] for part in one] for one in row] for row in each]
        ).transpose(2, 0, 1)
        noise = (low <= 0) & (high >= 0)
        assert 0 < noise.sum() < noise.size
        [grid] = grids(at)
        np.testing.assert_allclose(values_of(grid), mean, atol=5.1e-4)
        marks = [[cell[4] for cell in row] for row in grid["cells"]]
        assert marks == np.where(noise, "pale", "").tolist()
        for row, line in enumerate(titles(grid)):
            for column, title in enumerate(line):
                at_head = (row, column)
                assert interval(mean[at_head], low[at_head], high[at_head]) in title
                assert title.endswith("smaller than noise") == bool(noise[at_head])
        assert f"**{(~noise).sum()} of {noise.size} heads** differ beyond noise" in said(at)
        blue, red = (
            grid["cells"][i][j][0] for i, j in (divmod(int(k), heads) for k in (mean.argmax(), mean.argmin()))
        )
        assert blue != red
    press(at, grid_module, "_GRID", "compare.models", {"layer": 1, "head": 2, "number": 1})
    assert boxes(at) == (1, 2, 1, 2)
    mean, low, high = findings_difference(first, second, Head(1, 2), Head(1, 2))
    kept = [i for i, value in enumerate(mean) if not np.isnan(value)]
    wanted = [interval(mean[i], low[i], high[i]) for i in kept]
    assert difference_table(at)["first minus second"].tolist() == wanted
    for name, side in (("first", first), ("second", second)):
        put(at, shown=name, measure="confidence")
        np.testing.assert_allclose(values_of(grids(at)[0]), side.table("confidence"), atol=5.1e-4)


def test_two_models_of_one_shape_and_what_is_noise(tiny_pair, press):
    at = over(two_tiny(tiny_pair), TEXTS, compare="models")
    check_models(
        at,
        *(summarise(open_model(folder), TEXTS) for folder in tiny_pair),
        press,
        ("entropy_normalised", "previous", "entropy"),
    )


def test_the_bundled_model_and_the_classifier(bundled, sst2, press):
    at = open_other(open_page(COMPARE), str(SST2))
    ran(at.selectbox(key="model.box.en").set_value("bundled").run())
    over(at, TEXTS, compare="models", model2=str(SST2))
    check_models(at, summarise(bundled, TEXTS), summarise(sst2, TEXTS), press, ("previous",))


# Links


@pytest.mark.parametrize("compare", keys.COMPARE.options)
def test_a_link_opens_its_mode(compare):
    link = {"compare": compare, "layer": "0", "head": "3", "layer2": "0", "head2": "5", "units": "pieces"}
    link |= {"specials": "hide", "model": "toy"}
    if compare == "sentences":
        del link["compare"]
        link["minimal"] = "2"
    if compare in ("sources", "models"):
        link["model2"] = "bundled"
    if compare == "models":
        link["texts"] = "indonesian"
    at = open_page(COMPARE, **link)
    assert at.session_state["compare"] == compare
    assert dict(at.query_params) == link
    measured(at)
    wanted = (0, 3) if compare == "sentences" else (0, 3, 0, 5)
    assert boxes(at) == wanted
    assert len(at.get("plotly_chart")) == 1


@pytest.mark.parametrize(
    "link",
    [
        {"compare": "<b>", "picture": "third", "shown": "none", "pick": "", "minimal": "99"},
        {"compare": "all", "minimal": "0", "layer": "x", "head": "-1"},
        {"minimal": "-1", "layer2": "99999999999", "head2": "1e3"},
        {"minimal": "٣", "first": "secret", "second": "secret"},
    ],
    ids=str,
)
def test_a_bad_value_falls_back(link):
    at = open_page(COMPARE, **link)
    assert [box.value for box in at.text_input] == list(MINIMAL_PAIRS[0])
    assert boxes(at) == (5, 9)
    assert dict(at.query_params) == {}


@pytest.mark.parametrize(
    ("compare", "name"),
    [
        ("sources", "/etc"),
        ("sources", "google-bert/bert-base-uncased"),
        ("sources", "bundled#cuda"),
        ("models", "~/x"),
        ("models", "toy@x"),
        ("models", "bundled"),
    ],
)
def test_a_link_opens_no_second_model_that_is_not_open_here(name, compare, asked_for):
    at = open_page(COMPARE, compare=compare, model2=name)
    assert at.selectbox(key="model.second.en").value == "toy"
    assert at.query_params["model2"] == "toy"
    assert name not in at.selectbox(key="model.second.en").options
    assert set(asked_for) <= {"bundled", "toy"}


def test_heads_of_another_shape_stay_within_it():
    at = open_page(COMPARE, compare="sources", layer="5", head="11", layer2="5", head2="11")
    assert boxes(at) == (5, 11, 0, 7)
    ran(at.selectbox(key="model.box.en").set_value("toy").run())
    assert boxes(at) == (0, 7, 5, 11)
    assert [len(grid["cells"]) for grid in grids(at)] == [1, 6]


# Numbers and files


def matrix(data, shape):
    """Return the weights of a CSV in long form."""
    return pd.read_csv(io.BytesIO(data), keep_default_na=False)["weight"].to_numpy().reshape(shape)


def test_files_and_tables_of_two_sentences(files, bundled):
    sides = "The <b> cat, sat.", "The dog sat."
    at = type_sides(put(open_page(COMPARE), layer=2, head=4, specials="renormalise"), *sides)
    put(at, **{"compare.words.table": True})
    first, second, alignment = laid_over(bundled, *sides, "words", "renormalise")
    tables = [frame.value for frame in at.dataframe]
    found = files(at)
    for table, name, maps, places in zip(
        tables, ("first", "second"), (first, second), (alignment.first, alignment.second), strict=True
    ):
        n = len(maps.queries)
        np.testing.assert_allclose(
            matrix(found[f"compare-{name}-L2-H4.csv"], (n, n)), maps.weights[2, 4], atol=1e-6
        )
        over_both = as_maps(maps, alignment, places).weights[2, 4]
        np.testing.assert_allclose(table.to_numpy(), over_both, atol=5.1e-5)
        assert [label.split(" ", 1)[1] for label in table.columns] == list(alignment.labels)
    page = found["compare-L2-H4.html"].decode("utf-8")
    assert "<h2>first L2·H4 / second L2·H4: difference</h2>" in page
    assert in_page(z_of(at)) in page
    assert len(found) == 3


def test_files_of_one_sentence_under_two_models(files, bundled):
    at = put(open_page(COMPARE), compare="sources", layer=2, head=4, layer2=0, head2=5)
    found = files(at)
    n = len(in_units(capture(bundled, EXAMPLES[0].text), "words").queries)
    wanted = in_units(capture(bundled, EXAMPLES[0].text), "words").weights[2, 4]
    np.testing.assert_allclose(matrix(found["compare-all-MiniLM-L6-v2-L2-H4.csv"], (n, n)), wanted, atol=1e-6)
    wanted = capture(make_toy(), EXAMPLES[0].text).weights[0, 5]
    np.testing.assert_allclose(matrix(found["compare-toy-L0-H5.csv"], (n - 2, n - 2)), wanted, atol=1e-6)


def test_the_title_of_a_file_is_no_markdown(files):
    at = put(open_page(COMPARE), compare="sources", picture="first")
    [page] = [data.decode("utf-8") for name, data in files(at).items() if name.endswith(".html")]
    assert "\\" not in html.unescape(re.search("<h2>(.*?)</h2>", page).group(1))


def test_files_of_two_heads(files):
    at = over(open_page(COMPARE), TEXTS, compare="heads", layer=2, head=6, layer2=5, head2=11)
    found = files(at)
    frame = pd.read_csv(io.BytesIO(found["compare-L2-H6-L5-H11.csv"]), keep_default_na=False)
    table = difference_table(at)
    assert frame.columns.tolist() == table.columns.tolist()
    assert frame["first minus second"].tolist() == table["first minus second"].tolist()
    page = found["compare-L2-H6-L5-H11.html"].decode("utf-8")
    assert "<h2>L2·H6 / L5·H11</h2>" in page
    put(at, **{"compare.table": False})
    assert len(at.dataframe) == 0


def test_heads_leads_here_to_the_nearest_twin():
    at = over(open_page(HEADS, layer="2", head="6"), TEXTS)
    [twin] = [button.label.split(" ")[-1] for button in at.button if button.key == "heads.twin"]
    ran(at.button(key="heads.twin").click().run())
    assert at.subheader[0].value.startswith("Compare")
    at.switch_page(COMPARE)  # where the browser is now
    measured(at)
    layer, head, layer2, head2 = boxes(at)
    assert (f"L{layer}·H{head}", f"L{layer2}·H{head2}") == ("L2·H6", twin)
    assert "distance" in said(at)
    assert sent(at, "grid")["chosen"] == [2, 6]
