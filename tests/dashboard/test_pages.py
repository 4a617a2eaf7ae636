"""The pages as a person meets them, without a browser: every view, every odd text, every link."""

from __future__ import annotations

import json
from base64 import b64decode
from itertools import product

import numpy as np
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Selectbox

import analysis.capture
from analysis.capture import capture
from analysis.maps import Head, block, in_units, with_specials
from analysis.statistics import link
from dashboard import cache, keys
from dashboard.examples import EXAMPLES
from dashboard.tables import map_table
from tests.conftest import ROOT
from tests.tiny import save_tiny

APP = str(ROOT / "dashboard" / "app.py")
HOME, ATTENTION = "views/home.py", "views/attention.py"
LONG = "word " * 600


def open_page(page: str = ATTENTION, **link: str) -> AppTest:
    """Open a page in a session of its own, by a link where one is given."""
    at = AppTest.from_file(APP, default_timeout=60)
    for name, value in link.items():
        at.query_params[name] = value
    if page != HOME:
        at.switch_page(page)
    return ran(at.run())


def ran(at: AppTest) -> AppTest:
    """Return the page; fail with what it raised."""
    assert [error.message for error in at.exception] == []
    return at


def put(at: AppTest, **choices: object) -> AppTest:
    """Set session keys as their widgets do, and run the page."""
    for key, value in choices.items():
        at.session_state[key] = value
    return ran(at.run())


def write(at: AppTest, text: str, pair: str | None = None) -> AppTest:
    """Type a text of one's own, and a second sentence where one is given."""
    if pair is not None and at.session_state["pair"] is None:
        at.button(key="pair.add").click().run()
    at.text_input(key="text.box").set_value(text)
    if pair is not None:
        at.text_input(key="pair.box").set_value(pair)
    return ran(at.run())


def open_other(at: AppTest, name: str, revision: str = "") -> AppTest:
    """Type a hub id or a folder into the sidebar's form and press Open."""
    at.selectbox(key="model.box.en").set_value("other").run()
    at.text_input(key="model.name").set_value(name)
    at.text_input(key="model.revision").set_value(revision)
    next(button for button in at.button if button.label == "Open the model").click()
    return ran(at.run())


def said(at: AppTest) -> str:
    """Return all that the page says in Markdown and captions, a line each, escapes taken away."""
    return "\n".join(element.value for element in [*at.markdown, *at.caption]).replace("\\", "")


def sent(at: AppTest, component: str) -> dict:
    """Return what the grid or the words were given to draw."""
    found = [e.proto for e in at.get("bidi_component") if e.proto.component_name.endswith(component)]
    assert len(found) == 1
    raw = found[0].json or found[0].mixed.json
    return json.loads(raw)


def shown_words(at: AppTest) -> list[str]:
    """Return the words on the page, in order."""
    return [word[0] for word in sent(at, "words")["words"]]


def spec(at: AppTest, chart: int = 0) -> dict:
    """Return one chart as it was sent."""
    return json.loads(at.get("plotly_chart")[chart].proto.spec)


def z_of(at: AppTest, chart: int = 0) -> np.ndarray:
    """Return the numbers of a chart's heatmap."""
    z = spec(at, chart)["data"][0]["z"]
    shape = [int(n) for n in z["shape"].split(",")]
    return np.frombuffer(b64decode(z["bdata"]), dtype=z["dtype"]).reshape(shape)


@pytest.fixture(autouse=True)
def _nothing_opened_before(monkeypatch):
    """Forget what other tests opened, and spare each session a look through all installed packages."""
    cache._opened().clear()
    scan = "streamlit.components.v2.manifest_scanner.scan_component_manifests"
    monkeypatch.setattr(scan, list, raising=False)


@pytest.fixture
def asked_for(monkeypatch):
    """Return the list of the sources that the page opens or tries to open from now on."""
    names = []
    real = analysis.capture.open_source

    def open_source(source="bundled", **options):
        names.append(source)
        return real(source, **options)

    monkeypatch.setattr(analysis.capture, "open_source", open_source)
    return names


# Home


