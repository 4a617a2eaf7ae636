"""What stands beside the raw weights on the Attention page: lines, norms, rollout, and why a query looks."""

from __future__ import annotations

import io
import json
import re
from base64 import b64decode, b64encode
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import streamlit as st

import dashboard.components.lines as lines_module
import dashboard.components.words as words_module
from analysis.capture import capture
from analysis.lenses import head_vectors, lengths, norm_weighted, products, rollout, scores
from analysis.maps import Head, block, in_units, with_specials
from analysis.models import open_model
from analysis.toy import make_toy
from dashboard import keys
from dashboard.examples import EXAMPLES
from tests.dashboard.test_pages import (
    LONG,
    _nothing_opened_before,
    open_other,
    open_page,
    put,
    ran,
    said,
    sent,
    shown_words,
    spec,
    write,
    z_of,
)
from tests.tiny import save_tiny

__all__ = ["_nothing_opened_before"]  # a fixture for this file too

FIRST, PAIR = EXAMPLES[0], EXAMPLES[4]
NEW_VIEWS = [
    ("map", "norms"),
    ("map", "rollout"),
    ("lines", "weights"),
    ("lines", "norms"),
    ("lines", "rollout"),
    ("why", "weights"),
]
CAVEAT = (
    "Attention is not explanation: it shows where a head looks, not that the model's answer depends on it "
    "(Jain and Wallace 2019)."
)


def through(source, lens, example=FIRST, units="words", specials="keep"):
    """Return the maps of a text through a lens, as the analysis gives them."""
    maps = capture(source, example.text, example.pair)
    if lens == "norms":
        maps = norm_weighted(maps, lengths(source, example.text, example.pair))
    elif lens == "rollout":
        maps = rollout(maps)
    return with_specials(in_units(maps, units), specials)


def of_head(maps, head, lens):
    """Return one map [query, key]; rollout has one for all heads of a layer."""
    return maps.weights[head.layer, 0 if lens == "rollout" else head.index]


def drawn_lines(at):
    """Return what the lines show: labels of queries and keys, and the weights by the name of the head."""
    data = sent(at, "lines")
    queries, keys_ = ([end[0] for end in data[side]] for side in ("queries", "keys"))
    strands = {
        name: np.frombuffer(b64decode(packed), dtype="<u2").reshape(len(queries), len(keys_)) / 50_000
        for name, _colour, packed in data["strands"]
    }
    assert len(strands) == len(data["strands"])  # no head twice
    assert len({colour for _name, colour, _packed in data["strands"]}) == len(strands)
    return queries, keys_, strands


def strand_names(at):
    return [name for name, _colour, _packed in sent(at, "lines")["strands"]]


def numbers_of(values):
    """Return numbers of a chart, packed or not."""
    if isinstance(values, dict):
        return np.frombuffer(b64decode(values["bdata"]), dtype=values["dtype"])
    return np.array(values, dtype=float)


@pytest.fixture
def press(monkeypatch):
    """Return a function that sends what a browser would from a component, and runs the page to its end."""

    def pressed(at, module, name, key, message):
        real = getattr(module, name)

        def draw(**given):
            drawn = real(**given)
            if given["key"] == key:
                given["on_choose_change"]()
            return drawn

        with monkeypatch.context() as patch:
            patch.setattr(module, name, draw)
            patch.setattr(module, "heard", lambda _key: message)
            ran(at.run())
        return ran(at.run())

    return pressed


@pytest.fixture
def files(monkeypatch):
    """Return a function that runs a page and gives the files it offers, by name."""
    real = st.download_button

    def offered(at):
        found = {}

        def download_button(label, data, **options):
            assert options["file_name"] not in found
            found[options["file_name"]] = data
            return real(label, data=data, **options)

        with monkeypatch.context() as patch:
            patch.setattr(st, "download_button", download_button)
            ran(at.run())
        return {name: data() for name, data in found.items()}

    return offered


# The lenses


