"""The Heads page in a browser: what comes by itself, clicks and keys, long work that is shared and cancelled."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from analysis.findings import MEASURES
from tests.dashboard.driver import WAIT, serious
from tests.dashboard.test_browser import cell, eventually, grid_titles, is_chosen

pytestmark = pytest.mark.browser

CLEAR = "have a clear role"


def many_lines(mark: str) -> str:
    """Return a collection that takes long; each mark makes another one."""
    return "\n".join(f"{mark} {i}: the cat sat on the mat" for i in range(3000))


def arrived(tabs, path="heads"):
    """Open the page and wait for the roles, which come without a click."""
    return patient(tabs(path)).shows(CLEAR).shows("Nearest twin: L").settled()


def patient(tab):
    """Wait longer than for a page: until something has been measured, beside whatever else is."""
    tab.page.set_default_timeout(3 * WAIT)
    return tab


def own_texts(tab):
    """Open the box for texts of one's own; its button closes it where it stands open already."""
    box = tab.page.get_by_text("Your texts stay in this session")
    for _attempt in range(5):
        if not box.is_visible():
            tab.page.get_by_role("button", name="Own texts").click()
        try:
            box.wait_for(timeout=4_000)
        except PlaywrightTimeout:
            continue
        return
    box.wait_for()


def paste(tab, text):
    """Paste texts of one's own and use them."""
    own_texts(tab)
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.page.evaluate("text => navigator.clipboard.writeText(text)", text)  # typed, it would take a minute
    tab.page.get_by_role("textbox", name="One text a line").click()
    tab.page.keyboard.press("ControlOrMeta+V")
    tab.page.get_by_role("button", name="Use these texts").click()


def choose(tab, box, option):
    """Choose an option of a select box."""
    tab.page.get_by_role("combobox", name=box, exact=True).click()
    tab.page.get_by_role("option", name=option, exact=True).click()


def progress(tab):
    """Return the panel with the progress of long work."""
    return tab.page.locator(".st-key-jobs")


def test_a_newcomer_sees_the_roles_without_a_click(tabs):
    tab = arrived(tabs)
    said = tab.text()
    clear = re.search(r"(\d+) of 72 heads have a clear role on 200 texts", said)
    titles = grid_titles(tab)
    assert len(titles) == 72
    assert sum("no clear role" not in title for title in titles) == int(clear[1])
    assert all(re.search(r"L\d·H\d+: .*\d\.\d{2,4} \[\d.*, \d.*\]", title) for title in titles)
    is_chosen(tab, cell(tab, 0, 2))
    assert "L0·H2: previous token, score " in said
    assert "L0·H2 is most focused on" in said
    tab.page.wait_for_selector(".js-plotly-plot .scatterlayer .trace")
    progress(tab).wait_for(state="detached")


def test_a_click_and_the_arrow_keys_choose_a_head_and_a_reload_keeps_it(tabs):
    tab = arrived(tabs)
    cell(tab, 0, 4).click()
    tab.shows("L0·H4: ").shows("L0·H4 is most focused on")
    is_chosen(tab, cell(tab, 0, 4))
    tab.page.keyboard.press("ArrowDown")
    tab.shows("L1·H4: ")
    tab.page.keyboard.press("ArrowLeft")
    tab.shows("L1·H3: ").settled()
    choose(tab, "Colour", "weight on [CLS]")
    tab.page.get_by_role("grid", name="weight on [CLS]").wait_for()
    tab.shows(f"Colour: {MEASURES['cls']}.").settled()
    tab.page.wait_for_url(re.compile(r"(?=.*layer=1)(?=.*head=3)(?=.*measure=cls)"))
    tab.page.reload()
    tab.settled().shows("L1·H3: ").shows(CLEAR)
    is_chosen(tab, cell(tab, 1, 3))
    tab.page.get_by_role("grid", name="weight on [CLS]").wait_for()
    tab.shows(f"Colour: {MEASURES['cls']}.")


def test_back_undoes_choices(tabs):
    tab = arrived(tabs)
    for layer, head in ((2, 2), (1, 8)):
        cell(tab, layer, head).click()
        tab.shows(f"L{layer}·H{head}: ").settled()
        tab.page.wait_for_url(re.compile(f"layer={layer}"))
    tab.page.go_back()
    tab.shows("L2·H2: ").settled()
    tab.page.go_back()
    tab.shows("L0·H2: ").settled()