def test_home_answers_with_the_bundled_model():
    at = open_page(HOME)
    assert at.subheader[0].value.startswith("Headroom")
    assert "Which one links **it** to **animal**?" in said(at)
    assert "Most of all **L3·H1**, with weight 0.68." in said(at)
    grid = sent(at, "grid")
    assert (len(grid["cells"]), {len(row) for row in grid["cells"]}) == (6, {12})
    assert grid["chosen"] == [3, 1]
    assert dict(at.query_params) == {}


@pytest.mark.parametrize("number", range(1, 6))
def test_an_example_of_home_opens_attention(number):
    at = open_page(HOME)
    ran(at.button(key=f"home.example.{number}").click().run())
    assert at.subheader[0].value.startswith("Attention")
    assert at.session_state["text"] == EXAMPLES[number - 1].text
    assert at.query_params.get("example") == (str(number) if number != 1 else None)


def test_a_head_chosen_on_home_opens_attention():
    at = open_page(HOME)
    put(at, layer=2, head=5, **{"home.go": True})  # what the grid's callback leaves behind
    assert at.subheader[0].value.startswith("Attention")
    assert "**L2·H5**" in said(at)


def test_home_follows_the_model():
    at = open_page(HOME)
    ran(at.selectbox(key="model.box.en").set_value("toy").run())
    assert len(sent(at, "grid")["cells"]) == 1
    assert at.query_params == {"model": "toy"}


# Attention


def test_arrival_shows_the_head_that_links_it_to_animal(bundled):
    at = open_page()
    assert "**L3·H1** rests on [CLS] for 7 of 11 words" in said(at)
    assert "Which head links **it** to **animal**? Most: **L3·H1** 0.68" in said(at)
    assert "query **it** · looks most at **animal** 0.68" in said(at)
    assert "6 × 12 heads, 22.7 M parameters" in said(at)
    maps = in_units(capture(bundled, EXAMPLES[0].text), "words")
    words, labels = sent(at, "words"), list(maps.queries.labels)
    assert shown_words(at) == labels
    assert words["chosen"] == labels.index("it")
    row = maps.weights[3, 1, labels.index("it")]
    np.testing.assert_allclose([word[1] for word in words["words"]], np.sqrt(row), atol=1e-3)
    assert [word[2] for word in words["words"]] == maps.queries.special.tolist()
    cells = sent(at, "grid")["cells"]
    values = link(maps, labels.index("it"), labels.index("animal"))
    printed = [[float(cell[2]) for cell in row] for row in cells]
    np.testing.assert_allclose(printed, values, atol=0.0051)
    assert sent(at, "grid")["chosen"] == [3, 1]
    np.testing.assert_allclose(z_of(at), maps.weights[3, 1], atol=1e-6)
    assert "L3·H1, 14 queries by 14 keys" in at.get("plotly_chart")[0].proto.alt


@pytest.mark.parametrize("number", range(1, len(EXAMPLES) + 1))
def test_every_example_shows_its_words_and_its_link(number, bundled):
    example = EXAMPLES[number - 1]
    at = open_page()
    ran(at.selectbox(key="example.box.en").set_value(number).run())
    labels = in_units(capture(bundled, example.text, example.pair), "words").queries.labels
    assert shown_words(at) == list(labels)
    assert f"Which head links **{example.query}** to **{example.key}**?" in said(at)
    starts = [word[0] for word in sent(at, "words")["words"] if word[4]]
    assert len(starts) == (example.pair is not None)
    assert at.query_params.get("example") == (str(number) if number != 1 else None)


def test_a_second_sentence_comes_and_goes(bundled):
    at = open_page()
    ran(at.button(key="pair.add").click().run())
    assert "Type the second sentence" in at.caption[0].value
    assert shown_words(at)[0] == "[CLS]"  # meanwhile the first is read alone
    ran(at.text_input(key="pair.box").set_value("It slept.").run())
    assert len(at.info) == 0
    maps = in_units(capture(bundled, EXAMPLES[0].text, "It slept."), "words")
    assert shown_words(at) == list(maps.queries.labels)
    assert "block.en" in {e.key for e in at.get("button_group")}
    ran(at.button(key="pair.remove").click().run())
    assert at.session_state["pair"] is None
    assert "pair.box" not in [box.key for box in at.text_input]
    assert shown_words(at) == list(in_units(capture(bundled, EXAMPLES[0].text), "words").queries.labels)