@pytest.mark.parametrize("lens", ["norms", "rollout"])
@pytest.mark.parametrize(
    ("number", "units", "specials"),
    [
        (1, "words", "keep"),
        (1, "pieces", "renormalise"),
        (5, "words", "hide"),
        (5, "pieces", "keep"),
    ],
)
def test_a_lens_shows_what_the_analysis_gives(lens, number, units, specials, bundled):
    example, head = EXAMPLES[number - 1], Head(4, 7)
    maps = through(bundled, lens, example, units, specials)
    wanted = of_head(maps, head, lens)
    plain = through(bundled, "weights", example, units, specials).weights[4, 7]
    assert np.abs(wanted - plain).max() > 0.02  # the lens can be seen
    at = put(open_page(example=str(number)), layer=4, head=7, units=units, specials=specials, lens=lens)
    np.testing.assert_allclose(z_of(at), wanted, atol=1e-6)
    row = wanted[sent(at, "words")["chosen"]]
    labels = list(maps.queries.labels)
    assert shown_words(at) == labels
    shades = [word[1] for word in sent(at, "words")["words"]]
    np.testing.assert_allclose(shades, np.sqrt(row), atol=1e-3)
    top, count = int(row.argmax()), Counter(labels)
    name = labels[top] + (f" ({top})" if count[labels[top]] > 1 else "")
    sentence = {
        "norms": f"carries most from **{name}**: {row[top]:.2f} of the lengths of its row",
        "rollout": f"up to layer 4 most has flowed from **{name}** {row[top]:.2f} (all heads)",
    }
    assert sentence[lens] in said(at)
    bar = spec(at)["data"][-1]["marker"]["colorbar"]["title"]["text"]
    assert bar.rstrip() == {"norms": "share carried", "rollout": "flow"}[lens]
    for name in keys.BLOCK.options if example.pair else ():
        part = block(maps, name)
        put(at, block=name, view="map")
        np.testing.assert_allclose(z_of(at), of_head(part, head, lens), atol=1e-6)
        np.testing.assert_allclose([word[1] for word in sent(at, "words")["words"]], shades)
        put(at, view="lines")
        queries, keys_, strands = drawn_lines(at)
        assert (queries, keys_) == (list(part.queries.labels), list(part.keys.labels))
        [table] = strands.values()
        np.testing.assert_allclose(table, of_head(part, head, lens), atol=1.1e-5)


def test_the_lens_of_another_view_is_put_aside(bundled):
    at = put(open_page(), lens="norms", view="why")
    row = through(bundled, "weights").weights[3, 1, sent(at, "words")["chosen"]]
    np.testing.assert_allclose([word[1] for word in sent(at, "words")["words"]], np.sqrt(row), atol=1e-3)
    assert "looks most at **animal** 0.68" in said(at)
    assert "lens.en" not in {box.key for box in at.selectbox}
    put(at, view="map")
    assert "carries most from" in said(at)
    ran(at.selectbox(key="lens.en").set_value("weights").run())
    assert "looks most at **animal** 0.68" in said(at)


def test_rollout_is_the_same_for_all_heads_of_a_layer():
    at = put(open_page(), layer=5, head=0, lens="rollout")
    first = z_of(at)
    np.testing.assert_array_equal(z_of(put(at, head=9)), first)
    assert np.abs(z_of(put(at, layer=1)) - first).max() > 0.05


def test_every_view_says_that_attention_is_no_explanation():
    at = open_page()
    for view in keys.VIEW.options:
        put(at, view=view)
        assert [caption.value.replace("\\", "") for caption in at.caption].count(CAVEAT) == 1


@pytest.mark.parametrize(("view", "lens"), NEW_VIEWS)
def test_a_link_opens_its_view_and_its_lens(view, lens, bundled):
    link = {"view": view, "lens": lens, "layer": "2", "head": "6"}
    link = {name: value for name, value in link.items() if value not in ("map", "weights")}
    at = open_page(**link)
    assert dict(at.query_params) == link
    assert at.session_state["view"] == view
    assert at.session_state["lens"] == lens
    wanted = of_head(through(bundled, lens), Head(2, 6), lens)
    if view == "lines":
        np.testing.assert_allclose(next(iter(drawn_lines(at)[2].values())), wanted, atol=1.1e-5)
    elif view == "map":
        np.testing.assert_allclose(z_of(at), wanted, atol=1e-6)
    else:
        assert [trace["type"] for trace in spec(at)["data"]] == ["heatmap", "bar"]


