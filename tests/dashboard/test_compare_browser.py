"""Lines, why and Compare in a real browser: clicks, keys, links, Back, and what leaves the machine."""

from __future__ import annotations

import re

import pytest

from analysis.capture import capture
from analysis.compare import align, changes
from analysis.lenses import head_vectors, scores
from analysis.maps import Head, in_units
from dashboard.examples import EXAMPLES
from dashboard.naming import number
from tests.dashboard.driver import serious
from tests.dashboard.test_browser import cell, eventually, grid_titles, is_chosen

pytestmark = pytest.mark.browser

TEXT = EXAMPLES[0].text


def lines_of(tab):
    return tab.page.get_by_label("Queries: choose one or several")


def query(tab, at):
    return lines_of(tab).get_by_role("option").nth(at)


def chosen_queries(tab):
    return (
        lines_of(tab)
        .get_by_role("option")
        .evaluate_all(
            "all => all.flatMap((one, at) => (one.getAttribute('aria-selected') === 'true' ? [at] : []))"
        )
    )


def sums_at_the_keys(tab):
    return tab.page.locator(".keys .number").all_inner_texts()


def picked(tab, name):
    """Choose an option of a control by its name."""
    tab.page.get_by_test_id("stMain").get_by_role("radio", name=name, exact=True).click()


def map_name(tab):
    """Return what the map says it is."""
    return tab.page.locator('[aria-label*="ttention map"]').last.get_attribute("aria-label")


def side(tab, name, sentence):
    box = tab.page.get_by_role("textbox", name=name, exact=True)
    box.fill(sentence)
    box.press("Enter")


def test_queries_and_heads_are_summed_at_the_keys(tabs, bundled):
    weights = in_units(capture(bundled, TEXT), "words").weights

    def sums(queries, *heads):
        total = sum(weights[layer, head][queries].sum(axis=0) for layer, head in heads)
        return [f"{value:.2f}" for value in total]

    def shows(queries, *heads):
        eventually(tab, lambda: chosen_queries(tab), queries)
        eventually(tab, lambda: [close(sums_at_the_keys(tab), sums(queries, *heads))], [True])

    tab = tabs("attention?view=lines")
    shows([8], (3, 1))
    query(tab, 6).click()
    shows([6], (3, 1))
    tab.shows("query street")
    query(tab, 2).click(modifiers=["Control"])
    shows([2, 6], (3, 1))
    tab.settled().shows("query street")  # the query of the page stays
    tab.page.keyboard.press("Shift+ArrowDown")
    shows([2, 3, 6], (3, 1))
    tab.settled()
    for name in ("L5·H11", "L0·H2"):
        box = tab.page.get_by_role("combobox", name="Further heads")
        box.fill(name)
        tab.page.get_by_role("option", name=name, exact=True).click()
        eventually(tab, lambda name=name: name in tab.page.locator(".legend .name").all_inner_texts(), True)
        box.press("Escape")
        tab.settled()
    shows([2, 3, 6], (3, 1), (5, 11), (0, 2))
    tab.page.wait_for_url(re.compile(r"with=5\.11(%2C|,)0\.2"))
    tab.page.reload()
    tab.settled()
    shows([6], (3, 1), (5, 11), (0, 2))  # the heads and the query are in the link
    assert tab.page.locator(".legend .name").all_inner_texts() == ["L3·H1", "L5·H11", "L0·H2"]


def close(shown, wanted):
    """Whether sums read alike; the last digit may be rounded either way."""
    pairs = zip(shown, wanted, strict=False)
    return len(shown) == len(wanted) and all(abs(float(a) - float(b)) < 0.0101 for a, b in pairs)


def test_why_follows_the_key(tabs, bundled):
    row = scores(head_vectors(bundled, TEXT, None, Head(3, 1)))
    labels = list(capture(bundled, TEXT).queries.labels)
    tab = tabs("attention")
    picked(tab, "why")
    tab.shows(f"it → animal: score {number(row[labels.index('it'), labels.index('animal')])}, the sum of 32")
    bars = tab.page.locator(".js-plotly-plot .bars .point path")
    bars.first.wait_for(state="attached")
    assert bars.count() == 32
    before = bars.evaluate_all("all => all.map(bar => bar.getAttribute('d'))")
    tab.page.get_by_role("combobox", name=re.compile("^Key|Key \\(looked at\\)")).click()
    tab.page.get_by_role("option", name=re.compile("street$")).last.click()
    tab.shows(f"it → street: score {number(row[labels.index('it'), labels.index('street')])}, the sum of 32")
    eventually(tab, lambda: bars.evaluate_all("all => all.map(bar => bar.getAttribute('d'))") != before, True)
    tab.page.wait_for_url(re.compile("view=why"))