@pytest.mark.parametrize(
    ("number", "specials", "units"),
    [
        (1, "keep", "words"),
        (5, "hide", "words"),
        (1, "renormalise", "words"),
        (5, "keep", "pieces"),
        (1, "hide", "pieces"),
        (5, "renormalise", "pieces"),
    ],
)
def test_every_view_shows_the_numbers_of_its_choices(number, specials, units, bundled):
    example = EXAMPLES[number - 1]
    whole = with_specials(in_units(capture(bundled, example.text, example.pair), units), specials)
    at = put(open_page(example=str(number)), specials=specials, units=units)
    assert shown_words(at) == list(whole.queries.labels)
    np.testing.assert_allclose(z_of(at), whole.weights[3, 1], atol=1e-6)
    put(at, view="beside", layer2=1, head2=4)
    assert len(at.get("plotly_chart")) == 3
    np.testing.assert_allclose(z_of(at, 0), whole.weights[3, 1], atol=1e-6)
    np.testing.assert_allclose(z_of(at, 1), whole.weights[1, 4], atol=1e-6)
    np.testing.assert_allclose(z_of(at, 2), whole.weights[3, 1] - whole.weights[1, 4], atol=1e-6)
    assert "They differ most at" in said(at)
    put(at, view="heads", scope="model", colour="entropy")
    n = len(whole.queries)
    assert z_of(at).shape[0] >= 6 * n
    assert z_of(at).shape[1] >= 12 * n
    first = np.rint(np.sqrt(whole.weights[0, 0]) * 254)
    np.testing.assert_allclose(z_of(at)[:n, :n], first, atol=1)
    assert sent(at, "grid")["label"] == "normalised entropy"
    put(at, scope="layer")
    assert z_of(at).size < 72 * n * n
    assert at.query_params["view"] == "heads"
    assert at.query_params["colour"] == "entropy"


@pytest.mark.parametrize("specials", keys.SPECIALS.options)
def test_the_blocks_of_a_pair(specials, bundled):
    example = EXAMPLES[4]
    maps = with_specials(in_units(capture(bundled, example.text, example.pair), "words"), specials)
    at = put(open_page(example="5"), specials=specials, layer2=5, head2=11)
    for name in keys.BLOCK.options:
        part = block(maps, name)
        put(at, block=name)
        np.testing.assert_allclose(z_of(at), part.weights[3, 1], atol=1e-6)
    put(at, view="beside")  # the last block
    np.testing.assert_allclose(z_of(at, 2), part.weights[3, 1] - part.weights[5, 11], atol=1e-6)


def test_a_block_is_forgotten_with_the_pair(bundled):
    at = put(open_page(example="5"), block="AB")
    write(at, "One sentence again.", "And a second.")
    ran(at.button(key="pair.remove").click().run())
    maps = in_units(capture(bundled, "One sentence again."), "words")
    np.testing.assert_allclose(z_of(at), maps.weights[3, 1], atol=1e-6)


def test_the_link_of_a_hidden_special_falls_back_to_words():
    at = put(open_page(), query=0, key=0)
    assert "Which head links **[CLS]** to **[CLS]**?" in said(at)
    put(at, specials="hide")
    assert "Which head links **it** to **animal**?" in said(at)


@pytest.fixture
def click(monkeypatch):
    """Return a function that clicks a point of a chart, as far as that goes without a browser."""
    real = st.plotly_chart

    def clicked(at: AppTest, chart: str, point: object) -> AppTest:
        def plotly_chart(figure: object, **options: object) -> object:
            drawn = real(figure, **options)
            if options["key"] == chart:
                options["on_select"]()
            return drawn

        at.session_state[chart] = {"selection": {"points": [] if point is None else [{"point_index": point}]}}
        with monkeypatch.context() as patch:
            patch.setattr(st, "plotly_chart", plotly_chart)
            ran(at.run())
        return ran(at.run())

    return clicked


