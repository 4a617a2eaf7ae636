"""The Heads page against `analysis` itself: roles, numbers, pictures, texts of one's own, files and links."""

from __future__ import annotations

import io
import math
import re
import threading
from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import analysis.collection
from analysis.collection import REPLICATES, summarise
from analysis.distance import distances, order, place, twins
from analysis.findings import MEASURES, HeadStatistics
from analysis.induction import induction
from analysis.maps import Head
from analysis.messages import HeadroomError, message
from analysis.roles import NO_ROLE, RULES, roles, scores
from analysis.texts import Text, sample
from dashboard import cache, head_figures, head_panels, head_tables, jobs, keys, measuring, naming, thresholds
from dashboard.colours import colour
from dashboard.corpus import corpus
from dashboard.naming import interval, measure_definition, measure_name, number, role_name
from tests.dashboard.test_figures import Page
from tests.dashboard.test_pages import (
    APP,
    ATTENTION,
    _nothing_opened_before,
    click,
    open_other,
    put,
    ran,
    said,
    sent,
    spec,
)
from tests.tiny import save_tiny

__all__ = ["_nothing_opened_before", "click"]  # fixtures for this file too

HEADS = "views/heads.py"
WAIT = 60  # a bound for a hung thread, in seconds; no test measures time
SINGLES = (
    "The cat sat on the mat.",
    "A dog barked, and the cat ran.",
    "the bird and the bird and the bird",
    "Nobody knew why she left so early.",
    "It rained; then it stopped.",
    "Unbelievable!",
)
SMALL = (*SINGLES, ("Is it late?", "It is late."), ("She sang.", "Then nobody spoke, and she sang again."))


def quick(source: object, texts: Sequence[Text], **options: object) -> HeadStatistics:
    """Measure as the page does; small collections with fewer replicates, which are what takes the time."""
    return summarise(source, texts, replicates=REPLICATES if len(texts) > 100 else 40, **options)


@pytest.fixture(autouse=True)
def _all_results_stay(monkeypatch):
    """What one test measured is there for the next; and nothing takes long."""
    monkeypatch.setattr(jobs, "KEPT", 1000)
    monkeypatch.setattr(analysis.collection, "summarise", quick)
    monkeypatch.setattr(measuring, "MOST_QUERIES", 300)


def finish() -> None:
    """Wait until all jobs begun so far have ended: one thread takes them one after another."""
    jobs._registry()._pool.submit(bool).result(WAIT)


def settled(at: AppTest) -> AppTest:
    """Run the page until nothing is being measured any more."""
    for _run in range(8):
        if not jobs._registry().unfinished() and "it is being measured" not in said(at):
            return at
        finish()
        ran(at.run())
    raise AssertionError("the page measures without end")


def start(own: tuple[Text, ...] | None = None, /, **link: str) -> AppTest:
    """Open the page by a link, on texts of one's own where some are given; do not wait for what it measures."""
    at = AppTest.from_file(APP, default_timeout=WAIT)
    if own is not None:
        at.session_state["texts.own"] = corpus("pasted", list(own))
        link["texts"] = "own"
    for name, value in link.items():
        at.query_params[name] = value
    at.switch_page(HEADS)
    return ran(at.run())


def open_heads(own: tuple[Text, ...] | None = None, /, **link: str) -> AppTest:
    """Open the page by a link, and let it measure."""
    return settled(start(own, **link))


def paste(at: AppTest, text: str) -> AppTest:
    """Type into the box of one's own texts and press the button."""
    at.text_area(key="texts.paste").set_value(text)
    at.button(key="texts.paste.use").click()
    return settled(ran(at.run()))


def source_of(model: str = "bundled"):
    return cache.source(*cache.parts_of(model))


@lru_cache(maxsize=32)
def found(
    texts: tuple[Text, ...], specials: str = "keep", weighting: str = "queries", model: str = "bundled"
) -> HeadStatistics:
    """Measure directly what the page should show."""
    return quick(source_of(model), texts, specials=specials, weighting=weighting)


@lru_cache(maxsize=8)
def apart(texts: tuple[Text, ...], specials: str = "keep", model: str = "bundled"):
    return distances(source_of(model), texts, specials=specials, most_queries=measuring.MOST_QUERIES)


ENGLISH, INDONESIAN = tuple(sample("en")), tuple(sample("id"))


def grid_values(at: AppTest) -> np.ndarray:
    """Return the number of every cell from its title, NaN where it says a dash."""
    titles = [[cell[3].split(": ", 1)[1] for cell in row] for row in sent(at, "grid")["cells"]]
    return np.array([[math.nan if t == "–" else float(t.split(" · ")[0]) for t in row] for row in titles])


def grid_letters(at: AppTest) -> list[list[str]]:
    return [[cell[2] for cell in row] for row in sent(at, "grid")["cells"]]


def letters_of(names: np.ndarray) -> list[list[str]]:
    letter = {rule.role: rule.letter for rule in RULES} | {NO_ROLE: "·"}
    return [[letter[name] for name in row] for row in names]


def numbers_of(packed: object) -> np.ndarray:
    """Return an array of a chart, sent as it is or packed."""
    if not isinstance(packed, dict):
        return np.array([math.nan if value is None else value for value in packed], dtype=float)
    flat = np.frombuffer(b64decode(packed["bdata"]), dtype=packed["dtype"])
    return flat.reshape([int(n) for n in packed["shape"].split(",")]) if "shape" in packed else flat


def clearest(whole: HeadStatistics) -> list[int]:
    """Return layer and head of the one whose role is the clearest."""
    excess = scores(whole) / np.array([rule.threshold for rule in RULES])[:, None, None]
    return [int(i) for i in np.unravel_index(excess.max(axis=0).argmax(), excess.shape[1:])]


def group(at: AppTest, key: str):
    """Return a row of choices by its key."""
    return next(element for element in at.get("button_group") if element.key == key)


def there(at: AppTest) -> set[str]:
    """Return the keys of the buttons on the page."""
    return {button.key for button in at.button}


# Numbers in words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.500"),
        (0.93149, "0.931"),
        (0.0456, "0.0456"),
        (0.00456, "0.0046"),
        (1.0, "1.00"),
        (1.2345, "1.23"),
        (12.345, "12.3"),
        (123.45, "123"),
        (12345.6, "12,346"),
        (-0.25, "−0.250"),
        (-3.14159, "−3.14"),
        (-1234.0, "−1,234"),
        (0, "0"),
        (0.0, "0"),
        (-0.0, "0"),
        (-0.0004, "−0.0004"),
        (0.0004, "0.0004"),
        (1e-12, "0.0000"),
        (-1e-12, "0.0000"),
        (-0.0005001, "−0.0005"),
        (math.nan, "–"),
        (np.float32(0.25), "0.250"),
        (np.float64("nan"), "–"),
    ],
)
def test_a_number_has_three_digits_and_no_exponent(value, text):
    assert number(value) == text


def test_an_interval_stands_behind_its_number():
    assert interval(0.9312, 0.9254, 0.9376) == "0.931 [0.925, 0.938]"
    assert interval(-0.1, -0.25, 0.0) == "−0.100 [−0.250, 0]"
    assert interval(math.nan, 0.1, 0.2) == interval(math.nan, math.nan, math.nan) == "–"
    assert interval(0.5, math.nan, math.nan) == "0.500 [–, –]"


def test_every_measure_and_role_has_a_name_of_its_own():
    names = [measure_name(name) for name in keys.MEASURE.options]
    assert len(set(names)) == len(names) == len(MEASURES) + 2
    kinds = [role_name(role) for role in (*(rule.role for rule in RULES), NO_ROLE)]
    assert len(set(kinds)) == len(RULES) + 1
    assert len({measure_definition(name) for name in keys.MEASURE.options}) == len(names)
    for rule in RULES:
        parts = naming.rule_measures(rule)
        assert all(measure_name(name) in parts for name in rule.measures)
    assert len({naming.rule_measures(replace(RULES[5], combine=how)) for how in ("sum", "mean", "max")}) == 3


