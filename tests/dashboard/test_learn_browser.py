"""The Learn pages in a real browser: words and tables that are clicked, links that keep, a training that is seen."""

from __future__ import annotations

import pytest

from tests.dashboard.driver import serious
from tests.dashboard.test_browser import eventually


def written(tab):
    """Return the values in the cells of the first picture."""
    return tab.page.eval_on_selector_all(
        ".js-plotly-plot .textpoint text", "all => all.map(one => one.textContent)"
    )


def test_a_number_that_is_typed_changes_maps_and_output_and_enters_the_link(tabs):
    tab = tabs("by_hand").shows("Largest difference between the two maps: 0.171")
    before = written(tab)
    table = tab.page.locator("[data-testid=stDataFrame] canvas").first
    for _attempt in range(10):  # the table takes clicks only once it has drawn itself
        tab.page.wait_for_timeout(1_000)
        box = table.bounding_box()
        tab.page.mouse.click(box["x"] + box["width"] * 0.3, box["y"] + 35 * 3.5)
        tab.page.wait_for_timeout(300)
        tab.page.keyboard.type("3")
        tab.page.wait_for_timeout(300)
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_timeout(1_000)
        if "states=" in tab.page.url:
            break
    eventually(tab, lambda: "states=" in tab.page.url, True)
    tab.settled()
    changed = written(tab)
    assert changed != before
    link = tab.page.url
    tab.page.get_by_role("link", name="Shapes", exact=True).click()
    tab.shows("has the shape").settled()
    tab.page.get_by_role("link", name="By hand", exact=True).click()
    tab.shows("Largest difference between the two maps")
    eventually(tab, lambda: written(tab) == changed, True)  # as it was left
    tab.settled()
    tab.page.get_by_role("button", name="The example again").click()
    tab.shows("Largest difference between the two maps: 0.171")
    eventually(tab, lambda: written(tab) == before, True)
    eventually(tab, lambda: "states=" in tab.page.url, False)
    again = tabs(link.split("/", 3)[3])
    eventually(again, lambda: written(again) not in ([], before), True)


def test_words_and_arrow_keys_choose_the_query_and_a_reload_keeps_it(tabs):
    tab = tabs("six_steps?part=one").shows("Query cat looks most at cat")
    tab.page.get_by_role("option", name="mouse").click()
    tab.shows("Query mouse looks most at mouse")
    tab.page.keyboard.press("ArrowRight")
    tab.shows("Query . looks most at")
    tab.shows("This head gives punctuation less than words")  # the task is solved and explained
    eventually(tab, lambda: "word=5" in tab.page.url, True)
    tab.page.reload()
    tab.settled().shows("Query . looks most at")
    assert "word=5" in tab.page.url


def test_the_way_leads_through_the_steps_and_to_the_real_bert(tabs):
    tab = tabs("six_steps").shows("A single head, as wide as the layer")
    tab.page.get_by_role("button", name="Many heads").last.click()
    tab.shows("So the width is cut")
    tab.page.get_by_role("link", name="All heads of one layer of a real BERT").click()
    tab.page.wait_for_selector('[aria-label^="Small attention maps of"]')
    assert "/attention" in tab.page.url
    assert "view=heads" in tab.page.url


def test_a_training_is_drawn_while_it_runs_and_then_pruned(tabs):
    tab = tabs("six_steps?part=two-layers&seed=4").shows("Not trained from this seed yet.")
    tab.page.get_by_role("button", name="Train", exact=True).click()
    tab.page.wait_for_selector('[aria-label^="Loss against steps"]')
    tab.page.wait_for_selector('[aria-label^="Loss against heads removed"]', timeout=120_000)
    tab.shows("Loss with all heads")
    tab.page.get_by_role("button", name="L1·H0").click()
    tab.shows("Without L1·H0:")


def test_a_page_is_saved_as_a_file_that_draws_without_a_network(tabs, tmp_path):
    tab = tabs("by_hand").shows("Largest difference")
    tab.page.get_by_role("button", name="Save or print this page").click()
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="HTML").click()
    path = tmp_path / "page.html"
    download.value.save_as(path)
    page = tab.page.context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector(".js-plotly-plot .heatmaplayer image, .js-plotly-plot .heatmaplayer path")
    assert page.locator(".js-plotly-plot").count() == 2
    assert page.locator("h2").all_inner_texts() == [
        "Two heads, two patterns",
        "The same as a module, verified",
    ]
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()


@pytest.mark.parametrize("path", ["by_hand?part=module", "six_steps?part=mix", "variations?part=scale"])
def test_axe_finds_nothing_serious(tabs, path):
    tab = tabs(path)
    tab.page.wait_for_selector(".js-plotly-plot")
    assert serious(tab) == []


def test_the_page_fits_800_wide(tabs):
    tab = tabs("shapes", viewport={"width": 800, "height": 900}).shows("has the shape")
    wide = tab.page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
    assert wide <= tab.page.evaluate("document.querySelector('[data-testid=stMain]').clientWidth") + 1