@pytest.mark.parametrize("link", [{"lens": "", "view": "line"}, {"lens": "rolls", "view": "Why"}], ids=str)
def test_a_bad_view_or_lens_falls_back(link):
    at = open_page(**link)
    assert (at.session_state["view"], at.session_state["lens"]) == ("map", "weights")
    assert dict(at.query_params) == {}


# Lines


@pytest.mark.parametrize(("units", "specials"), [("words", "keep"), ("pieces", "hide")])
def test_lines_are_sent_as_the_maps_are(units, specials, bundled):
    maps = through(bundled, "weights", units=units, specials=specials)
    at = put(open_page(view="lines", **{"with": "5.11,3.7"}), units=units, specials=specials)
    queries, keys_, strands = drawn_lines(at)
    assert queries == keys_ == list(maps.queries.labels)
    assert [end[1] for end in sent(at, "lines")["queries"]] == maps.queries.special.tolist()
    assert list(strands) == ["L3·H1", "L5·H11", "L3·H7"]
    for name, head in zip(strands, (Head(3, 1), Head(5, 11), Head(3, 7)), strict=True):
        np.testing.assert_allclose(strands[name], maps.weights[head.layer, head.index], atol=1.1e-5)
    assert sent(at, "lines")["chosen"] == [queries.index("it")] == [sent(at, "words")["chosen"]]
    assert at.multiselect(key="lines.with").value == ["L5·H11", "L3·H7"]
    assert at.query_params["with"] == "5.11,3.7"


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("abc,..,5,<b>,99.1,3.99,5.11", ["L5·H11"]),
        ("5.11,5.11,3.7,5.11", ["L5·H11", "L3·H7"]),
        ("3.1,5.11,3.1", ["L5·H11"]),
        ("0.0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8", [f"L0·H{i}" for i in range(7)]),
        ("9" * 5000, []),
    ],
)
def test_a_link_adds_heads_to_the_lines(asked, names):
    at = open_page(view="lines", **{"with": asked})
    assert strand_names(at) == ["L3·H1", *names]
    assert len(names) <= keys.MOST_STRANDS


@pytest.mark.parametrize("asked", ["-1.2", "10005.11"])
def test_what_only_looks_like_a_head_is_ignored(asked):
    assert strand_names(open_page(view="lines", **{"with": asked})) == ["L3·H1"]


def test_heads_are_added_and_taken_away(bundled):
    at = open_page(view="lines")
    box = at.multiselect(key="lines.with")
    assert len(box.options) == 71  # the chosen head is not among them
    assert "L3·H1" not in box.options
    ran(box.set_value(["L0·H2", "L5·H11"]).run())
    assert strand_names(at) == ["L3·H1", "L0·H2", "L5·H11"]
    assert at.query_params["with"] == "0.2,5.11"
    put(at, layer=5, head=11)
    assert strand_names(at) == ["L5·H11", "L0·H2"]
    put(at, layer=3, head=1)
    ran(at.multiselect(key="lines.with").set_value([]).run())
    assert strand_names(at) == ["L3·H1"]
    assert "with" not in at.query_params


def test_further_heads_go_through_the_lens_and_rollout_has_none(bundled):
    at = open_page(view="lines", lens="norms", **{"with": "5.11"})
    strands, maps = drawn_lines(at)[2], through(bundled, "norms")
    assert list(strands) == ["L3·H1, norms", "L5·H11, norms"]
    np.testing.assert_allclose(strands["L5·H11, norms"], maps.weights[5, 11], atol=1.1e-5)
    put(at, lens="rollout")
    assert strand_names(at) == ["rollout to layer 3"]
    assert "lines.with" not in {box.key for box in at.multiselect}
    put(at, lens="weights")
    assert strand_names(at) == ["L3·H1", "L5·H11"]