def test_own_sentences_are_laid_over_each_other(tabs, bundled):
    tab = tabs("compare").shows("Which head changes most? L5·H9")
    side(tab, "First sentence", "Zqxj sat on the mat.")
    tab.shows("only in first")
    side(tab, "Second sentence", "Zqxj sat under the mat.")
    tab.shows("only in first: on").shows("only in second: under")
    first, second = (
        in_units(capture(bundled, text), "words")
        for text in ("Zqxj sat on the mat.", "Zqxj sat under the mat.")
    )
    values = changes(first, second, align(first.queries, second.queries))
    best = Head(*divmod(int(values.argmax()), 12))
    tab.shows(f"Which head changes most? {best}, {number(float(values.max()))} bits").settled()
    eventually(tab, lambda: f"{values[0, 2]:.3f}" in grid_titles(tab)[2], True)
    cell(tab, 0, 2).click()
    eventually(tab, lambda: "L0·H2" in map_name(tab), True)
    is_chosen(tab, cell(tab, 0, 2))
    tab.settled()
    tab.page.keyboard.press("ArrowDown")
    eventually(tab, lambda: "L1·H2" in map_name(tab), True)
    tab.page.wait_for_url(re.compile(r"layer=1.*head=2|head=2.*layer=1"))
    ticks = tab.page.locator(".js-plotly-plot .ytick text").all_text_contents()
    assert ticks == ["[CLS]", "Zqxj", "sat", "on", "under", "the", "mat", ".", "[SEP]"]
    assert not re.search("zqxj|minimal", tab.page.url, re.IGNORECASE)
    picked(tab, "first")
    eventually(tab, lambda: map_name(tab), "Attention map of L1·H2.")


def measured(tab):
    """Wait until the page is drawn and nothing is measured any more."""
    tab.page.wait_for_selector(".st-key-jobs", state="detached")
    tab.settled()


def test_the_modes_change_and_back_undoes_it(tabs):
    tab = tabs("compare?model=toy").shows("Which head changes most?")
    modes = (
        ("one sentence, two models", "only in all-MiniLM-L6-v2", "sources"),
        ("two heads", "Own texts", "heads"),
        ("two models", "Second model", "models"),
    )
    for name, sentence, link in modes:
        picked(tab, name)
        tab.shows(sentence).page.wait_for_url(re.compile(f"compare={link}"))
        measured(tab)
    for _name, sentence, link in modes[1::-1]:
        tab.page.go_back()
        tab.shows(sentence).page.wait_for_url(re.compile(f"compare={link}"))
        measured(tab)
    tab.page.go_back()
    tab.shows("Which head changes most?").settled()
    assert "compare=" not in tab.page.url
    tab.page.get_by_role("radio", name="two sentences", exact=True).focus()
    tab.page.keyboard.press("ArrowRight")
    tab.page.keyboard.press("Space")
    tab.shows("only in all-MiniLM-L6-v2").settled()


def test_two_heads_over_pasted_texts(tabs):
    tab = tabs("compare?model=toy&compare=heads&texts=indonesian")
    tab.page.get_by_role("button", name="Own texts").click()
    box = tab.page.get_by_role("textbox", name=re.compile("One text a line"))
    box.fill("zqxj ran home\nthe vwkz sat\nit was too tired")
    box.press("Control+Enter")
    tab.settled()
    tab.page.get_by_role("button", name="Use these texts").click()
    tab.page.keyboard.press("Escape")
    texts = tab.page.get_by_role("combobox", name="Texts")
    eventually(
        tab, lambda: "pasted (3 texts)" in (texts.input_value() or texts.get_attribute("aria-label")), True
    )
    tab.shows("L0·H1 · ● L0·H2").shows("distance").settled()
    assert not re.search("zqxj|vwkz|own", tab.page.url)


@pytest.mark.parametrize(
    "path",
    [
        "attention?view=lines&lens=norms",
        "attention?view=lines&with=5.11",
        "attention?view=why",
        "compare",
        "compare?compare=sources",
    ],
)
def test_axe_finds_nothing_serious(tabs, path):
    tab = tabs(path)
    tab.page.wait_for_selector(".js-plotly-plot .main-svg, .query")
    assert serious(tab.settled()) == []