def test_a_click_on_the_map_chooses_query_and_key(click):
    at = open_page()
    labels = shown_words(at)
    click(at, "attention.map", 2 * len(labels) + 5)
    assert f"Which head links **{labels[2]}** to **{labels[5]}**?" in said(at)
    assert sent(at, "words")["chosen"] == 2
    for nothing in (None, len(labels) ** 2, -1, "3", None):
        click(at, "attention.map", nothing)
        assert f"Which head links **{labels[2]}** to **{labels[5]}**?" in said(at)


def test_a_click_on_a_block_without_specials_chooses_the_same_words(click):
    at = put(open_page(example="5"), specials="hide", block="BA")
    click(at, "attention.map", 0 * 6 + 5)  # the first word of B, the sixth of A
    assert "Which head links **A (7)** to **guitar**?" in said(at)
    assert sent(at, "words")["chosen"] == 7
    put(at, specials="keep", units="pieces")
    assert "Which head links **A (9)** to **guitar**?" in said(at)


@pytest.mark.parametrize(("scope", "point", "name"), [("layer", 7, "L3·H7"), ("model", 25, "L2·H1")])
def test_a_click_on_a_small_map_chooses_its_head(click, scope, point, name):
    at = put(open_page(), view="heads", scope=scope)
    click(at, "attention.heads", point)
    assert f"**{name}**" in at.markdown[0].value
    click(at, "attention.heads", 72)
    assert f"**{name}**" in at.markdown[0].value


# Odd texts


@pytest.mark.parametrize("text", ["", "   ", "\t"])
def test_nothing_to_read_is_said(text):
    at = write(open_page(), text)
    assert at.info[0].value == "There is no text to read. Type a sentence."
    assert len(at.get("plotly_chart")) == 0
    write(at, "a cat")
    assert shown_words(at) == ["[CLS]", "a", "cat", "[SEP]"]


def test_a_text_without_tokens_is_said():
    at = write(open_page(), "\u200b")
    assert "finds nothing to read" in at.info[0].value


ODD = {
    "one word": ("cat", ["cat"]),
    "punctuation": ("?!…,", ["?", "!", "…", ","]),
    "repeated": (
        "the cat and the dog and the bird",
        ["the", "cat", "and", "the", "dog", "and", "the", "bird"],
    ),
    "markup": ("<b>x</b> &amp; </script>", ["<", "b", ">", "x", "<", "/", "b", ">", "&", "amp"]),
    "roberta": ("<s> and </s>", ["<", "s", ">", "and", "<", "/", "s", ">"]),
    "quotes": ("\"a\" 'b' `c` “d”", ['"', "a", '"', "'", "b", "'", "`", "c", "`", "“", "d", "”"]),
    "split words": ("unbelievable, didn't", ["unbelievable", ",", "didn't"]),
    "scripts": ("😀 你好 مرحبا", ["😀", "你", "好", "مرحبا"]),
    "braces": ("{query} {0} %{x}", ["{", "query", "}"]),
}


def test_a_word_of_300_letters_is_clipped_where_it_is_shown():
    at = write(open_page(), "a" * 300)
    assert shown_words(at) == ["[CLS]", "a" * 39 + "…", "[SEP]"]


@pytest.mark.parametrize("name", ODD)
def test_odd_texts_are_shown_literally(name, bundled):
    text, first = ODD[name]
    at = write(open_page(), text)
    joined = "".join(shown_words(at)[1:-1])
    assert joined.startswith("".join(first))
    assert joined == "".join(text.split())  # nothing of the text is lost or changed
    for units in keys.UNITS.options:
        put(at, units=units, view="map")
        labels = in_units(capture(bundled, text), units).queries.labels
        assert shown_words(at) == list(labels)
        assert z_of(at).shape == (len(labels), len(labels))
        for axis in (spec(at)["layout"][name] for name in ("xaxis", "yaxis")):
            assert len(set(axis["categoryarray"])) == len(labels)
            assert not any(sign in tick for tick in axis["ticktext"] for sign in "<>")
    put(at, view="heads")


def test_the_page_takes_no_markup_from_a_text():
    at = write(open_page(), "<b>x</b> <script>alert(1)</script> **bold** $y$ :smile: `z`")
    for view in keys.VIEW.options:
        put(at, view=view)
        assert not [e for e in at.markdown if e.proto.allow_html]
        assert all("alert" not in e.proto.body for e in at.get("html"))
        raw = "\n".join(e.value for e in [*at.markdown, *at.caption])
        assert "<" not in raw.replace("\\<", "")
        assert "$" not in raw.replace("\\$", "")


