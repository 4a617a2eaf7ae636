"""The lines from queries to keys: what is sent, what is believed, and what a browser shows of it."""

from __future__ import annotations

import base64
import json
import math
import os
import re
import socket
import subprocess
import sys

import numpy as np
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard.components import lines as module
from dashboard.components.lines import End, Strand, lines
from tests.dashboard import driver
from tests.dashboard.driver import serious
from tests.dashboard.test_browser import eventually

TOKENS = ["[CLS]", "<b>", "</script>", "&amp;", "سلام", "it"]
COLOURS = ["#0072B2", "#D55E00"]
SCRIPT = f"""
import sys
sys.path.insert(0, {str(driver.ROOT)!r})
from tests.dashboard.test_lines import page
page()
"""


def tokens(count: int) -> list[str]:
    return [TOKENS[i] if i < len(TOKENS) else f"w{i}" for i in range(count)]


def weights(count: int, strand: int) -> np.ndarray:
    """Rows that sum to 1; the first key gets nothing from the last query."""
    table = np.exp(np.random.default_rng(strand).normal(size=(count, count)) * 1.5)
    table[-1, 0] = 0
    return table / table.sum(axis=1, keepdims=True)


def page() -> None:
    """The page of these tests; its link says how many tokens and heads, and which queries are chosen."""
    link = st.query_params
    count, heads = int(link.get("n", 6)), int(link.get("heads", 1))
    state = st.session_state
    state.setdefault("chosen", [int(place) for place in link.get("chosen", "").split(".") if place])
    state["runs"] = state.get("runs", 0) + 1
    st.subheader("Lines")
    st.button("again")
    first = 7 if st.checkbox("another head") else 0
    ends = [End(text, text.startswith("["), f"token {i}") for i, text in enumerate(tokens(count))]
    lines(
        ends,
        ends,
        [
            Strand(f"L{first + i}·H1", COLOURS[i % 2], weights(count, first + i).tolist())
            for i in range(heads)
        ],
        chosen=state["chosen"],
        label="Queries",
        received="Received",
        every="all of them",
        key="lines",
        on_choose=lambda places: state.update(chosen=places),
        hint="Several: Ctrl",
    )
    st.write(f"run {state['runs']} chosen {state['chosen']}.")


@pytest.fixture
def sent(monkeypatch):
    """What the component was given, in a list."""
    calls = []
    monkeypatch.setattr(module, "_LINES", lambda **given: calls.append(given))
    return calls


def draw(queries=2, keys=3, table=((0, 0.5, 1), (0.1, 0.2, 0.7)), chosen=(), on_choose=print):
    ends = [End(f"t{i}", False, "") for i in range(3)]
    lines(
        ends[:queries],
        ends[:keys],
        [Strand("L0·H0", "red", table)],
        chosen=chosen,
        label="a",
        received="b",
        every="c",
        key="k",
        on_choose=on_choose,
    )


def read(packed: str) -> list[float]:
    return (np.frombuffer(base64.b64decode(packed), dtype="<u2") / 50_000).tolist()


def test_weights_arrive_to_four_decimals_and_nonsense_stays_within_0_and_1(sent):
    draw(table=((0, 0.1234, 1), (math.nan, 1.0000001, -0.2)))
    [(name, colour, packed)] = sent[0]["data"]["strands"]
    assert (name, colour) == ("L0·H0", "red")
    assert read(packed) == [0, 0.1234, 1, 0, 1, 0]


def test_rounding_moves_no_weight_by_more_than_a_hundred_thousandth():
    table = weights(30, 5)
    back = np.reshape(read(module._packed(table.tolist(), (30, 30))), (30, 30))
    assert abs(back - table).max() <= 1.01e-5


def test_only_places_of_queries_are_sent_each_once(sent):
    draw(chosen=[1, 0, 1, 2, -1])
    assert sent[0]["data"]["chosen"] == [0, 1]


@pytest.mark.parametrize("table", [((0, 1), (1, 0)), ((0, 1, 0),)])
def test_a_table_of_another_shape_is_refused(sent, table):
    with pytest.raises(AssertionError, match="a row for each query"):
        draw(table=table)


@pytest.mark.parametrize("missing", [{"queries": 0}, {"keys": 0}])
def test_nothing_is_drawn_without_tokens(sent, missing):
    draw(**missing)
    assert sent == []