def test_a_dot_of_the_map_and_of_the_layers_chooses_its_head(tabs):
    tab = arrived(tabs)
    for view in ("map of heads", "layers"):
        tab.page.get_by_role("radio", name=view).click()
        cell(tab, 5, 0).click()
        is_chosen(tab, cell(tab, 5, 0))
        tab.settled()
        tab.page.locator(".js-plotly-plot .scatterlayer .trace .point").nth(7).wait_for()
        dot = tab.page.locator(".js-plotly-plot .scatterlayer .trace .point").nth(7).bounding_box()
        tab.page.mouse.click(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
        eventually(tab, lambda: cell(tab, 5, 0).get_attribute("aria-selected"), "false")
        is_chosen(tab, cell(tab, 0, 7))


def test_a_text_of_a_head_opens_the_attention_page(tabs):
    tab = arrived(tabs, "heads?layer=2&head=5")
    button = tab.page.get_by_role("button").filter(has_text=re.compile(r"0\.\d{3}$")).first
    first = button.inner_text().split(" / ")[0].split()[0].strip(".,!?")
    button.click()
    tab.page.wait_for_url(re.compile("/attention"))
    tab.shows("L2·H5 ").settled()
    assert first in tab.page.get_by_role("textbox", name="Sentence", exact=True).input_value()


def test_long_work_is_cancelled_and_the_page_lives_on(tabs):
    tab = arrived(tabs)
    paste(tab, many_lines("cancelled"))
    tab.shows("Not there yet: it is being measured.").shows("Measuring every head on 3,000 texts: ")
    tab.shows(" of 3,000 · about ")  # it moves by itself
    assert CLEAR not in tab.text()
    progress(tab).get_by_role("button", name="Cancel").click()
    tab.shows("Cancelled after ").shows("Nothing was kept.")
    progress(tab).wait_for(state="detached")
    tab.page.get_by_role("button", name="Measure again").wait_for()
    assert "cat" not in tab.page.url
    choose(tab, "Texts", "200 English texts (shipped)")
    tab.shows("on 200 texts").settled()
    cell(tab, 1, 1).click()
    tab.shows("L1·H1: ")
    choose(tab, "Texts", "pasted (3,000 texts)")
    tab.shows("Cancelled after ")
    tab.page.get_by_role("button", name="Measure again").click()
    tab.shows("Measuring every head on 3,000 texts: ")
    progress(tab).get_by_role("button", name="Cancel").click()
    tab.shows("Cancelled after ")


def test_two_tabs_share_one_job(tabs):
    first, second = arrived(tabs), arrived(tabs)
    for tab in (first, second):
        paste(tab, many_lines("shared"))
        tab.shows("Measuring every head on 3,000 texts: ")
    progress(second).get_by_role("button", name="Cancel").click()
    for tab in (first, second):
        tab.shows("Cancelled after ")
        progress(tab).wait_for(state="detached")


def test_another_tab_sees_what_was_measured(tabs):
    first = arrived(tabs, "heads?weighting=texts")
    second = patient(tabs("heads?weighting=texts")).shows(CLEAR)
    assert grid_titles(second) == grid_titles(first)
    other = arrived(tabs)
    assert grid_titles(other) != grid_titles(first)


def test_the_progress_does_not_move_the_page(tabs):
    tab, other = arrived(tabs), arrived(tabs)
    here = [cell(tab, 0, 0), cell(tab, 5, 11), tab.page.get_by_text("All heads as a table")]
    before = [item.bounding_box() for item in here]
    paste(other, many_lines("moved"))
    other.shows("Measuring every head on 3,000 texts: ")
    cell(tab, 0, 2).click()  # the chosen one again: the page is drawn anew, with the progress
    tab.shows("Measuring every head on 3,000 texts: ").settled()
    assert [item.bounding_box() for item in here] == before
    panel = progress(tab).bounding_box()
    assert panel["x"] > 700
    assert panel["y"] > 450
    progress(other).get_by_role("button", name="Cancel").click()
    progress(tab).wait_for(state="detached")
    assert [item.bounding_box() for item in here] == before
    assert CLEAR in tab.text()


def upload(tab, name, data):
    tab.page.locator('input[type="file"]').set_input_files(
        {"name": name, "mimeType": "application/octet-stream", "buffer": data}
    )


def test_files_of_ones_own(tabs):
    tab = arrived(tabs)
    own_texts(tab)
    tab.page.get_by_text("file", exact=True).click()
    upload(tab, "broken.txt", b"\x89PNG\xff\xfe")
    tab.page.get_by_role("button", name="Use these texts").click()
    tab.page.get_by_text("broken.txt is not a text file in UTF-8").wait_for()
    upload(tab, "notes.txt", b"A cat sat.\n\nIt left.\nNobody saw it.\n")
    tab.page.get_by_text("notes.txt").first.wait_for()
    tab.settled()
    tab.page.get_by_role("button", name="Use these texts").click()
    tab.shows("on 3 texts")
    eventually(tab, lambda: "not a text file" in tab.page.inner_text("body"), False)
    upload(tab, "table.csv", b"id,words\n1,A cat sat.\n2,It left.\n")
    tab.page.get_by_text("table.csv").first.wait_for()
    box = tab.page.get_by_role("combobox", name="Column of the texts (two for pairs)")
    box.click()
    tab.page.get_by_role("option", name="words").click()
    tab.page.keyboard.press("Escape")
    tab.settled()
    own_texts(tab)
    tab.page.get_by_role("button", name="Use these texts").click()
    tab.shows("on 2 texts")
    assert "table" not in tab.page.url
    assert "texts" not in tab.page.url


def test_axe_finds_nothing_serious(tabs):
    tab = patient(tabs("heads?cells=numbers")).shows("Nearest twin: L")
    tab.page.wait_for_selector(".js-plotly-plot .scatterlayer .trace")
    for box in ("All heads as a table", "The rules of the roles"):
        tab.page.get_by_text(box).click()
        tab.settled()
    tab.shows("Back to the written rules")
    assert serious(tab) == []
    for view, kind in (
        ("map of heads", "scatterlayer"),
        ("distances", "heatmaplayer"),
        ("layers", "errorbars"),
    ):
        tab.page.get_by_role("radio", name=view).click()
        tab.page.locator(f".js-plotly-plot .{kind}").first.wait_for(state="attached")
        assert serious(tab.settled(), ".stMain .stElementContainer:has(.js-plotly-plot)") == []