def test_what_is_cut_is_said():
    at = write(open_page(), LONG)
    assert "Cut to the 512 tokens that this model can read: 90 tokens are left out." in said(at)
    assert z_of(at).shape == (512, 512)
    assert len(at.get("plotly_chart")[0].proto.spec) < 3_000_000
    put(at, view="heads", scope="model")
    assert z_of(at).dtype == np.uint8
    assert len(at.get("plotly_chart")[0].proto.spec) < 2_000_000


def test_specials_in_the_text_are_flagged():
    at = write(open_page(), "read [SEP] and [MASK] now")
    assert "The text spells out [MASK], [SEP]" in said(at)
    quiet = [word[0] for word in sent(at, "words")["words"] if word[2]]
    assert quiet == ["[CLS]", "[SEP]", "[MASK]", "[SEP]"]


def test_only_specials_and_they_are_hidden():
    at = put(open_page(), specials="hide")
    write(at, "[SEP]")
    assert "Only special tokens are left of this text, and they are hidden" in at.info[0].value
    for view, units in zip(keys.VIEW.options, ("words", "pieces") * 2 + ("words",), strict=True):
        put(at, units=units, view=view)
        assert len(at.info) == 1
    put(at, specials="renormalise")
    assert len(at.info) == 1
    ran(at.get_by_key("specials.en").set_value("keep").run())  # the way out is on the page
    assert shown_words(at) == ["[CLS]", "[SEP]", "[SEP]"]


def test_what_is_not_in_the_vocabulary_is_said_with_its_own_signs():
    at = write(open_page(), "a 😀 cat")
    assert "read as [UNK]: 😀" in said(at)
    assert "😀" in shown_words(at)


# Models


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (2, 2), (24, 16), (2, 7)])
def test_a_folder_of_any_size(layers, heads, tmp_path):
    folder = save_tiny(
        tmp_path / "tiny", num_hidden_layers=layers, num_attention_heads=heads, hidden_size=8 * heads
    )
    at = put(open_page(), layer=5, head=11, query=10, key=2)
    open_other(at, str(folder))
    assert at.session_state["model"] == str(folder)
    assert f"{layers} × {heads} heads" in said(at)
    head = Head(min(5, layers - 1), min(11, heads - 1))
    assert f"**{head}**" in said(at)
    cells = sent(at, "grid")["cells"]
    assert (len(cells), {len(row) for row in cells}) == (layers, {heads})
    assert sent(at, "grid")["chosen"] == [head.layer, head.index]
    printed = {bool(cell[2]) for row in cells for cell in row}
    assert printed == {heads <= 12}
    maps = in_units(capture(cache.source(str(folder), None, "cpu"), EXAMPLES[0].text), "words")
    np.testing.assert_array_equal(z_of(at), maps.weights[head.layer, head.index])
    put(at, view="beside", colour="entropy", layer2=23, head2=15)
    for scope in keys.SCOPE.options:
        put(at, view="heads", scope=scope)
    assert at.query_params["model"] == str(folder)
    at.switch_page(HOME)
    assert "Most of all" in said(ran(at.run()))
    at.switch_page(ATTENTION)
    ran(at.run())
    ran(at.selectbox(key="model.box.en").set_value("bundled").run())
    assert len(sent(at, "grid")["cells"]) == 6
    assert "model" not in at.query_params


def test_the_toy():
    at = open_page()
    ran(at.selectbox(key="model.box.en").set_value("toy").run())
    assert "The toy is untrained" in said(at)
    assert "1 × 8 heads, width 64, random weights from seed 0" in said(at)
    assert shown_words(at)[:3] == ["The", "animal", "didn't"]
    assert not {"specials.en", "units.en"} & {e.key for e in at.get("button_group")}  # it has neither
    for number, view in product((1, 5), keys.VIEW.options):
        at.session_state["text"], at.session_state["pair"] = (
            EXAMPLES[number - 1].text,
            EXAMPLES[number - 1].pair,
        )
        put(at, view=view)
    assert shown_words(at) == [
        "A",
        "man",
        "is",
        "playing",
        "a",
        "guitar",
        ".",
        "A",
        "man",
        "is",
        "playing",
        "a",
        "flute",
        ".",
    ]