# Thresholds


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        (None, {}),
        ("", {}),
        ("P60", {"P": 0.6}),
        ("P60N40", {"P": 0.6, "N": 0.4}),
        ("O100C5", {"O": 1.0, "C": 0.05}),
        ("P60P70", {"P": 0.7}),
        ("P4", {}),
        ("P0", {}),
        ("P101", {}),
        ("P999N40", {"N": 0.4}),
        ("P-60", {}),
        ("P0.6", {}),
        ("p60", {}),
        ("Z60", {}),
        ("Z60C70", {"C": 0.7}),
        ("60", {}),
        ("P", {}),
        ("<script>P60</script>", {"P": 0.6}),
        ("x" * 100 + "P60", {}),
        ("P" * 10_000, {}),
    ],
    ids=str,
)
def test_thresholds_of_a_link(text, rules):
    assert thresholds.read(text) == rules


# What the page says on arrival


def test_arrival_says_how_many_heads_have_which_role():
    at = open_heads()
    whole = found(ENGLISH)
    count = Counter(roles(whole).ravel().tolist())
    clear = 72 - count[NO_ROLE]
    assert 0 < clear < 72
    (line,) = [line for line in said(at).splitlines() if "have a clear role" in line]
    said_first = (
        f"**{clear} of 72 heads** have a clear role on {len(ENGLISH)} texts ({whole.queries:,} tokens): "
    )
    assert line.startswith(said_first)
    letter = {rule.role: rule.letter for rule in RULES}
    parts = {f"**{letter[role]}** {role_name(role)} ({n})" for role, n in count.items() if role != NO_ROLE}
    assert set(line.removeprefix(said_first).split(", ")) == parts
    assert [int(n) for n in re.findall(r"\((\d+)\)", line.removeprefix(said_first))] == sorted(
        (n for role, n in count.items() if role != NO_ROLE), reverse=True
    )
    assert at.subheader[0].value.startswith("Heads")
    assert dict(at.query_params) == {}
    assert "Indonesian" not in line


def test_the_grid_shows_roles_values_and_intervals():
    at = open_heads()
    whole = found(ENGLISH)
    names = roles(whole)
    assert grid_letters(at) == letters_of(names)
    assert sent(at, "grid")["chosen"] == clearest(whole)
    at_measure = whole.names.index("entropy_normalised")
    for layer, row in enumerate(sent(at, "grid")["cells"]):
        for head, (fill, _ink, _text, title, _mark) in enumerate(row):
            value, low, high = (
                float(table[at_measure, layer, head]) for table in (whole.mean, whole.low, whole.high)
            )
            assert low <= value <= high
            assert title == (
                f"L{layer}·H{head}: {value:.3f} · entropy, share of maximum {interval(value, low, high)} · "
                f"{role_name(names[layer, head])}"
            )
            assert fill == colour("Viridis", value)


def test_values_instead_of_roles():
    at = put(open_heads(SMALL), cells="numbers")
    printed = np.array([[float(text) for text in row] for row in grid_letters(at)])
    np.testing.assert_allclose(printed, found(SMALL).table("entropy_normalised"), atol=0.0051)
    assert at.query_params["cells"] == "numbers"
    put(at, cells="letters")
    assert grid_letters(at) == letters_of(roles(found(SMALL)))


def test_weights_are_coloured_by_their_root_and_bits_up_to_their_most():
    at = open_heads(SMALL, measure="cls")
    table = found(SMALL).table("cls")
    fills = [[cell[0] for cell in row] for row in sent(at, "grid")["cells"]]
    assert fills == [[colour("Viridis", math.sqrt(value)) for value in row] for row in table.tolist()]
    put(at, measure="entropy")
    table = found(SMALL).table("entropy")
    most = math.ceil(table.max() * 2) / 2
    fills = [[cell[0] for cell in row] for row in sent(at, "grid")["cells"]]
    assert fills == [[colour("Viridis", value / most) for value in row] for row in table.tolist()]
    assert most > 1.5
    assert any(f"{most:.3g}</span>" in e.proto.body for e in at.get("html"))


@pytest.mark.parametrize(("model", "texts"), [("bundled", SINGLES), ("toy", SMALL)], ids=["bundled", "toy"])
def test_every_measure_is_shown_with_its_definition(model, texts):
    """Also those that no query has: without pairs there are no blocks, in the toy there is no [CLS]."""
    link = {"model": model} if model == "toy" else {}
    at = open_heads(texts, panel="layers", **link)
    whole = found(texts, model=model)
    undefined = []
    for name in MEASURES:
        put(at, measure=name)
        definition = MEASURES[name]
        assert f"Colour: {definition}. Mean and 95% interval" in said(at)
        table = whole.table(name)
        np.testing.assert_allclose(grid_values(at), np.where(np.isnan(table), np.nan, table), atol=5.1e-4)
        assert sent(at, "grid")["label"] == measure_name(name)
        dots, line = spec(at)["data"]
        np.testing.assert_allclose(numbers_of(dots["y"]), table.ravel(), atol=1e-6)
        if np.isnan(table).all():
            undefined.append(name)
            assert {cell[2] for row in sent(at, "grid")["cells"] for cell in row} <= {""}
        else:
            np.testing.assert_allclose(numbers_of(line["y"]), table.mean(axis=1), atol=1e-6)
    blocks = [name for name in MEASURES if name.startswith("block")]
    nowhere = {"bundled": ["other_special", *blocks], "toy": ["entropy_cls", "cls", "sep", "other_special"]}
    assert undefined == nowhere[model]


@pytest.fixture
def few_sequences(monkeypatch):
    """Fewer random sequences than the page takes, for the time being."""
    monkeypatch.setattr(measuring, "SEQUENCES", 4)
    jobs.forget(("induction", "bundled"))
    yield 4
    jobs.forget(("induction", "bundled"))


def test_induction_is_measured_when_it_is_asked_for(few_sequences):
    at = open_heads(SMALL)
    assert jobs.find(("induction", "bundled")) is None
    at.session_state["measure"] = "induction"
    ran(at.run())
    settled(at)
    direct = induction(source_of(), sequences=few_sequences)
    for name in ("induction", "induction_back"):
        put(at, measure=name)
        i = direct.names.index(name)
        np.testing.assert_allclose(grid_values(at), direct.mean[i], atol=5.1e-4)
        title = sent(at, "grid")["cells"][2][3][3]
        assert interval(direct.mean[i, 2, 3], direct.low[i, 2, 3], direct.high[i, 2, 3]) in title
        assert f"Colour: {naming.INDUCTION[name]}." in said(at)
    put(at, panel="layers")
    assert "Induction is measured on random tokens, not on these texts" in said(at)
    assert len(at.get("plotly_chart")) == 0


def test_the_toy_has_no_induction_and_says_so():
    at = open_heads(SMALL, model="toy", measure="induction")
    assert "The toy has neither positions nor a vocabulary" in at.error[0].value
    assert "again.induction.toy" in there(at)
    put(at, panel="layers")
    put(at, panel="map")
    ran(at.get_by_key("measure.en").set_value("entropy").run())  # the way out is on the page
    assert len(at.error) == 0
    np.testing.assert_allclose(grid_values(at), found(SMALL, model="toy").table("entropy"), atol=5.1e-4)