@pytest.mark.parametrize(
    ("message", "heard"),
    [
        ({"places": [1, 0]}, [[0, 1]]),
        ({"places": []}, [[]]),
        ({"places": [2]}, []),
        ({"places": [0, -1]}, []),
        ({"places": [0, 0]}, []),
        ({"places": [True]}, []),
        ({"places": [0.0]}, []),
        ({"places": ["0"]}, []),
        ({"places": [[0]]}, []),
        ({"places": "01"}, []),
        ({"places": {"0": 1}}, []),
        ({"places": None}, []),
        ({}, []),
    ],
)
def test_of_what_the_browser_sends_only_places_are_believed(sent, monkeypatch, message, heard):
    believed = []
    draw(on_choose=believed.append)
    monkeypatch.setattr(module, "heard", lambda key: message if key == "k" else {})
    sent[0]["on_choose_change"]()
    assert believed == heard


def test_64_tokens_in_four_heads_stay_below_60_kilobytes():
    at = AppTest.from_string(SCRIPT)
    at.query_params.update({"n": "64", "heads": "4", "chosen": "3"})
    at.run()
    assert not at.exception
    [made] = at.get("bidi_component")
    text = made.proto.json or made.proto.mixed.json
    assert len(text.encode()) < 60_000
    assert json.loads(text)["chosen"] == [3]


