"""What only a browser shows: clicks, keys, links, two tabs at once, and what leaves the machine."""

from __future__ import annotations

import re

import pytest

from analysis.capture import capture
from dashboard.downloads import to_html
from dashboard.figures import head_map
from tests import tiny
from tests.dashboard.driver import serious

pytestmark = pytest.mark.browser

# Streamlit's own findings in a navigation with sections.


def cell(tab, layer, head):
    return tab.page.get_by_role("gridcell").nth(layer * 12 + head)


def word(tab, label, which=0):
    return tab.page.get_by_role("option").filter(has_text=re.compile(f"^{re.escape(label)}$")).nth(which)


def eventually(tab, read, wanted):
    """Wait until ``read()`` is ``wanted``: parts of a page arrive one after another."""
    for _attempt in range(150):
        if read() == wanted:
            return
        tab.page.wait_for_timeout(100)
    assert read() == wanted


def is_chosen(tab, item):
    """Wait until a cell or a word is the chosen one."""
    eventually(tab, lambda: item.get_attribute("aria-selected"), "true")


def grid_titles(tab):
    """Return what every cell of the grid says, its numbers among it."""
    return [item.get_attribute("aria-label") for item in tab.page.get_by_role("gridcell").all()]


def word_labels(tab):
    """Return the labels of the words that can be made the query, of the open list boxes none."""
    return tab.page.get_by_label("Words: choose the query").get_by_role("option").all_inner_texts()


def map_ticks(tab, axis):
    return tab.page.locator(f".js-plotly-plot .{axis}tick text").all_text_contents()


def write(tab, sentence):
    box = tab.page.get_by_role("textbox", name="Sentence", exact=True)
    box.fill(sentence)
    box.press("Enter")


def test_a_newcomer_sees_which_head_links_it_to_animal(tabs):
    tab = tabs().shows("Which head links it to animal? Most: L3·H1 0.68")
    assert tab.page.get_by_role("gridcell").count() == 72
    is_chosen(tab, cell(tab, 3, 1))
    assert "0.677" in cell(tab, 3, 1).get_attribute("aria-label")
    tab.page.wait_for_selector(".js-plotly-plot .heatmaplayer image")
    assert len(map_ticks(tab, "x")) == len(map_ticks(tab, "y")) == 14
    assert tab.page.locator('[aria-label^="Attention map of L3·H1"]').count() == 1


def test_home_leads_to_a_head_of_the_attention_page(tabs):
    tab = tabs("").shows("Most of all L3·H1")
    cell(tab, 0, 2).click()
    tab.shows("L0·H2 looks at the previous word for 9 of 10 words")
    tab.page.wait_for_url(re.compile(r"layer=0.*head=2|head=2.*layer=0"))


def test_a_click_and_the_arrow_keys_choose_a_head_and_a_reload_keeps_it(tabs):
    tab = tabs().shows("L3·H1")
    cell(tab, 0, 2).click()
    tab.shows("L0·H2 looks at the previous word")
    tab.page.keyboard.press("ArrowDown")
    tab.shows("L1·H2 ")
    tab.page.keyboard.press("ArrowRight")
    tab.shows("L1·H3 ")
    assert tab.page.evaluate("() => { let e = document.activeElement; "
                             "while (e.shadowRoot) e = e.shadowRoot.activeElement; "
                             "return e.getAttribute('role') }") == "gridcell"  # fmt: skip
    tab.page.wait_for_url(re.compile(r"layer=1.*head=3|head=3.*layer=1"))
    tab.page.reload()
    tab.settled().shows("L1·H3 ")
    is_chosen(tab, cell(tab, 1, 3))


def test_back_undoes_choices_and_then_leaves_the_page(tabs):
    tab = tabs("").shows("Most of all L3·H1")
    tab.page.get_by_role("link", name="Attention", exact=True).click()
    tab.shows("L3·H1 rests on").settled()
    for layer, head in ((0, 2), (1, 8)):
        cell(tab, layer, head).click()
        tab.shows(f"L{layer}·H{head} looks at").settled()
        tab.page.wait_for_url(re.compile(f"layer={layer}"))
    tab.page.go_back()
    tab.shows("L0·H2 looks at").settled()
    tab.page.go_back()
    tab.shows("L3·H1 rests on").settled()
    tab.page.go_back()
    tab.shows("Most of all L3·H1")


def test_a_word_becomes_the_query(tabs):
    tab = tabs().shows("query it")
    word(tab, "street").click()
    tab.shows("query street").shows("Which head links street to animal?")
    tab.page.keyboard.press("ArrowRight")
    tab.shows("query because")


def test_a_cell_of_the_map_becomes_query_and_key(tabs):
    tab = tabs().shows("query it")
    plot = tab.page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    side = plot["width"] / 14, plot["height"] / 14
    tab.page.mouse.click(plot["x"] + 5.5 * side[0], plot["y"] + 4.5 * side[1])  # cross -> the
    tab.shows("Which head links cross to the?")


def test_of_two_equal_words_the_one_clicked_is_chosen(tabs):
    tab = tabs()
    write(tab, "the cat and the dog and the bird")
    tab.page.wait_for_function("() => document.querySelectorAll('.ytick text').length === 10")
    assert map_ticks(tab, "y") == [
        "[CLS]",
        *["the", "cat", "and", "the", "dog", "and", "the", "bird"],
        "[SEP]",
    ]
    word(tab, "the", 2).click()
    tab.page.wait_for_function("() => document.querySelectorAll('.ytick text').length === 10")
    tab.shows("query the")
    is_chosen(tab, word(tab, "the", 2))
    assert word(tab, "the", 0).get_attribute("aria-selected") == "false"