def test_special_tokens_and_weighting_change_the_numbers():
    at = open_heads(SMALL, measure="previous")
    seen = {}
    for specials in keys.SPECIALS.options:
        for weighting in keys.WEIGHTING.options:
            settled(put(at, specials=specials, weighting=weighting))
            whole = found(SMALL, specials, weighting)
            seen[specials, weighting] = grid_values(at)
            np.testing.assert_allclose(seen[specials, weighting], whole.table("previous"), atol=5.1e-4)
            assert f"on {len(SMALL)} texts ({whole.queries:,} tokens)" in said(at)
            assert grid_letters(at) == letters_of(roles(whole))
            link = {"specials": specials, "weighting": weighting}
            for name, value in link.items():
                assert at.query_params.get(name) == (None if value in ("keep", "queries") else value)
    tables = list(seen.values())
    for i, one in enumerate(tables):
        assert all(np.abs(one - other).max() > 0.002 for other in tables[i + 1 :])


# One head


def head_line(at: AppTest) -> str:
    return next(line for line in said(at).splitlines() if re.match(r"\*\*L\d+·H\d+\*\*: ", line)).strip()


def test_the_chosen_head_says_its_role_and_its_score():
    at = open_heads(SMALL)
    whole = found(SMALL)
    names, each = roles(whole), scores(whole)
    some = [np.argwhere(names == role)[0] for role in np.unique(names)]
    assert len(some) >= 3
    for layer, head in some:
        put(at, layer=int(layer), head=int(head))
        name, own = names[layer, head], each[:, layer, head]
        if name == NO_ROLE:
            i = int((own / [rule.threshold for rule in RULES]).argmax())
            assert head_line(at) == (
                f"**L{layer}·H{head}**: no clear role. Closest: {role_name(RULES[i].role)}, "
                f"{number(own[i])} where {number(RULES[i].threshold)} are needed"
            )
        else:
            i = [rule.role for rule in RULES].index(name)
            assert own[i] >= RULES[i].threshold
            assert head_line(at) == (
                f"**L{layer}·H{head}**: {role_name(name)}, score {number(own[i])} "
                f"(from {number(RULES[i].threshold)} on)"
            )
        assert sent(at, "grid")["chosen"] == [layer, head]


@pytest.mark.parametrize(("layer", "head"), [(3, 1), (0, 0), (5, 11)])
def test_the_nearest_twin_is_that_of_the_distances(layer, head):
    at = open_heads(SMALL, layer=str(layer), head=str(head))
    nearest, mean, low, high = (table[layer * 12 + head] for table in twins(apart(SMALL)))
    twin = Head(*divmod(int(nearest), 12))
    close = "it attends so alike that it could replace it" if mean < head_panels.CLOSE else "not close"
    said_of = f"Nearest twin: **{twin}**, distance {interval(mean, low, high)} bits: {close}"
    assert said_of in said(at).splitlines()
    ran(at.button(key="heads.twin").click().run())
    assert at.subheader[0].value.startswith("Compare")
    assert at.session_state["compare"] == "heads"
    chosen = [at.session_state[name] for name in keys.NUMBERS[:4]]
    assert chosen == [layer, head, twin.layer, twin.index]


def test_the_profile_shows_the_chosen_head_among_all():
    at = open_heads(SMALL, layer="2", head="7")
    whole = found(SMALL)
    shares = [name for name in MEASURES if name not in ("entropy", "entropy_cls", "distance")]
    shares = [name for name in shares if np.nan_to_num(whole.table(name)).any()]
    assert "block_ab" in shares
    assert "other_special" not in shares  # nothing has it: no row for it
    everyone, chosen = spec(at)["data"]
    assert chosen["y"] == [measure_name(name) for name in shares]
    at_share = [whole.names.index(name) for name in shares]
    mean, low, high = (table[at_share, 2, 7] for table in (whole.mean, whole.low, whole.high))
    np.testing.assert_allclose(numbers_of(chosen["x"]), mean, atol=1e-6)
    np.testing.assert_allclose(numbers_of(chosen["error_x"]["array"]), high - mean, atol=1e-6)
    np.testing.assert_allclose(numbers_of(chosen["error_x"]["arrayminus"]), mean - low, atol=1e-6)
    for i, note in enumerate(chosen["hovertext"]):
        below = int((whole.table(shares[i]) < mean[i]).sum())
        assert note == f"L2·H7: {interval(mean[i], low[i], high[i])} · more than {below} of 71 other heads"
    np.testing.assert_allclose(
        numbers_of(everyone["x"]), np.stack([whole.table(name).ravel() for name in shares]).ravel(), atol=1e-6
    )
    assert everyone["y"] == [measure_name(name) for name in shares for _head in range(72)]
    assert "L2·H7 against all 72 heads" in at.get("plotly_chart")[0].proto.alt


def test_the_profile_of_very_many_heads_is_drawn_as_ranges():
    few = found(SMALL)
    parts = [np.tile(table, (1, 1, 8)) for table in (few.mean, few.low, few.high)]
    many = replace(few, mean=parts[0], low=parts[1], high=parts[2])
    figure = head_figures.profile(many, [head_figures.Side(many, Head(0, 0), "L0·H0")])
    ranges, chosen = figure.data
    names = head_figures.share_measures(many)
    assert len(ranges.x) == 3 * len(names)
    for i, name in enumerate(names):
        assert ranges.x[3 * i] == pytest.approx(few.table(name).min())
        assert ranges.x[3 * i + 1] == pytest.approx(few.table(name).max())
        assert ranges.x[3 * i + 2] is None
    assert len(chosen.x) == len(names)
    assert len(figure.to_json()) < 100_000


def test_it_starts_with_the_clearest_head_and_each_box_moves_from_there():
    layer, head = clearest(found(SMALL))
    assert [layer, head] != [keys.ARRIVAL.layer, keys.ARRIVAL.index]
    at = open_heads(SMALL)
    assert sent(at, "grid")["chosen"] == [layer, head]
    assert (at.selectbox(key="layer.box").value, at.selectbox(key="head.box").value) == (layer, head)
    ran(at.selectbox(key="layer.box").set_value(4).run())
    assert sent(at, "grid")["chosen"] == [4, head]
    at = open_heads(SMALL)
    ran(at.selectbox(key="head.box").set_value(7).run())
    assert sent(at, "grid")["chosen"] == [layer, 7]


def test_a_text_of_the_clearest_head_opens_with_that_head():
    at = open_heads(SMALL)
    layer, head = clearest(found(SMALL))
    ran(at.button(key="heads.text.0.1").click().run())
    assert f"**L{layer}·H{head}**" in at.markdown[0].value


def test_few_texts_and_moved_thresholds_are_pointed_out():
    at = open_heads(SMALL)
    assert f"{len(SMALL)} texts are few" in said(at)
    assert "thresholds of the roles are moved" not in said(at)
    put(at, rules={"C": 0.5, "P": 0.6})
    assert "2 thresholds of the roles are moved" in said(at)
    assert "texts are few" not in said(open_heads())


def test_seeing_a_head_on_a_sentence_opens_attention():
    at = open_heads(SMALL, layer="4", head="6")
    ran(at.button(key="heads.see").click().run())
    assert at.subheader[0].value.startswith("Attention")
    assert "**L4·H6**" in at.markdown[0].value


@pytest.mark.parametrize("button", ["heads.see", "heads.text.0.1"])
def test_a_click_that_leaves_the_page_wins_over_a_job_that_ends(button, monkeypatch):
    at = open_heads(SMALL, layer="4", head="6")
    job = jobs.Job("a job", message("Counting"), 1, state="running")

    def measured(*_asked: object) -> None:
        jobs.result(job)  # this run waits for it, and it ends before the page is drawn
        job.state = "done"

    monkeypatch.setattr(measuring, "distances", measured)
    ran(at.button(key=button).click().run())
    assert at.subheader[0].value.startswith("Attention")
    assert "**L4·H6**" in at.markdown[0].value