def test_a_new_model_forgets_places_and_keeps_the_text():
    at = put(write(open_page(), "She saw it."), query=1, key=3, view="heads", specials="hide")
    ran(at.selectbox(key="model.box.en").set_value("toy").run())
    assert at.session_state["text"] == "She saw it."
    assert at.session_state["view"] == "heads"
    assert shown_words(at) == ["She", "saw", "it", "."]
    places = (at.session_state["query"], at.session_state["key"])
    assert all(0 <= place < 4 for place in places)


def test_a_broken_folder_is_one_line_and_the_model_stays(tmp_path):
    (tmp_path / "config.json").write_text("{")
    at = open_page()
    before = z_of(at)
    for name, reason in [
        (str(tmp_path), "is not JSON"),
        ("/no/such/folder", "There is no folder"),
        ("nobody/no-such-model", "is not on this machine"),
        ("", "No model is named"),
        ("not a model", "There is no folder"),
    ]:
        open_other(at, name)
        assert len(at.error) == 1
        error = at.error[0].value.replace("\\", "")
        assert reason in error
        assert "\n" not in error
        assert "Traceback" not in error
        assert at.session_state["model"] == "bundled"
        np.testing.assert_array_equal(z_of(at), before)
    put(at, view="heads")
    assert "model" not in at.query_params
    ran(at.selectbox(key="model.box.en").set_value("toy").run())
    assert len(at.error) == 0
    assert cache.opened() == []


def test_a_session_does_not_feel_the_error_of_another(tmp_path):
    first, second = open_page(), open_page()
    before = cache.maps("bundled", EXAMPLES[0].text, None, "pieces").weights.copy()
    drawn = z_of(second)
    open_other(first, str(tmp_path))
    write(first, "")
    assert len(first.error) == 1
    ran(second.run())
    assert len(second.error) == len(second.info) == 0
    np.testing.assert_array_equal(z_of(second), drawn)
    cache.maps.clear()
    after = cache.maps("bundled", EXAMPLES[0].text, None, "pieces").weights
    assert before.tobytes() == after.tobytes()


def test_two_sessions_do_not_mix():
    first = put(open_page(), layer=0, head=3, view="heads")
    second = write(open_page(), "my own words")
    ran(first.run())
    assert first.session_state["text"] == EXAMPLES[0].text
    assert "**L0·H3**" in said(first)
    assert "**L3·H1**" in said(second)
    assert shown_words(second) == ["[CLS]", "my", "own", "words", "[SEP]"]


def test_a_model_that_is_gone_gives_way_to_the_bundled_one(tmp_path):
    at = put(open_page(), model=str(tmp_path / "gone"))
    assert at.session_state["model"] == "bundled"
    assert "There is no folder" in at.error[0].value
    assert "**L3·H1**" in said(at)


# Links


@pytest.mark.parametrize(("layer", "head"), [(5, 7), (0, 0), (4, 1)])
def test_a_link_opens_its_head_at_once(layer, head):
    at = open_page(layer=str(layer), head=str(head))
    assert f"**L{layer}·H{head}**" in at.markdown[0].value
    assert sent(at, "grid")["chosen"] == [layer, head]


@pytest.mark.parametrize(("layer", "head"), [(5, 7), (0, 7), (5, 0)])
def test_reload_brings_back_the_head(layer, head):
    at = ran(open_page().selectbox(key="layer.box").set_value(layer).run())
    ran(at.selectbox(key="head.box").set_value(head).run())
    assert f"**L{layer}·H{head}**" in at.markdown[0].value
    assert f"**L{layer}·H{head}**" in open_page(**at.query_params).markdown[0].value


def test_the_head_outlives_other_pages_and_texts_that_cannot_be_read():
    at = put(open_page(), layer=5, head=7, view="beside", layer2=0, head2=2)
    at.switch_page(HOME)
    ran(at.run())
    assert dict(at.query_params) == {}
    at.switch_page(ATTENTION)
    assert "**L5·H7**" in ran(at.run()).markdown[0].value
    write(write(at, ""), "a cat")
    assert "**L5·H7**" in at.markdown[0].value
    assert [box.value for box in at.selectbox if box.key in ("layer2.box", "head2.box")] == [0, 2]