def test_several_queries_are_chosen_or_all(press):
    at = open_page(view="lines")
    assert sent(at, "lines")["chosen"] == [8]
    press(at, lines_module, "_LINES", "attention.lines", {"places": [5, 2]})
    assert sent(at, "lines")["chosen"] == [2, 5]
    assert sent(at, "words")["chosen"] == 8  # the query of everything else stays
    put(at, units="pieces", specials="hide")  # a split word stands before the second of them
    labels = shown_words(at)
    assert [labels[i] for i in sent(at, "lines")["chosen"]] == ["animal", "the"]
    put(at, units="words", specials="keep", lines=[])
    assert sent(at, "lines")["chosen"] == []  # all
    put(at, lines=[1, 3])
    press(at, words_module, "_WORDS", "words", {"index": 6})
    assert sent(at, "lines")["chosen"] == [6] == [sent(at, "words")["chosen"]]
    press(at, lines_module, "_LINES", "attention.lines", {"places": []})
    assert sent(at, "lines")["chosen"] == []
    press(at, lines_module, "_LINES", "attention.lines", {"places": [4]})  # one is the query of the page
    assert sent(at, "lines")["chosen"] == [4] == [sent(at, "words")["chosen"]]
    write(put(at, lines=[1, 2]), "a cat sat")
    assert len(sent(at, "lines")["chosen"]) == 1


def test_lines_of_a_block_are_chosen_by_the_words_of_its_rows(press):
    at = open_page(view="lines", example="5", block="BA")
    assert drawn_lines(at)[0] == ["A", "man", "is", "playing", "a", "flute", "."]
    press(at, lines_module, "_LINES", "attention.lines", {"places": [1, 5]})
    assert sent(at, "lines")["chosen"] == [1, 5]
    put(at, block="all")
    labels = shown_words(at)
    assert [labels[i] for i in sent(at, "lines")["chosen"]] == ["man", "flute"]
    assert all(i > labels.index("[SEP]") for i in sent(at, "lines")["chosen"])


def test_a_new_model_forgets_the_queries_of_the_lines():
    at = put(open_page(view="lines"), lines=[2, 8])
    ran(at.selectbox(key="model.box.en").set_value("toy").run())
    assert sent(at, "lines")["chosen"] == [sent(at, "words")["chosen"]]


# Why


SENTENCE = re.compile(
    r"\*\*(.+)\*\* → \*\*(.+)\*\*: score \*\*(\S+)\*\*, the sum of (\d+) products \(largest: (.+)\)\. "
    r"The row's scores run from (\S+) to (\S+); the softmax makes (\S+) of this one"
)


def explained(at):
    """Return what the page says of a score: names, score, dimensions, largest, ends of the row, weight."""
    query, key, score, count, largest, low, high, weight = SENTENCE.search(said(at)).groups()
    parts = re.findall(r"(\S+) \((\d+)\)", largest)
    return {
        "names": (query, key),
        "score": figure(score),
        "count": int(count),
        "largest": [(figure(value), int(place)) for value, place in parts],
        "ends": (figure(low), figure(high)),
        "weight": figure(weight),
    }


def figure(text):
    return float(text.replace("−", "-").replace(",", ""))


def near(value):
    """What a number with three digits, and at most three after the point, may stand for."""
    return pytest.approx(value, rel=6e-3, abs=6e-4)


def check_why(at, vectors, weights, query, key):
    """Check the sentence and the figure on two places of the input against the analysis."""
    each, row = products(vectors, query, key), scores(vectors)[query].astype(np.float64)
    open_ = np.ones(len(row), dtype=bool) if vectors.attendable is None else vectors.attendable[query]
    shares = np.where(open_, np.exp(row - row[open_].max()), 0)
    found = explained(at)
    assert found["score"] == near(row[key])
    assert found["count"] == len(each)
    order = np.argsort(-np.abs(each))[:3]
    assert [place for _value, place in found["largest"]] == order.tolist()
    assert [value for value, _place in found["largest"]] == [near(each[i]) for i in order]
    assert found["weight"] == near(shares[key] / shares.sum())
    assert weights[query, key] == pytest.approx(shares[key] / shares.sum(), abs=1e-4)
    strips, bars = spec(at)["data"]
    drawn = numbers_of(bars["y"])
    np.testing.assert_allclose(drawn, each, atol=1e-5)
    assert drawn.sum() == pytest.approx(row[key], abs=1e-3)
    np.testing.assert_allclose(z_of(at), [vectors.keys[key], vectors.queries[query]], atol=1e-5)
    assert strips["zmax"] == -strips["zmin"] == pytest.approx(np.abs(z_of(at)).max())
    assert len(set(bars["marker"]["color"])) == len(set(np.sign(each)))
    return found