# All heads in one picture


def test_the_map_places_heads_by_their_distances(click):
    at = open_heads(SMALL, panel="map", layer="1", head="2")
    points, stress = place(apart(SMALL))
    every = spec(at)["data"][0]
    np.testing.assert_allclose(numbers_of(every["x"]), points[:, 0], atol=1e-6)
    np.testing.assert_allclose(numbers_of(every["y"]), points[:, 1], atol=1e-6)
    letters = [letter for row in letters_of(roles(found(SMALL))) for letter in row]
    assert every["text"] == ["" if letter == "·" else letter for letter in letters]
    assert every["hovertext"][14].startswith("L1·H2: ")
    assert numbers_of(every["marker"]["size"]).argmax() == 14
    shades = every["marker"]["color"]
    assert len(set(shades)) == 6
    assert [len(set(shades[start : start + 12])) for start in range(0, 72, 12)] == [1] * 6
    assert (
        f"over {apart(SMALL).queries:,} tokens, laid out by metric scaling; stress {number(stress)} "
        in said(at)
    )
    click(at, "heads.map", 3 * 12 + 5)
    assert sent(at, "grid")["chosen"] == [3, 5]
    assert at.query_params["layer"] == "3"
    for nothing in (None, 72, -1, "3"):
        click(at, "heads.map", nothing)
        assert sent(at, "grid")["chosen"] == [3, 5]
    assert "Map of 72 heads" in at.get("plotly_chart")[0].proto.alt


def test_the_matrix_shows_every_distance_in_the_order_of_the_clusters():
    at = open_heads(SMALL, panel="matrix")
    apart_of = apart(SMALL)
    by = order(apart_of)
    heat = spec(at)["data"][0]
    np.testing.assert_allclose(numbers_of(heat["z"]), apart_of.mean[np.ix_(by, by)], atol=1e-6)
    assert heat["x"] == heat["y"] == [str(Head(*divmod(int(i), 12))) for i in by]
    assert by.tolist() != list(range(72))
    assert (heat["zmin"], heat["zmax"]) == (0, 1)
    assert "0 the same, 1 nothing in common" in said(at)
    settled(put(at, specials="renormalise"))
    without = apart(SMALL, "renormalise")
    by = order(without)
    np.testing.assert_allclose(numbers_of(spec(at)["data"][0]["z"]), without.mean[np.ix_(by, by)], atol=1e-6)