@pytest.fixture(scope="module")
def address(browser, tmp_path_factory):
    """The address of a page with nothing but lines."""
    script = tmp_path_factory.mktemp("lines") / "page.py"
    script.write_text(SCRIPT, encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port)]
    process = subprocess.Popen(
        [*command, "--server.headless", "true"],
        cwd=driver.ROOT,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        driver._wait_for(f"http://localhost:{port}/_stcore/health", process)
        yield f"http://localhost:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)


@pytest.fixture
def opened(warm, address, idle):
    """A function that opens the page with lines."""
    tabs = []

    def new(link=""):
        tab = driver.Tab(idle.pop() if idle else warm.new_page(), address)
        tab.page.set_viewport_size({"width": 1000, "height": 900})
        tabs.append(tab)
        tab.open(f"?{link}").page.wait_for_selector(".query")
        return tab

    yield new
    for tab in tabs:
        if tab.leave():
            idle.append(tab.page)
        assert tab.left_the_machine() == []
        assert tab.errors == []


def query(tab, at):
    return tab.page.get_by_role("option").nth(at)


def selected(tab):
    return tab.page.get_by_role("option").evaluate_all(
        "all => all.flatMap((one, at) => (one.getAttribute('aria-selected') === 'true' ? [at] : []))"
    )


def numbers(tab):
    return tab.page.locator(".number").all_inner_texts()


def titles(tab, where=".base"):
    """Return what the lines say."""
    return tab.page.locator(f"{where} path title").all_text_contents()


def expected(chosen, count=6, heads=1):
    """Return the lines of the chosen queries and the sums at the keys, as they should read."""
    said, sums = set(), np.zeros(count)
    for head in range(heads):
        table = weights(count, head)
        sums += table[chosen].sum(axis=0)
        said |= {
            f"L{head}·H1: {tokens(count)[q]} → {tokens(count)[k]} {table[q, k]:.2f}"
            for q in chosen
            for k in range(count)
            if table[q, k] > 0
        }
    return said, [f"{total:.2f}" for total in sums]


def shows_only(tab, chosen, **shape):
    """Wait until exactly these queries are drawn and summed here, and the server says so."""
    tab.shows(f"chosen {chosen}.").settled()
    which = chosen or list(range(shape.get("count", 6)))
    said, sums = expected(which, **shape)
    assert selected(tab) == which
    assert numbers(tab) == sums
    assert set(titles(tab)) == said
    assert len(titles(tab)) == len(said)


def focused(tab):
    """Return the place of the query that has the focus, or None."""
    return tab.page.evaluate(
        "() => { let e = document.activeElement; while (e?.shadowRoot) e = e.shadowRoot.activeElement; "
        "return e?.getAttribute('role') === 'option' ? [...e.parentElement.children].indexOf(e) : null }"
    )


@pytest.mark.browser
def test_each_chosen_query_has_a_line_to_every_key_with_a_weight(opened):
    shows_only(opened("chosen=1"), [1])
    shows_only(opened("chosen=5"), [5])  # one of its weights is 0: no line
    shows_only(opened("chosen=0.4.5"), [0, 4, 5])
    shows_only(opened(), [])


@pytest.mark.browser
def test_a_line_is_as_strong_as_the_root_of_its_weight(opened):
    tab = opened("chosen=1")
    strength = tab.page.locator(".base path").evaluate_all(
        "paths => paths.map(path => [path.textContent.slice(-4), getComputedStyle(path).strokeOpacity, "
        "parseFloat(getComputedStyle(path).strokeWidth)])"
    )
    assert len(strength) == 6
    for weight, opacity, _width in strength:
        assert float(opacity) ** 2 == pytest.approx(float(weight), abs=0.006)
    by_weight = sorted(strength, key=lambda line: float(line[0]))
    widths = [width for _weight, _opacity, width in by_weight]
    assert widths == sorted(widths)
    assert widths[-1] > widths[0]


@pytest.mark.browser
def test_a_click_chooses_one_query_and_clicks_with_ctrl_or_shift_sum_several(opened):
    tab = opened()
    query(tab, 2).click()
    shows_only(tab, [2])
    query(tab, 5).click(modifiers=["Control"])
    shows_only(tab, [2, 5])
    query(tab, 1).click(modifiers=["Shift"])
    shows_only(tab, [1, 2, 5])
    query(tab, 2).click(modifiers=["Control"])
    shows_only(tab, [1, 5])
    query(tab, 3).locator(".tick").click()
    shows_only(tab, [1, 3, 5])
    query(tab, 3).click()
    shows_only(tab, [3])
    query(tab, 3).locator(".tick").click()  # nothing is left, so everything is drawn
    shows_only(tab, [])
    query(tab, 0).locator(".tick").click()
    shows_only(tab, [1, 2, 3, 4, 5])
    every = tab.page.get_by_role("button", name="all of them")
    assert every.get_attribute("aria-pressed") == "false"
    every.click()
    shows_only(tab, [])
    assert every.get_attribute("aria-pressed") == "true"


@pytest.mark.browser
def test_a_choice_is_drawn_before_the_server_answers(opened):
    tab = opened("chosen=1")
    query(tab, 3).evaluate("query => { window.row = query }")
    seen = tab.page.evaluate(
        "() => { row.click(); const root = row.getRootNode(); "
        "return [...root.querySelectorAll('.number')].map(number => number.textContent) }"
    )
    assert seen == expected([3])[1]


@pytest.mark.browser
def test_the_keyboard_chooses_adds_and_removes(opened):
    tab = opened("chosen=1")
    query(tab, 1).focus()
    for keys, chosen, at in [
        ("ArrowDown", [2], 2),
        ("ArrowUp", [1], 1),
        ("End", [5], 5),
        ("Home", [0], 0),
        ("Shift+ArrowDown", [0, 1], 1),
        ("Control+ArrowDown", [0, 1], 2),
        ("Control+ArrowDown", [0, 1], 3),
        (" ", [0, 1, 3], 3),
        ("Control+ArrowUp", [0, 1, 3], 2),
        ("Enter", [2], 2),
        ("Escape", [], 2),
        (" ", [0, 1, 3, 4, 5], 2),
        ("Control+a", [], 2),
    ]:
        tab.page.keyboard.press(keys)
        shows_only(tab, chosen)
        assert focused(tab) == at, keys
    stops = tab.page.get_by_role("option").evaluate_all("all => all.map(one => one.tabIndex)")
    assert stops == [-1, -1, 0, -1, -1, -1]


@pytest.mark.browser
def test_the_lines_of_two_heads_lie_side_by_side_in_their_colours(opened):
    tab = opened("chosen=1.4&heads=2")
    shows_only(tab, [1, 4], heads=2)
    drawn = tab.page.locator(".base path").evaluate_all(
        "paths => paths.map(path => [path.getAttribute('d'), getComputedStyle(path).stroke])"
    )
    assert len({curve for curve, _colour in drawn}) == len(drawn) == 24
    assert {colour for _curve, colour in drawn} == {"rgb(0, 114, 178)", "rgb(213, 94, 0)"}
    assert tab.page.locator(".legend .name").all_inner_texts() == ["L0·H1", "L1·H1"]
    sums = np.array([weights(6, head)[[1, 4]].sum(axis=0) for head in (0, 1)]).T
    bars = tab.page.locator(".bar").evaluate_all("bars => bars.map(bar => parseFloat(bar.style.width))")
    assert bars == pytest.approx((sums / max(1, sums.max()) * 100).ravel().tolist(), abs=0.01)
    for at, key in enumerate(tab.page.get_by_role("listitem").and_(tab.page.locator(".key")).all()):
        said = f"token {at} · L0·H1 {sums[at, 0]:.2f} · L1·H1 {sums[at, 1]:.2f}"
        assert key.get_attribute("title") == said


@pytest.mark.browser
def test_tokens_are_shown_as_they_are(opened):
    tab = opened("chosen=1")
    for side in (".query", ".key"):
        assert tab.page.locator(f"{side} .text").all_text_contents() == TOKENS
        assert tab.page.locator(f"{side} .text *").count() == 0
    assert {re.sub(r".*→ (.*) \S+$", r"\1", said) for said in titles(tab)} == set(TOKENS)
    assert query(tab, 3).get_attribute("title") == "token 3"


@pytest.mark.browser
def test_choice_and_focus_survive_a_rerun_and_another_head(opened):
    tab = opened()
    query(tab, 2).click()
    query(tab, 4).click(modifiers=["Control"])
    shows_only(tab, [2, 4])
    query(tab, 4).evaluate("query => { window.row = query }")
    tab.page.get_by_role("button", name="again").click()
    shows_only(tab, [2, 4])
    query(tab, 4).focus()
    # The box is switched without taking the focus from the query.
    tab.page.get_by_role("checkbox", name="another head").evaluate("box => box.click()")
    table = weights(6, 7)[[2, 4]].sum(axis=0)
    eventually(tab, lambda: numbers(tab), [f"{total:.2f}" for total in table])
    assert all(said.startswith("L7·H1: ") for said in titles(tab))
    assert selected(tab) == [2, 4]
    assert focused(tab) == 4
    assert query(tab, 4).evaluate("query => query === window.row")  # nothing was built anew


@pytest.mark.browser
def test_the_pointer_previews_a_query_without_asking_the_server(opened):
    tab = opened("chosen=1")
    query(tab, 3).hover()
    eventually(tab, lambda: set(titles(tab, ".preview .top")), expected([3])[0])
    tab.page.wait_for_timeout(300)
    tab.settled().shows("run 1 chosen [1].")
    assert set(titles(tab)) == expected([1])[0]
    assert numbers(tab) == expected([1])[1]
    tab.page.get_by_role("button", name="again").hover()
    eventually(tab, lambda: titles(tab, ".top"), [])


@pytest.mark.browser
def test_the_pointer_raises_what_belongs_to_a_key_a_head_or_a_line(opened):
    tab = opened("chosen=1.4&heads=2")
    said = expected([1, 4], heads=2)[0]
    tab.page.locator(".key").nth(2).hover()
    to_key = {line for line in said if " → </script> " in line}
    eventually(tab, lambda: set(titles(tab, ".raising .top")), to_key)
    tab.page.locator(".strand").nth(1).hover()
    of_head = {line for line in said if line.startswith("L1")}
    eventually(tab, lambda: set(titles(tab, ".raising .top")), of_head)
    strongest = max(said, key=lambda line: float(line.split()[-1]))
    place = tab.page.locator(".body > svg").bounding_box()
    curve = tab.page.locator(".base path").filter(has_text=strongest).get_attribute("d")
    start, *_, end = (float(number) for number in re.findall(r"[\d.]+", curve)[1:])
    tab.page.mouse.move(place["x"] + place["width"] / 2, place["y"] + (start + end) / 2 + 3)
    eventually(tab, lambda: titles(tab, ".single .top"), [strongest])  # near is enough
    assert tab.page.locator(".readout").inner_text() == strongest
    assert tab.page.locator(".query.lit, .key.lit").count() == 2


@pytest.mark.browser
def test_60_tokens_scroll_and_leave_the_faint_lines_out_of_a_crowd(opened):
    tab = opened("n=60&chosen=50")
    shows_only(tab, [50], count=60)  # one query alone: all its lines, however faint
    box = tab.page.locator(".scroll").bounding_box()
    assert box["height"] <= 560
    row = query(tab, 50).bounding_box()
    assert box["y"] < row["y"] < row["y"] + row["height"] <= box["y"] + box["height"] + 1
    tab.page.get_by_role("button", name="all of them").click()
    tab.shows("chosen [].").settled()
    table = weights(60, 0)
    assert len(titles(tab)) == int((np.rint(table * 50_000) / 50_000 >= 0.01).sum())
    sums = [float(number) for number in numbers(tab)]
    assert sums == pytest.approx(table.sum(axis=0).tolist(), abs=0.006)  # the faint ones among them


@pytest.mark.browser
@pytest.mark.parametrize("count", [6, 24, 38])
def test_up_to_38_tokens_need_no_scrolling(opened, count):
    tab = opened(f"n={count}")
    high, inner = tab.page.locator(".scroll").evaluate("box => [box.clientHeight, box.scrollHeight]")
    assert inner <= high <= 560
    rows = tab.page.locator(".query, .key").evaluate_all("all => all.map(row => row.offsetHeight)")
    assert set(rows) == {22 if count <= 24 else 14}


@pytest.mark.browser
def test_axe_finds_nothing_serious_in_the_lines(opened):
    assert serious(opened("chosen=1.2&heads=2")) == []