def test_markup_is_shown_as_it_was_typed(tabs):
    tab = tabs()
    typed = '<s> </s> <b>x</b> &amp; </script><script>window.broken=1</script> "q" *a* $x$ `y`'
    write(tab, typed)
    tab.page.wait_for_function("() => document.querySelectorAll('.ytick text').length > 30")
    eventually(tab, lambda: "".join(word_labels(tab)), f"[CLS]{typed.replace(' ', '')}[SEP]")
    assert tab.page.evaluate("() => window.broken") is None
    ticks = map_ticks(tab, "y")
    assert ticks[1:4] == ["<", "s", ">"]
    assert ticks[ticks.index("&") : ticks.index("&") + 3] == ["&", "amp", ";"]
    assert ticks.count('"') == 2
    write(tab, "[SEP] <s> unbelievable 👍 我 سلام")
    tab.shows("The text spells out [SEP]").shows("read as [UNK]: ")
    whole = ["[CLS]", "[SEP]", "<", "s", ">", "unbelievable", "👍", "我", "سلام", "[SEP]"]
    eventually(tab, lambda: word_labels(tab), whole)


def test_two_tabs_do_not_mix_and_an_error_in_one_leaves_the_other(tabs):
    first, second = tabs("attention?layer=0&head=2"), tabs("attention?layer=5&head=11&view=beside")
    first.shows("L0·H2 looks at the previous word")
    second.shows("L5·H11 ")
    is_chosen(first, cell(first, 0, 2))
    before = grid_titles(first)
    write(second, "   ")
    second.shows("There is no text to read. Type a sentence.")
    word(first, "street").click()
    first.shows("query street")
    word(first, "it").click()
    first.shows("query it")
    eventually(first, lambda: grid_titles(first), before)
    assert "L0·H2" in first.text()
    assert "L5·H11" not in first.text()
    write(second, "It works again.")
    second.shows("L5·H11 ")


def test_a_link_opens_the_toy_but_asks_before_anything_else(tabs):
    tabs("attention?model=toy&layer=0&head=5").shows("The toy is untrained").shows("L0·H5")
    asked = tabs("attention?model=google-bert/bert-base-uncased")
    asked.shows("This link asks for the model google-bert/bert-base-uncased")
    asked.shows("Which head links it to animal? Most: L3·H1 0.68")
    asked.page.get_by_role("button", name="Open it").click()
    sidebar = asked.page.get_by_test_id("stSidebar")
    sidebar.get_by_text("is not on this machine").wait_for()
    asked.shows("Which head links it to animal? Most: L3·H1 0.68")


def test_own_text_never_enters_the_link(tabs):
    tab = tabs("attention?example=2")
    tab.shows("Which head links bank to river?")
    write(tab, "My secret sentence.")
    tab.shows("secret")
    tab.page.wait_for_function("() => !location.search.includes('example')")
    assert "secret" not in tab.page.url


@pytest.mark.parametrize("path", ["", "attention", "attention?view=heads", "attention?view=beside&example=5"])
def test_axe_finds_nothing_serious(tabs, path):
    tab = tabs(path)
    tab.page.wait_for_function("() => document.querySelectorAll('[role=gridcell]').length || true")
    assert serious(tab.settled()) == []


def test_axe_would_find_a_text_that_is_too_pale(tabs):
    tab = tabs("attention")
    tab.page.evaluate("document.querySelector('[data-testid=stMain] h3').style.color = 'rgb(150, 150, 150)'")
    assert ("light", "color-contrast") in [found[:2] for found in serious(tab)]


def test_an_export_opens_without_a_network(browser, bundled, tmp_path):
    maps = capture(bundled, "The <b>cat</b> sat.")
    from analysis.maps import Head

    page_file = tmp_path / "map.html"
    page_file.write_bytes(to_html([("L0·H2", head_map(maps.at(Head(0, 2))))], "a <model> L0·H2"))
    context = browser.new_context(offline=True)
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    page.wait_for_selector(".js-plotly-plot .heatmaplayer image")
    assert page.locator(".ytick text").all_text_contents()[1:5] == ["The", "<", "b", ">"]
    assert page.locator("h1").inner_text() == "a <model> L0·H2"
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    context.close()


def test_512_tokens_in_144_heads_stay_light(tabs, tmp_path):
    folder = tiny.save_tiny(
        tmp_path / "large",
        num_hidden_layers=12,
        num_attention_heads=12,
        hidden_size=48,
        max_position_embeddings=512,
    )
    tab = tabs()
    tab.page.get_by_test_id("stSidebar").get_by_role("combobox", name="Model").click()
    tab.page.get_by_role("option", name="other …").click()
    tab.page.get_by_role("textbox", name="Hub id or folder").fill(str(folder))
    tab.page.get_by_role("button", name="Open the model").click()
    tab.page.wait_for_function("() => document.querySelectorAll('.stApp').length")
    tab.page.get_by_text("12 × 12 heads").wait_for()
    write(tab, "the cat sat on the mat " * 100)
    tab.shows("Cut to the 512 tokens")
    for view in ("all heads", "map"):
        tab.page.get_by_text(view, exact=True).first.click()
        tab.settled()
        before = sum(tab.received)
        cell(tab, 5, 7).click()
        tab.shows("L5·H7")
        cell(tab, 2, 3).click()
        tab.shows("L2·H3").settled()
        assert sum(tab.received) - before < 2 * 4_000_000
    assert max(tab.received) < 10_000_000