def test_the_layers_show_every_head_and_the_mean(click):
    at = open_heads(SMALL, panel="layers", measure="cls", layer="2", head="3")
    whole = found(SMALL)
    table, i = whole.table("cls"), whole.names.index("cls")
    dots, line = spec(at)["data"]
    np.testing.assert_allclose(numbers_of(dots["y"]), table.ravel(), atol=1e-6)
    np.testing.assert_allclose(np.rint(numbers_of(dots["x"])), np.repeat(range(6), 12))
    assert [i for i, mark in enumerate(dots["marker"]["symbol"]) if mark == "diamond"] == [27]
    np.testing.assert_allclose(numbers_of(line["y"]), table.mean(axis=1), atol=1e-6)
    low, high = np.percentile(whole.replicates[:, i].astype(float).mean(axis=-1), (2.5, 97.5), axis=0)
    bars = line["error_y"]
    np.testing.assert_allclose(numbers_of(bars["array"]), high - table.mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(numbers_of(bars["arrayminus"]), table.mean(axis=1) - low, atol=1e-5)
    assert line["hovertext"][4] == (
        f"layer 4: mean {interval(table[4].mean(), low[4], high[4])}, spread over its heads "
        f"{number(table[4].min())} to {number(table[4].max())}"
    )
    click(at, "heads.layers", 5 * 12 + 11)
    assert sent(at, "grid")["chosen"] == [5, 11]


# The texts of a head


def test_the_texts_of_a_head_are_those_of_its_focus():
    at = open_heads(layer="0", head="2")
    focus = found(ENGLISH).focus
    for end in (0, 1):
        places = focus.places[end, 0, 2].tolist()
        shares = dict(zip(places, focus.entropy[end, 0, 2].tolist(), strict=True))
        distinct = {ENGLISH[place]: place for place in reversed(places)}
        first = sorted(distinct.values(), key=places.index)[: head_tables.SHOWN_TEXTS]
        labels = [at.button(key=f"heads.text.{end}.{n}").label.replace("\\", "") for n in (1, 2, 3)]
        for label, where in zip(labels, first, strict=True):
            text = ENGLISH[where] if isinstance(ENGLISH[where], str) else " / ".join(ENGLISH[where])
            assert label.startswith(text[:100])
            assert label.endswith(f":gray[{number(shares[where])}]")
    assert "**L0·H2** is most focused on" in said(at)
    assert "**L0·H2** is least focused on" in said(at)


@pytest.mark.parametrize("end", [0, 1])
def test_a_text_of_a_head_opens_on_the_attention_page(end):
    at = open_heads(SMALL, layer="1", head="9")
    text = SMALL[found(SMALL).focus.places[end, 1, 9, 1]]
    ran(at.button(key=f"heads.text.{end}.2").click().run())
    assert at.subheader[0].value.startswith("Attention")
    wanted = (text, None) if isinstance(text, str) else text
    assert (at.session_state["text"], at.session_state["pair"]) == wanted
    assert "**L1·H9**" in at.markdown[0].value
    assert "example" not in at.query_params


def test_a_text_that_stands_there_often_is_named_once():
    texts = ("The same.", "The same.", "The same.", "Another one, quite different.", "The same.")
    at = open_heads(texts)
    labels = [b.label for b in at.button if (b.key or "").startswith("heads.text.0.")]
    assert len(labels) == len({label.split(" :gray")[0] for label in labels}) == 2


def test_markup_in_texts_is_shown_as_it_was_typed():
    texts = ("**bold** $x$ :smile: <b>y</b> `z` [a](http://b)", "# not a title", "1. no list", *SINGLES[:3])
    at = open_heads(texts)
    raw = [b.label for b in at.button if (b.key or "").startswith("heads.text.")]
    assert len(raw) == 6
    for label in raw:
        body = label.rsplit(" :gray[", 1)[0]
        assert not re.search(r"(?<!\\)[*$:<`\[#]", body)
    assert {label.rsplit(" :gray[", 1)[0].replace("\\", "") for label in raw} == set(texts)
    assert not [e for e in at.markdown if e.proto.allow_html]


def test_a_text_of_several_lines_is_named_on_one():
    at = open_heads(("The first line.\n\nThe second one.", "\tA cat sat."))
    labels = [b.label.replace("\\", "") for b in at.button if (b.key or "").startswith("heads.text.")]
    assert {label.rsplit(" :gray[", 1)[0] for label in labels} == {
        "The first line. The second one.",
        "A cat sat.",
    }


# The table


@pytest.fixture
def choose_row(monkeypatch):
    """Return a function that selects a row of the table, as far as that goes without a browser."""
    real = st.dataframe

    def choose(at: AppTest, row: int | None) -> AppTest:
        def dataframe(table: object, **options: object) -> object:
            drawn = real(table, **options)
            options["on_select"]()
            return drawn

        at.session_state["heads.rows"] = {"selection": {"rows": [] if row is None else [row]}}
        with monkeypatch.context() as patch:
            patch.setattr(st, "dataframe", dataframe)
            ran(at.run())
        return ran(at.run())

    return choose


def test_the_table_holds_all_heads_and_a_row_chooses_one(choose_row):
    at = open_heads(SMALL)
    assert len(at.dataframe) == 0  # closed, it costs nothing
    put(at, **{"heads.table": True})
    table, whole = at.dataframe[0].value, found(SMALL)
    names = roles(whole)
    assert table["head"].tolist() == [str(Head(layer, head)) for layer in range(6) for head in range(12)]
    assert table["role"].tolist() == [role_name(name) for name in names.ravel()]
    for name in (name for name in MEASURES if name != "other_special"):  # which is nowhere
        i = whole.names.index(name)
        np.testing.assert_allclose(table[measure_name(name)], whole.mean[i].ravel(), atol=5.1e-5)
        low, high = whole.low[i, 3, 1], whole.high[i, 3, 1]
        assert table[f"{measure_name(name)}: 95% interval"][37] == f"{number(low)} – {number(high)}"
    choose_row(at, 43)
    assert sent(at, "grid")["chosen"] == [3, 7]
    for nothing in (None, 72, 9999):
        choose_row(at, nothing)
        assert sent(at, "grid")["chosen"] == [3, 7]


def test_the_table_shows_the_roles_that_are_asked_for(choose_row):
    at = put(open_heads(SMALL), **{"heads.table": True})
    names = roles(found(SMALL))
    pills = group(at, "heads.filter.en")
    offered = [rule.role for rule in RULES if (names == rule.role).any()] + [NO_ROLE]
    assert [option.content for option in pills.proto.options] == [role_name(role) for role in offered]
    for kept in (["sink"], ["sink", NO_ROLE], [offered[0]]):
        ran(group(at, "heads.filter.en").set_value(kept).run())
        places = np.argwhere(np.isin(names, kept)).tolist()
        assert at.dataframe[0].value["head"].tolist() == [f"L{a}·H{b}" for a, b in places]
    ran(group(at, "heads.filter.en").set_value(["sink"]).run())
    choose_row(at, 1)
    assert sent(at, "grid")["chosen"] == np.argwhere(names == "sink")[1].tolist()
    ran(group(at, "heads.filter.en").set_value([]).run())
    assert len(at.dataframe[0].value) == 72


def test_a_role_that_is_asked_for_may_vanish():
    at = put(open_heads(SMALL), **{"heads.table": True})
    ran(group(at, "heads.filter.en").set_value(["sink"]).run())
    put(at, rules={"C": 1.0})
    assert not (np.array(grid_letters(at)) == "C").any()
    assert len(at.dataframe[0].value) == 72


def test_measures_that_no_head_has_are_no_columns():
    table = put(open_heads(SINGLES), **{"heads.table": True}).dataframe[0].value
    assert not [name for name in table.columns if "sentence" in name]
    assert "weight on [CLS]" in table.columns


# The rules


def test_moving_a_threshold_moves_the_roles_and_the_link():
    at = put(open_heads(SMALL, layer="3", head="1"), **{"heads.rules": True})
    whole = found(SMALL)
    names, each = roles(whole), scores(whole)
    for i, rule in enumerate(RULES):
        line = next(
            line
            for line in said(at).splitlines()
            if line.startswith(f"**{rule.letter}** {role_name(rule.role)}: ")
        )
        count = int((names == rule.role).sum())
        assert line.endswith(f"L3·H1 scores {number(each[i, 3, 1])}, {count} heads")
        assert at.slider(key=f"heads.rule.{rule.letter}").value == rule.threshold
    ran(at.slider(key="heads.rule.C").set_value(0.35).run())
    moved = [replace(rule, threshold=0.35) if rule.letter == "C" else rule for rule in RULES]
    assert grid_letters(at) == letters_of(roles(whole, moved))
    assert grid_letters(at) != letters_of(names)
    assert at.query_params["rules"] == "C35"
    count = Counter(roles(whole, moved).ravel().tolist())
    assert f"**{72 - count[NO_ROLE]} of 72 heads** have a clear role" in said(at)
    assert f"**C** sink ({count['sink']})" in said(at)
    ran(at.slider(key="heads.rule.D").set_value(0.7).run())
    assert at.query_params["rules"] == "C35D70"
    again = open_heads(SMALL, **at.query_params)
    assert grid_letters(again) == grid_letters(at)
    ran(at.slider(key="heads.rule.C").set_value(0.6).run())  # as it is written
    assert at.query_params["rules"] == "D70"
    ran(at.button(key="heads.rules.reset").click().run())
    assert "rules" not in at.query_params
    assert grid_letters(at) == letters_of(names)
    assert at.slider(key="heads.rule.D").value == 0.9


@pytest.mark.parametrize("link", ["P4", "Z60", "C101", "<script>", "60", "C0.3"])
def test_bad_thresholds_of_a_link_are_ignored(link):
    at = open_heads(SMALL, rules=link)
    assert grid_letters(at) == letters_of(roles(found(SMALL)))
    assert "rules" not in at.query_params


def test_a_threshold_of_the_written_rules_is_none_that_was_moved():
    at = open_heads(SMALL, rules="P50C60")
    assert grid_letters(at) == letters_of(roles(found(SMALL)))
    assert "rules" not in at.query_params


def test_thresholds_outlive_other_pages():
    at = open_heads(SMALL, rules="C35")
    letters = grid_letters(at)
    at.switch_page(ATTENTION)
    ran(at.run())
    assert "rules" not in at.query_params
    at.switch_page(HEADS)
    ran(at.run())
    assert at.query_params["rules"] == "C35"
    assert grid_letters(at) == letters


def go_back(at: AppTest, **link: str) -> AppTest:
    """Show the page under another link, as the browser's Back does."""
    at.query_params.clear()
    at.query_params.update(link)
    return ran(at.run())


def test_back_undoes_a_choice_of_the_page():
    at = open_heads(SMALL, layer="1", head="2")
    first = dict(at.query_params)
    ran(at.selectbox(key="layer.box").set_value(4).run())
    ran(at.selectbox(key="measure.en").set_value("cls").run())
    assert sent(at, "grid")["chosen"] == [4, 2]
    go_back(at, **first)
    assert sent(at, "grid")["chosen"] == [1, 2]
    assert sent(at, "grid")["label"] == "entropy, share of maximum"


def test_back_on_another_page_keeps_the_thresholds():
    at = open_heads(SMALL, rules="C35")
    at.switch_page(ATTENTION)
    ran(at.run())
    first = dict(at.query_params)
    ran(at.selectbox(key="layer.box").set_value(4).run())
    go_back(at, **first)
    at.switch_page(HEADS)
    assert ran(at.run()).query_params.get("rules") == "C35"


def test_back_never_leaves_texts_of_ones_own():
    at = open_heads(SMALL, layer="1", head="2")
    first = dict(at.query_params)
    ran(at.selectbox(key="layer.box").set_value(4).run())
    go_back(at, **first)
    assert sent(at, "grid")["chosen"] == [1, 2]
    assert at.session_state["texts"] == "own"
    assert f"on {len(SMALL)} texts" in said(at)


# Files


@pytest.fixture
def files(monkeypatch):
    """Return a function that opens the page and returns the builders of its files by their names."""

    def offer(*texts: tuple[Text, ...], **link: str) -> dict:
        built = {}

        def button(suffix: str, data: object, name: str) -> None:
            built[name + suffix] = data

        monkeypatch.setattr(head_tables, "file_button", button)
        open_heads(*texts, **link)
        return {name: data() for name, data in built.items()}

    return offer


def test_every_file_can_be_read_back(files):
    built = files(SMALL, panel="map", layer="2", head="7")
    base = "heads-bundled-pasted"
    assert sorted(built) == sorted(
        [f"{base}.csv", f"{base}.parquet", f"{base}-distances.csv", f"{base}.html"]
    )
    whole = found(SMALL)
    wanted = whole.frame()
    for table in (
        pd.read_csv(io.BytesIO(built[f"{base}.csv"])),
        pd.read_parquet(io.BytesIO(built[f"{base}.parquet"])),
    ):
        assert table.columns[:3].tolist() == ["layer", "head", "role"]
        assert table["role"].tolist() == roles(whole).ravel().tolist()
        measures = [f"{name}{end}" for name in MEASURES for end in ("", "_low", "_high")]
        assert table.columns[3:].tolist() == measures
        for name in ("layer", "head", *measures):
            np.testing.assert_allclose(table[name], wanted[name], rtol=1e-6, atol=1e-9)
    pairs = pd.read_csv(io.BytesIO(built[f"{base}-distances.csv"]))
    assert len(pairs) == 72 * 71 // 2
    one, other = pairs["layer_a"] * 12 + pairs["head_a"], pairs["layer_b"] * 12 + pairs["head_b"]
    for name in ("distance", "low", "high"):
        table = getattr(apart(SMALL), "mean" if name == "distance" else name)
        np.testing.assert_allclose(pairs[name], table[one, other], atol=1e-9)


@pytest.mark.parametrize("panel", keys.PANEL.options)
def test_the_html_of_a_picture_needs_no_network(panel, files):
    page = files(SMALL, panel=panel)["heads-bundled-pasted.html"].decode("utf-8")
    assert len(re.findall(r"plotly\.js v\d", page)) == 1
    assert len(re.findall(r"Plotly\.newPlot\(", page)) >= 1
    assert not re.search(r"""(src|href)\s*=\s*["']?\s*(https?:)?//""", page[:2000] + page[-200_000:])
    parsed = Page()
    parsed.feed(page)
    assert [tag for tag, attrs in parsed.elements if tag in ("link", "iframe", "img") or "src" in attrs] == []
    assert parsed.words.startswith("heads-bundled-pasted")
    assert '"showSendToCloud": false' in page


def test_thresholds_are_in_the_files(files):
    built = files(SMALL, rules="C35")
    moved = [replace(rule, threshold=0.35) if rule.letter == "C" else rule for rule in RULES]
    table = pd.read_csv(io.BytesIO(built["heads-bundled-pasted.csv"]))
    assert table["role"].tolist() == roles(found(SMALL), moved).ravel().tolist()


def test_without_a_picture_there_is_no_html(files):
    built = files(SMALL, panel="layers", measure="induction", model="toy")
    assert [name for name in built if name.endswith(".html")] == []


# Links


def test_a_link_opens_its_choices():
    asked = {
        "texts": "indonesian",
        "measure": "distance",
        "cells": "numbers",
        "panel": "layers",
        "layer": "4",
        "head": "8",
    }
    at = open_heads(**asked)
    whole = found(INDONESIAN)
    assert f"on {len(INDONESIAN)} texts ({whole.queries:,} tokens)" in said(at)
    np.testing.assert_allclose(grid_values(at), whole.table("distance"), atol=5.1e-4)
    assert sent(at, "grid")["chosen"] == [4, 8]
    np.testing.assert_allclose(
        numbers_of(spec(at)["data"][0]["y"]), whole.table("distance").ravel(), atol=1e-5
    )
    assert dict(at.query_params) == asked


@pytest.mark.parametrize(
    "link",
    [
        {"measure": "x", "cells": "", "panel": "<b>", "texts": "french", "weighting": "0"},
        {"texts": "own"},
        {"layer": "99", "head": "-1"},
        {"query": "7", "key": "x", "example": "99"},
    ],
    ids=str,
)
def test_a_bad_link_falls_back(link):
    at = open_heads(**link)
    assert f"on {len(ENGLISH)} texts" in said(at)
    for name in ("measure", "cells", "panel", "texts", "weighting", "query", "key", "example"):
        assert name not in at.query_params
    assert sent(at, "grid")["label"] == "entropy, share of maximum"


# Texts of one's own


def test_pasted_lines_are_measured_as_texts_and_pairs():
    at = open_heads(SINGLES)
    typed = "\n\n  The cat sat on the mat.  \n\t\nIs it late?\tIt is late.\n a \t \n\t b\nx\ty\tz\n"
    paste(at, typed)
    texts = ("The cat sat on the mat.", ("Is it late?", "It is late."), "a", "b", ("x", "y\tz"))
    assert at.session_state["texts.own"].texts == texts
    assert f"on 5 texts ({found(texts).queries:,} tokens)" in said(at)
    np.testing.assert_allclose(grid_values(at), found(texts).table("entropy_normalised"), atol=5.1e-4)
    box = at.selectbox(key="texts.en")
    assert (box.value, box.options) == (
        "own",
        [
            f"{len(ENGLISH)} English texts (shipped)",
            f"{len(INDONESIAN)} Indonesian texts (shipped)",
            "pasted (5 texts)",
        ],
    )
    ran(box.set_value("english").run())
    assert f"on {len(ENGLISH)} texts" in said(settled(at))
    ran(at.selectbox(key="texts.en").set_value("own").run())
    assert "on 5 texts" in said(at)


@pytest.mark.parametrize("typed", ["", "  \n\t\n  ", "\u2028\r\n"])
def test_nothing_pasted_is_one_sentence(typed):
    at = open_heads(SMALL)
    paste(at, typed)
    assert [error.value.replace("\\", "") for error in at.error] == [
        "The box holds no texts. Give one sentence a line at least."
    ]
    assert f"on {len(SMALL)} texts" in said(at)  # what was there stays
    paste(at, "A new text.")
    assert len(at.error) == 0
    assert "on 1 texts" in said(at)


def test_texts_without_tokens_are_one_sentence():
    at = open_heads(SMALL)
    paste(at, "\u200b\n\u200b")
    assert [error.value for error in at.error] == [
        "There is nothing to read in these texts. Give one sentence a line at least."
    ]
    assert "again.statistics.bundled" in there(at)
    paste(at, "A cat.")
    assert len(at.error) == 0
    assert "on 1 texts" in said(at)


def test_odd_texts_are_measured():
    texts = ("😀 你好 مرحبا", "[SEP] [MASK]", "a" * 300, "word " * 90, "\u200b", "?!…", "<s> %{x} {0}")
    at = open_heads(texts)
    assert f"on 6 texts ({found(texts).queries:,} tokens)" in said(at)
    for panel in keys.PANEL.options:
        put(at, panel=panel)
    put(at, **{"heads.table": True, "heads.rules": True})


def test_a_single_text_of_one_word():
    at = open_heads(("cat",))
    assert "on 1 texts (3 tokens)" in said(at)
    for specials in keys.SPECIALS.options:
        settled(put(at, specials=specials, panel="matrix"))
        np.testing.assert_allclose(
            grid_values(at), found(("cat",), specials).table("entropy_normalised"), atol=5.1e-4
        )


def test_own_texts_never_enter_the_link():
    at = open_heads(SINGLES)
    paste(at, "Privat zqxj vwkz.\tGeheim qqxx.")

    def check() -> None:
        link = " ".join(f"{name}={value}" for name, value in at.query_params.items()).lower()
        assert not [secret for secret in ("privat", "zqxj", "geheim", "own", "pasted") if secret in link]
        assert not {"texts", "text", "pair"} & set(at.query_params)

    check()
    for panel in keys.PANEL.options:
        put(at, panel=panel, measure="cls", rules={"P": 0.6}, **{"heads.table": True})
        check()
    ran(at.button(key="heads.text.0.1").click().run())
    assert at.session_state["text"] == "Privat zqxj vwkz."
    check()


# Files of one's own


def upload(at: AppTest, name: str, data: bytes, columns: list[str] | None = None) -> AppTest:
    """Choose a file, its columns where it is a table, and press the button if there is one."""
    if group(at, "texts.kind.en").value != "file":
        ran(group(at, "texts.kind.en").set_value("file").run())
    at.file_uploader(key="texts.file").set_value((name, data, "application/octet-stream"))
    ran(at.run())
    if columns is not None:
        at.multiselect(key="texts.columns").set_value(columns)
        ran(at.run())
    if "texts.file.use" in there(at):
        at.button(key="texts.file.use").click()
        ran(at.run())
    return settled(at)


FRAME = pd.DataFrame(
    {
        "id": [1, 2, 3, 4],
        "first": ["Is it late?", "She sang.", "", "He ran, and she sang."],
        "second": ["It is late.", "Then nobody spoke.", "left out", "Nobody ran."],
    }
)
PAIRS = (
    ("Is it late?", "It is late."),
    ("She sang.", "Then nobody spoke."),
    ("He ran, and she sang.", "Nobody ran."),
)


def packed(suffix: str) -> bytes:
    buffer = io.BytesIO()
    if suffix == ".csv":
        return FRAME.to_csv(index=False).encode("utf-8-sig")
    if suffix == ".tsv":
        return FRAME.to_csv(index=False, sep="\t").encode()
    if suffix == ".jsonl":
        return FRAME.to_json(orient="records", lines=True).encode()
    FRAME.to_parquet(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_the_columns_of_a_table_are_chosen(suffix):
    at = open_heads(SMALL)
    upload(at, f"my table{suffix}", packed(suffix))
    assert at.multiselect(key="texts.columns").options == ["id", "first", "second"]
    assert "texts.file.use" not in there(at)  # no column, nothing to use
    assert f"on {len(SMALL)} texts" in said(at)
    upload(at, f"my table{suffix}", packed(suffix), ["first", "second"])
    own = at.session_state["texts.own"]
    assert (own.name, own.texts) == (f"my table{suffix}", PAIRS)
    assert f"on 3 texts ({found(PAIRS).queries:,} tokens)" in said(at)
    np.testing.assert_allclose(grid_values(at), found(PAIRS).table("entropy_normalised"), atol=5.1e-4)
    assert dict(at.query_params) == {}


def test_a_text_file_is_read_by_its_lines():
    at = open_heads(SINGLES)
    upload(at, "notes.TXT", "\ufeffThe cat sat.\r\n\r\n  It left.  \n".encode())
    assert at.session_state["texts.own"].texts == ("The cat sat.", "It left.")
    assert "on 2 texts" in said(at)


def test_one_file_after_another():
    at = upload(open_heads(SINGLES), "a.csv", packed(".csv"), ["first"])
    assert len(at.session_state["texts.own"].texts) == 3
    upload(at, "b.csv", b"words,n\nA cat sat.,1\n")
    assert at.multiselect(key="texts.columns").options == ["words", "n"]
    assert at.multiselect(key="texts.columns").value == []
    upload(at, "b.csv", b"words,n\nA cat sat.,1\n", ["words"])
    assert at.session_state["texts.own"].texts == ("A cat sat.",)


NO_FILES = {
    "binary.txt": (b"\x89PNG\r\n\x1a\n\xff\xfe", "is not a text file in UTF-8"),
    "nul.txt": (b"a\0b", "it holds NUL bytes"),
    "empty.txt": (b"", "holds no texts"),
    "blank.txt": (b" \n\t\n", "holds no texts"),
    "binary.csv": (b"\x89PNG\r\n\x1a\n\xff\xfe", "cannot be read as CSV"),
    "binary.tsv": (b"\x89PNG\r\n\x1a\n\xff\xfe", "cannot be read as TSV"),
    "broken.jsonl": (b"{not json", "cannot be read as JSONL"),
    "binary.parquet": (b"PAR1 no", "cannot be read as PARQUET"),
    "empty.parquet": (b"", "cannot be read as PARQUET"),
}


def check_no_texts(at: AppTest, name: str, data: bytes, reason: str) -> None:
    upload(at, name, data)
    assert len(at.error) == 1
    error = at.error[0].value.replace("\\", "")
    assert name in error
    assert reason in error
    assert "\n" not in error
    assert "Traceback" not in error
    assert f"on {len(SMALL)} texts" in said(at)


def test_a_file_that_holds_no_texts_is_one_sentence():
    at = open_heads(SMALL)
    for name, (data, reason) in sorted(NO_FILES.items(), key=lambda item: item[0].endswith(".txt")):
        check_no_texts(at, name, data, reason)
    upload(at, "good.txt", b"A cat.")
    assert len(at.error) == 0
    assert "on 1 texts" in said(at)


def test_the_error_of_a_file_goes_with_the_file():
    at = open_heads(SMALL)
    check_no_texts(at, "binary.txt", *NO_FILES["binary.txt"])
    at.file_uploader(key="texts.file").set_value(("good.csv", packed(".csv"), "text/csv"))
    ran(at.run())
    assert at.multiselect(key="texts.columns").options == ["id", "first", "second"]
    assert len(at.error) == 0


@pytest.mark.parametrize("name", ["empty.csv", "empty.tsv", "empty.jsonl"])
def test_an_empty_table_is_one_sentence(name):
    check_no_texts(open_heads(SMALL), name, b"", "holds no")


def test_a_column_with_nothing_in_it_is_one_sentence():
    at = upload(open_heads(SMALL), "a.csv", b"text,n\n,1\n  ,2\n", ["text"])
    assert "a.csv holds no texts" in at.error[0].value.replace("\\", "")
    assert f"on {len(SMALL)} texts" in said(at)


# The hub


def fetch(at: AppTest, path: str, columns: str = "") -> AppTest:
    if group(at, "texts.kind.en").value != "hub":
        ran(group(at, "texts.kind.en").set_value("hub").run())
    at.text_input(key="texts.hub").set_value(path)
    at.text_input(key="texts.hub.columns").set_value(columns)
    at.button(key="texts.hub.use").click()
    return settled(ran(at.run()))


NOT_THERE = {
    "nobody/none/file.parquet": "cannot be fetched",
    "hf://datasets/nobody/none/file.csv": "cannot be fetched",
    "": "hf://datasets/",
    "/etc/hostname": "/etc/hostname",
    "file:///etc/hostname": "is no file of the hub",
    "https://example.org/a.csv": "is no file of the hub",
}


def test_a_file_of_the_hub_that_is_not_there_is_one_sentence():
    at = open_heads(SMALL)
    for path, reason in NOT_THERE.items():
        fetch(at, path, "text")
        assert len(at.error) == 1
        error = at.error[0].value.replace("\\", "")
        assert reason in error
        assert "\n" not in error
        assert f"on {len(SMALL)} texts" in said(at)
        assert dict(at.query_params) == {}


def test_a_file_of_the_hub_is_measured(monkeypatch):
    asked = []

    def read(path: str) -> bytes:
        asked.append(path)
        return packed(".parquet")

    monkeypatch.setattr("analysis.texts.read_file", read)
    at = fetch(open_heads(SMALL), " owner/name/file.parquet ", " first , second ")
    assert asked == ["hf://datasets/owner/name/file.parquet"]
    own = at.session_state["texts.own"]
    assert (own.name, own.texts) == ("owner/name/file.parquet", PAIRS)
    fetch(at, "owner/name/file.parquet", "third")
    assert "third is not among them" in at.error[0].value.replace("\\", "")
    assert at.session_state["texts.own"] is own


# Other models


def test_the_toy():
    at = open_heads(SMALL, model="toy")
    whole = found(SMALL, model="toy")
    assert grid_letters(at) == letters_of(roles(whole))
    np.testing.assert_allclose(grid_values(at), whole.table("entropy_normalised"), atol=5.1e-4)
    assert at.query_params["model"] == "toy"
    for panel in keys.PANEL.options:
        put(at, panel=panel)
        assert len(at.get("plotly_chart")) == 1
    put(at, **{"heads.table": True, "heads.rules": True})
    assert len(at.dataframe[0].value) == 8


@pytest.mark.parametrize(("layers", "heads"), [(2, 4), (1, 1)])
def test_a_model_of_any_size(layers, heads, tmp_path):
    folder = str(
        save_tiny(
            tmp_path / "tiny", num_hidden_layers=layers, num_attention_heads=heads, hidden_size=8 * heads
        )
    )
    at = open_heads(SMALL, layer="5", head="11", panel="layers")
    settled(open_other(at, folder))
    whole = found(SMALL, model=folder)
    assert f"of {layers * heads} heads" in said(at)
    assert grid_letters(at) == letters_of(roles(whole))
    np.testing.assert_allclose(grid_values(at), whole.table("entropy_normalised"), atol=5.1e-4)
    head = Head(min(5, layers - 1), min(11, heads - 1))
    assert sent(at, "grid")["chosen"] == [head.layer, head.index]
    for panel in keys.PANEL.options:
        put(at, panel=panel, cells="numbers", **{"heads.table": True, "heads.rules": True})
        assert len(at.get("plotly_chart")) == 1
    put(at, panel="head")
    assert head_line(at).startswith(f"**{head}**: ")
    assert ("Nearest twin: there is no other head." in said(at)) == (layers * heads == 1)
    assert at.query_params["model"] == folder
    ran(at.selectbox(key="model.box.en").set_value("bundled").run())
    assert f"on {len(SMALL)} texts" in said(settled(at))
    assert len(sent(at, "grid")["cells"]) == 6


def test_a_broken_model_leaves_the_page_as_it_was(tmp_path):
    at = open_heads(SMALL)
    settled(open_other(at, str(tmp_path)))
    assert len(at.error) == 1
    np.testing.assert_allclose(grid_values(at), found(SMALL).table("entropy_normalised"), atol=5.1e-4)


# While it is being measured


@pytest.fixture
def slow(monkeypatch):
    """Measuring that stops after 3 texts until it is let through; ``error`` is then raised, where there is one."""

    class Slow:
        begun, opened = threading.Event(), threading.Event()
        error: Exception | None = None
        runs = 0

        @classmethod
        def summarise(
            cls, source: object, texts: object, *, on_progress: object, **options: object
        ) -> object:
            cls.runs += 1
            on_progress(3)
            cls.begun.set()
            assert cls.opened.wait(WAIT)
            if cls.error is not None:
                raise cls.error
            on_progress(4)
            return quick(source, texts, on_progress=on_progress, **options)

    monkeypatch.setattr(analysis.collection, "summarise", Slow.summarise)
    yield Slow
    Slow.opened.set()
    finish()


def bars(at: AppTest) -> list[str]:
    return [bar.proto.text for bar in at.get("progress")]


def test_the_page_says_what_is_under_way(slow):
    texts = (*SINGLES, "Under way.")
    at = start(texts)
    assert slow.begun.wait(WAIT)
    ran(at.run())
    assert "Not there yet: it is being measured." in said(at)
    assert sent(at, "grid")["label"] == "Measuring …"
    assert (len(sent(at, "grid")["cells"]), len(sent(at, "grid")["cells"][0])) == (6, 12)
    (bar,) = bars(at)
    assert bar.startswith("Measuring every head on 7 texts: 3 of 7")
    assert "job.cancel" in there(at)
    assert "clear role" not in said(at)
    slow.opened.set()
    settled(at)
    assert "on 7 texts" in said(at)
    assert bars(at) == []
    assert slow.runs == 1


def test_what_was_cancelled_says_so_and_can_be_measured_again(slow):
    texts = (*SINGLES, "Cancelled once.")
    at = start(texts)
    assert slow.begun.wait(WAIT)
    ran(ran(at.run()).button(key="job.cancel").click().run())
    slow.opened.set()
    settled(at)
    assert [info.value for info in at.info] == ["Cancelled after 4 of 7. Nothing was kept."]
    assert "clear role" not in said(at)
    assert "Not there yet" not in said(at)
    ran(at.run())
    assert slow.runs == 1  # nobody starts it unasked
    ran(at.button(key="again.statistics.bundled").click().run())
    settled(at)
    assert slow.runs == 2
    np.testing.assert_allclose(grid_values(at), found(texts).table("entropy_normalised"), atol=5.1e-4)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (HeadroomError("{given} is *too much*.", given="a_b"), "a\\_b is *too much*."),
        (ValueError("secret"), "This did not work (ValueError). The server's log has the details."),
    ],
)
def test_what_failed_says_why_and_can_be_measured_again(slow, error, sentence):
    texts = (*SINGLES, f"Failed once: {type(error).__name__}.")
    slow.error = error
    slow.opened.set()
    at = settled(start(texts))
    assert [e.value for e in at.error] == [sentence]
    assert "secret" not in said(at)
    other = settled(start(SMALL))  # the next job runs
    assert f"on {len(SMALL)} texts" in said(other)
    slow.error = None
    ran(at.button(key="again.statistics.bundled").click().run())
    settled(at)
    assert len(at.error) == 0
    assert "on 7 texts" in said(at)