def test_why_it_looks_at_animal(bundled):
    at = open_page(view="why")
    maps = capture(bundled, FIRST.text)
    places = [maps.queries.labels.index(word) for word in ("it", "animal")]
    vectors = head_vectors(bundled, FIRST.text, None, Head(3, 1))
    found = check_why(at, vectors, maps.weights[3, 1], *places)
    assert found["names"] == ("it", "animal")
    row = scores(vectors)[places[0]]
    assert found["ends"] == (near(row.min()), near(row.max()))
    assert found["weight"] == near(0.677)
    assert "A word that was split" not in said(at)
    for specials, units in (("hide", "words"), ("renormalise", "pieces"), ("keep", "pieces")):
        put(at, specials=specials, units=units)
        check_why(at, vectors, maps.weights[3, 1], *places)
    put(at, key=maps.queries.labels.index("street"), layer=0, head=2)
    vectors = head_vectors(bundled, FIRST.text, None, Head(0, 2))
    street = maps.queries.labels.index("street")
    assert check_why(at, vectors, maps.weights[0, 2], places[0], street)["names"] == ("it", "street")


def test_why_in_a_pair_and_of_a_word_that_was_split(bundled):
    at = write(open_page(view="why", colour="entropy"), "It was unflappable.", "The unflappable film!")
    pair = "It was unflappable.", "The unflappable film!"
    maps = capture(bundled, *pair)
    words = in_units(maps, "words").queries
    starts = maps.queries.word_starts()
    assert len(maps.queries) > len(words)
    units = [i for i, label in enumerate(words.labels) if label == "unflappable"]
    places = [int(starts[i]) for i in units]
    put(at, query=places[0], key=places[1])
    vectors = head_vectors(bundled, *pair, Head(3, 1))
    found = check_why(at, vectors, maps.weights[3, 1], *places)
    assert found["names"] == tuple(f"unflappable ({i})" for i in units)
    assert "A word that was split is seen by its first piece here." in said(at)
    put(at, query=places[0] + 1)  # the word again, by its second piece
    check_why(at, vectors, maps.weights[3, 1], *places)
    put(at, units="pieces")
    check_why(at, vectors, maps.weights[3, 1], places[0] + 1, places[1])
    assert "A word that was split" not in said(at)
    put(at, units="words", query=1, key=2)
    assert "A word that was split" not in said(at)
    put(at, key=places[1])
    assert "A word that was split" in said(at)


TINY_TEXT = "the cat sat on the mat because it was too tired"


@pytest.mark.parametrize("family", ["roberta", "distilbert", "albert", "modernbert"])
def test_why_and_the_lenses_in_another_architecture(family, tmp_path):
    folder = str(save_tiny(tmp_path / family, family))
    model = open_model(folder)
    at = open_other(put(write(open_page(), TINY_TEXT), layer=1, head=2, view="why", units="pieces"), folder)
    maps = capture(model, TINY_TEXT)
    last = len(maps.queries) - 2
    for head, places in ((Head(1, 2), (last, last - 1)), (Head(2, 0), (3, 1)), (Head(1, 3), (1, last))):
        put(at, layer=head.layer, head=head.index, query=places[0], key=places[1])
        vectors = head_vectors(model, TINY_TEXT, None, head)
        check_why(at, vectors, maps.weights[head.layer, head.index], *places)
    put(at, view="map", lens="norms")
    wanted = norm_weighted(maps, lengths(model, TINY_TEXT)).weights
    np.testing.assert_allclose(z_of(at), wanted[1, 3], atol=1e-5)
    put(at, lens="rollout", layer=2)
    np.testing.assert_allclose(z_of(at), rollout(maps).weights[2, 0], atol=1e-5)