def test_a_link_opens_its_choices():
    at = open_page(
        example="5",
        view="heads",
        scope="model",
        colour="entropy",
        units="pieces",
        specials="renormalise",
        block="AB",
    )
    values = {choice.key: at.session_state[choice.key] for choice in keys.CHOICES}
    asked = {
        "view": "heads",
        "scope": "model",
        "colour": "entropy",
        "units": "pieces",
        "specials": "renormalise",
        "block": "AB",
    }
    assert values == {choice.key: choice.default for choice in keys.CHOICES} | asked
    assert at.session_state["text"] == EXAMPLES[4].text
    assert "[CLS]" not in shown_words(at)
    for name, value in asked.items():
        assert at.query_params[name] == value
    assert at.query_params["example"] == "5"


def test_a_link_opens_its_query_and_key():
    at = open_page(query="1", key="5")
    labels = shown_words(at)
    assert f"Which head links **{labels[1]}** to" in said(at)
    assert (at.session_state["query"], at.session_state["key"]) == (1, 5)


@pytest.mark.parametrize(
    "link",
    [
        {"example": "999"},
        {"example": "0"},
        {"example": "-1"},
        {"example": "٣"},
        {"view": "<script>"},
        {"view": ""},
        {"colour": "red", "units": "letters", "specials": "yes", "block": "AC", "scope": "all"},
        {"query": "9999", "key": "-3"},
        {"query": "abc", "key": "1e3"},
        {"lang": "xx"},
        {"lang": "../../etc"},
        {"unknown": "1"},
        {"layer2": "99", "head2": "x"},
    ],
    ids=str,
)
def test_a_bad_value_falls_back(link):
    at = open_page(**link)
    assert "**L3·H1** rests on [CLS]" in said(at)
    assert "Which head links **it** to **animal**?" in said(at)
    assert at.session_state["text"] == EXAMPLES[0].text
    for choice in keys.CHOICES:
        assert at.session_state[choice.key] == choice.default
        assert choice.key not in at.query_params
    assert "example" not in at.query_params


@pytest.mark.parametrize(
    "link", [{"layer": "99"}, {"layer": "abc"}, {"head": "-1"}, {"layer": "", "head": "1.5"}], ids=str
)
def test_a_bad_head_falls_back_to_one_and_the_same(link):
    at = open_page(**link)
    head = Head(at.selectbox(key="layer.box").value, at.selectbox(key="head.box").value)
    assert f"**{head}**" in at.markdown[0].value
    assert f"**{head}**" in ran(at.run()).markdown[0].value


def test_a_link_may_open_the_toy():
    at = open_page(model="toy")
    assert at.session_state["model"] == "toy"
    assert "The toy is untrained" in said(at)
    assert at.query_params["model"] == "toy"


@pytest.mark.parametrize(
    ("page", "name"),
    [
        (HOME, "/etc"),
        *(
            (ATTENTION, name)
            for name in (
                "google-bert/bert-base-uncased",
                "/etc",
                "~/secret",
                "..",
                "<b>x</b>",
                "bundled#cuda",
                "toy@x",
            )
        ),
    ],
)
def test_a_link_asks_before_it_opens_a_model(page, name, asked_for, monkeypatch):
    monkeypatch.setattr("analysis.models.open_model", lambda *_, **__: pytest.fail("opened"))
    at = open_page(page, model=name)
    ran(at.run())
    assert set(asked_for) <= {"bundled"}
    assert at.session_state["model"] == "bundled"
    assert f"This link asks for the model **{name}**" in said(at)
    assert at.query_params["model"] == name  # a reload asks again
    ran(at.button(key="model.ask.stay").click().run())
    assert "This link asks" not in said(at)
    assert "model" not in at.query_params
    assert "model.ask.open" not in [button.key for button in at.button]
    assert set(asked_for) <= {"bundled"}