def test_texts_changed_while_others_are_measured(slow):
    first, second = (*SINGLES, "The first collection."), (*SINGLES, "Another collection.", "Longer.")
    at = start(first)
    assert slow.begun.wait(WAIT)
    at.session_state["texts.own"] = corpus("pasted", list(second))
    ran(at.run())
    assert "Not there yet: it is being measured." in said(at)
    (bar,) = bars(at)
    assert bar.startswith("Measuring every head on 7 texts: 3 of 7")
    assert "then: Measuring every head on 8 texts" in said(at)
    slow.opened.set()
    settled(at)
    assert "on 8 texts" in said(at)
    np.testing.assert_allclose(grid_values(at), found(second).table("entropy_normalised"), atol=5.1e-4)
    at.session_state["texts.own"] = corpus("pasted", list(first))
    ran(at.run())
    assert "on 7 texts" in said(at)  # both were kept
    assert slow.runs == 2


def test_shipped_texts_can_be_looked_at_while_own_ones_are_measured(slow):
    at = start((*SINGLES, "Long, very long."))
    assert slow.begun.wait(WAIT)
    at.session_state["texts.own"] = corpus("pasted", list(SMALL))
    assert f"on {len(SMALL)} texts" in said(ran(at.run()))
    assert len(bars(at)) == 1
    at.switch_page(ATTENTION)
    assert len(bars(ran(at.run()))) == 1  # told on every page


def test_another_session_shares_the_result(slow):
    texts = (*SINGLES, "Shared.")
    first = start(texts)
    assert slow.begun.wait(WAIT)
    second = start(texts)
    assert len(bars(second)) == 1
    slow.opened.set()
    for at in (settled(first), settled(second)):
        assert "on 7 texts" in said(at)
    assert slow.runs == 1


def test_distances_that_were_cancelled_can_be_measured_again(monkeypatch):
    def stop(*_given: object, **_options: object) -> None:
        raise jobs.Cancelled

    texts = (*SINGLES, "Without distances.")
    with monkeypatch.context() as patch:
        patch.setattr("analysis.distance.distances", stop)
        at = open_heads(texts)
        assert "Nearest twin: not measured yet." in said(at)
        put(at, panel="map")
        assert "Cancelled after 0 of 7. Nothing was kept." in at.info[0].value
        assert len(at.get("plotly_chart")) == 0
    ran(at.button(key="again.distances.bundled").click().run())
    settled(at)
    points, _stress = place(apart(texts))
    np.testing.assert_allclose(numbers_of(spec(at)["data"][0]["x"]), points[:, 0], atol=1e-6)