def test_the_range_of_a_rows_scores_is_over_what_may_be_attended(tmp_path):
    folder = str(save_tiny(tmp_path / "modernbert", "modernbert"))
    model = open_model(folder)
    at = open_other(put(write(open_page(), TINY_TEXT), layer=1, head=2, view="why", units="pieces"), folder)
    put(at, query=2, key=3)
    vectors = head_vectors(model, TINY_TEXT, None, Head(1, 2))
    open_ = vectors.attendable[2]
    assert not open_.all()
    row = scores(vectors)[2, open_]
    assert explained(at)["ends"] == (near(row.min()), near(row.max()))


def test_why_and_the_lenses_in_the_toy():
    toy = make_toy()
    at = open_page(view="why", model="toy", layer="0", head="5")
    assert "head.box" in {box.key for box in at.selectbox}
    words = shown_words(at)
    places = [words.index(word) for word in ("it", "animal")]
    maps = capture(toy, FIRST.text)
    check_why(at, head_vectors(toy, FIRST.text, None, Head(0, 5)), maps.weights[0, 5], *places)
    put(at, view="lines", lens="norms", **{"with": "0.1"})
    strands, wanted = drawn_lines(at)[2], through(toy, "norms")
    np.testing.assert_allclose(strands["L0·H5, norms"], wanted.weights[0, 5], atol=1.1e-5)
    np.testing.assert_allclose(strands["L0·H1, norms"], wanted.weights[0, 1], atol=1.1e-5)
    put(at, view="map", lens="rollout")
    np.testing.assert_allclose(z_of(at), through(toy, "rollout").weights[0, 0], atol=1e-6)


# Numbers and files


def test_the_table_of_products(bundled):
    at = put(open_page(view="why"), **{"attention.table": True})
    table = at.dataframe[0].value
    labels = list(capture(bundled, FIRST.text).queries.labels)
    vectors = head_vectors(bundled, FIRST.text, None, Head(3, 1))
    query, key = labels.index("it"), labels.index("animal")
    assert table["dimension"].tolist() == list(range(32))
    np.testing.assert_allclose(table["query"], vectors.queries[query], atol=5.1e-5)
    np.testing.assert_allclose(table["key"], vectors.keys[key], atol=5.1e-5)
    np.testing.assert_allclose(table["product"], products(vectors, query, key), atol=5.1e-5)
    assert table["product"].sum() == pytest.approx(scores(vectors)[query, key], abs=2e-3)
    assert "Query, key and their products by dimension" in said(at)
    assert len(at.dataframe) == 3
    put(at, view="lines", **{"with": "5.11", "lens": "norms"})
    maps = through(bundled, "norms")
    tables = [frame.value for frame in at.dataframe]
    assert len(tables) == 3  # two heads and the list of all
    np.testing.assert_allclose(tables[0].to_numpy(), maps.weights[3, 1], atol=5.1e-5)
    np.testing.assert_allclose(tables[1].to_numpy(), maps.weights[5, 11], atol=5.1e-5)


def test_a_table_through_a_lens_says_so():
    at = put(open_page(layer="3", head="1"), lens="rollout", **{"attention.table": True})
    assert "**L3·H0**: weight" not in said(at)
    put(at, lens="norms")
    assert "**L3·H1**: weight" not in said(at)