def test_a_link_opens_its_model_once_somebody_agreed(tmp_path, asked_for):
    folder = str(save_tiny(tmp_path / "tiny"))
    at = open_page(model=folder)
    assert folder not in asked_for
    ran(at.button(key="model.ask.open").click().run())
    assert folder in asked_for
    assert at.session_state["model"] == folder
    assert "3 × 4 heads" in said(at)
    assert "This link asks" not in said(at)
    assert "3 × 4 heads" in said(open_page(model=folder))  # what is open here may be linked to
    assert asked_for.count(folder) == 1


def test_opening_what_a_link_asks_for_can_fail():
    at = open_page(model="/no/such/folder")
    ran(at.button(key="model.ask.open").click().run())
    assert "There is no folder" in at.error[0].value
    assert at.session_state["model"] == "bundled"
    assert "This link asks" not in said(at)
    assert "**L3·H1**" in said(at)


def test_a_text_of_ones_own_never_enters_the_link():
    at = write(open_page(example="3"), "Privat zqxj", "Geheim wvkz")
    secrets = ("privat", "zqxj", "geheim", "wvkz")

    def check() -> None:
        link = " ".join(f"{name}={value}" for name, value in at.query_params.items()).lower()
        assert not [secret for secret in secrets if secret in link]
        assert not {"example", "query", "key", "text", "pair"} & set(at.query_params)

    check()
    for view in keys.VIEW.options:
        put(at, view=view, units="pieces", colour="entropy", block="BA")
        check()
    put(at, query=2, key=3)
    check()
    ran(at.selectbox(key="model.box.en").set_value("toy").run())
    check()
    at.switch_page(HOME)
    ran(at.run())
    check()
    at.switch_page(ATTENTION)
    ran(at.run())
    check()
    assert at.session_state["text"] == "Privat zqxj"
    write(at, "", "zqxj")
    check()


# Numbers and files


def test_the_table_keeps_repeated_tokens_apart(bundled):
    text = "the cat and the dog and the bird"
    at = put(write(open_page(), text), layer=2, head=4)
    assert len(at.dataframe) == 0  # closed, it costs nothing
    put(at, **{"attention.table": True})
    maps = in_units(capture(bundled, text), "words")
    numbers, heads = (frame.value for frame in at.dataframe)
    assert numbers.shape == (10, 10)
    assert len(set(numbers.columns)) == len(set(numbers.index)) == 10
    assert [name.split(" ", 1)[1] for name in numbers.columns] == list(maps.keys.labels)
    np.testing.assert_allclose(numbers.to_numpy(), maps.weights[2, 4], atol=5.1e-5)
    assert len(heads) == 72
    np.testing.assert_array_equal(numbers.to_numpy(), map_table(maps.at(Head(2, 4))).to_numpy())


def test_the_table_of_heads_stands_with_nothing_hidden_or_kept():
    at = put(open_page(), specials="hide", **{"attention.table": True})
    heads = at.dataframe[1].value
    assert not heads["strongest link"].str.contains("[CLS]", regex=False).any()
    assert heads["entropy (share of maximum)"].between(0, 1).all()


@pytest.mark.parametrize(
    ("page", "link"),
    [
        (ATTENTION, {}),
        (ATTENTION, {"view": "lines"}),
        ("views/compare.py", {}),
        ("views/compare.py", {"compare": "sources"}),
        ("views/variations.py", {}),
        ("views/variations.py", {"part": "causal"}),
    ],
)
def test_a_label_of_options_that_are_gone_picks_nothing(monkeypatch, page, link):
    at = open_page(page, **link)
    before = {box.key: box.value for box in at.selectbox}
    query = dict(at.query_params)
    assert len(before) > 2 or page.endswith("variations.py")
    for box in [*at.selectbox, *at.multiselect]:
        key = box.key
        state = box._widget_state  # as a browser sends it that has not drawn the new options yet
        if isinstance(box, Selectbox):
            state.string_value = "99 of before"
        else:
            state.string_array_value.data.append("99 of before")
        with monkeypatch.context() as patch:
            whole = type(box)._widget_state
            patch.setattr(
                type(box),
                "_widget_state",
                property(
                    lambda one, key=key, state=state, whole=whole: (
                        state if one.key == key else whole.fget(one)
                    )
                ),
            )
            ran(at.run())
    assert {box.key: box.value for box in at.selectbox} == before
    assert at.query_params == query