@pytest.mark.parametrize(("lens", "head"), [("norms", Head(5, 11)), ("rollout", Head(5, 0))])
def test_files_through_a_lens_say_so_and_hold_its_numbers(lens, head, files, bundled):
    at = put(open_page(example="5"), layer=5, head=11, lens=lens, specials="renormalise", block="BA")
    found = files(at)
    maps = block(through(bundled, lens, PAIR, "words", "renormalise"), "BA")
    wanted = of_head(maps, Head(5, 11), lens)
    base = f"attention-all-MiniLM-L6-v2-{str(head).replace('·', '-')}-{lens}"
    assert {base + suffix for suffix in (".csv", ".json", ".npz")} <= set(found)
    rows = pd.read_csv(io.BytesIO(found[base + ".csv"]), keep_default_na=False)
    np.testing.assert_allclose(rows["weight"].to_numpy().reshape(wanted.shape), wanted, atol=1e-6)
    assert rows["query_token"].tolist()[:: wanted.shape[1]] == list(maps.queries.labels)
    whole = json.loads(found[base + ".json"])
    np.testing.assert_allclose([row["weight"] for row in whole["rows"]], wanted.ravel(), atol=1e-6)
    with np.load(io.BytesIO(found[base + ".npz"])) as packed:
        np.testing.assert_allclose(packed["weights"][0, 0], wanted, atol=1e-6)
        assert packed["tokens"].tolist() == list(maps.queries.labels)
    title = "rollout to layer 5" if lens == "rollout" else "L5·H11, norms"
    assert f"**{title}**, as shown" in said(at)
    # All heads are the weights, whatever the lens.
    with np.load(io.BytesIO(found["attention-all-MiniLM-L6-v2-all.npz"])) as packed:
        plain = through(bundled, "weights", PAIR)
        np.testing.assert_allclose(packed["weights"], plain.weights, atol=1e-6)
    [page] = [data.decode("utf-8") for name, data in found.items() if name.endswith(".html")]
    assert f"<h2>{title}</h2>" in page
    assert in_page(z_of(at)) in page


def in_page(values):
    """Return numbers as they stand in an HTML page of Plotly."""
    return b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii").replace("/", "\\u002f")


@pytest.mark.parametrize("lens", ["norms", "rollout"])
def test_the_page_of_pictures_carries_the_lens_in_its_name(lens, files):
    [name] = [name for name in files(put(open_page(), lens=lens)) if name.endswith(".html")]
    assert lens in name


def test_files_of_lines_and_of_why(files, bundled):
    at = open_page(view="lines", **{"with": "5.11,0.2"})
    found, maps = files(at), through(bundled, "weights")
    for head in (Head(3, 1), Head(5, 11), Head(0, 2)):
        data = found[f"attention-all-MiniLM-L6-v2-{str(head).replace('·', '-')}.csv"]
        weights = pd.read_csv(io.BytesIO(data), keep_default_na=False)["weight"].to_numpy()
        np.testing.assert_allclose(weights.reshape(14, 14), maps.weights[head.layer, head.index], atol=1e-6)
    page = found["attention-all-MiniLM-L6-v2-L3-H1-L5-H11-L0-H2.html"].decode("utf-8")
    assert re.findall("<h2>(.*?)</h2>", page) == ["L3·H1", "L5·H11", "L0·H2"]
    put(at, view="why")
    page = files(at)["attention-all-MiniLM-L6-v2-L3-H1.html"].decode("utf-8")
    assert "<h2>L3·H1: it → animal</h2>" in page
    assert in_page(numbers_of(spec(at)["data"][1]["y"])) in page


# Odd texts


@pytest.mark.parametrize("text", ["", "[SEP]", "😀 a 😀 مرحبا 你好", LONG, "<b>x</b> &amp; **y** $z$ </script>"],
                         ids=["empty", "special", "emoji", "long", "markup"])  # fmt: skip
def test_odd_texts_in_every_new_view(text):
    at = write(put(open_page(), specials="hide"), text)
    for view, lens in NEW_VIEWS:
        put(at, view=view, lens=lens, units="pieces" if lens == "norms" else "words")
        if text in ("", "[SEP]"):
            assert len(at.info) == 1
            assert not at.get("plotly_chart")
            continue
        assert not at.info
        assert not [element for element in at.markdown if element.proto.allow_html]
        if view == "lines":
            queries, _keys, strands = drawn_lines(at)
            assert queries == shown_words(at)
            assert np.isfinite(next(iter(strands.values()))).all()
        elif view == "map":
            assert np.isfinite(z_of(at)).all()
            assert z_of(at).shape == (len(shown_words(at)),) * 2
        else:
            assert explained(at)["count"] == 32
            title = spec(at)["layout"]["yaxis"]["title"]["text"]
            assert title == "query × key, scaled"
    put(at, specials="keep")
    if text == "":
        write(at, "a cat")
    assert not at.info
    assert shown_words(at)[0] == "[CLS]"
