"""Ablate live in a browser: clicks and keys switch at once, quick ones all count, links and tabs keep apart."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlparse

import pytest

from analysis.answers import distances
from analysis.live import answer
from dashboard import switched
from dashboard.examples import EXAMPLES
from dashboard.naming import number
from tests.dashboard.driver import serious
from tests.dashboard.test_browser import eventually, is_chosen, write
from tests.dashboard.test_heads_browser import patient
from tests.dashboard.test_live_page import SHAPE, mask_of

pytestmark = pytest.mark.browser

TEXT = EXAMPLES[0].text
MARK = "cell => cell.dataset.mark"


def arrived(tabs, path="live", **options):
    """Open the page and wait for the switches."""
    tab = patient(tabs(path, **options)).shows("to switch a head off")
    return tab.settled()


def grid(tab, name):
    return tab.page.get_by_role("grid", name=re.compile(name)).get_by_role("gridcell")


def head(tab, layer, index):
    """Return the switch of one head."""
    return grid(tab, "^if only this head is off").nth(layer * 12 + index)


def are_off(tab, *heads):
    """Wait until exactly these heads are hatched, and named so, and the link says so."""

    def hatched():
        cells = grid(tab, "^if only this head is off")
        marks = cells.evaluate_all("all => all.map(cell => [cell.dataset.mark, cell.title])")
        return [
            divmod(i, 12) for i, mark in enumerate(marks) if mark[0] == "off" and mark[1].endswith(": off")
        ]

    def said():
        found = parse_qs(urlparse(tab.page.url).query).get("off", [None])
        return switched.places(switched.read(found[0], *SHAPE))

    eventually(tab, hatched, sorted(heads))
    eventually(tab, said, sorted(heads))


def says(tab, bundled, *heads):
    """Wait until the page tells what the model says with these heads off."""
    off = mask_of(*heads)
    value = distances(answer(bundled, TEXT), answer(bundled, TEXT, off=off))[0]
    tab.shows(f"0 → {number(value)}").shows(f"{len(heads)} of 72 heads off")


def test_a_click_hatches_at_once_and_changes_what_is_said(tabs, bundled):
    tab = arrived(tabs).shows("All heads are on.").shows("0 → 0")
    is_hatched = head(tab, 2, 5).evaluate("cell => { cell.click(); return cell.dataset.mark === 'off' }")
    assert is_hatched  # before any answer
    says(tab, bundled, (2, 5))
    are_off(tab, (2, 5))
    tab.shows("Where does attention move most?").shows("Moves most: ")
    tab.page.wait_for_selector(".js-plotly-plot .heatmaplayer image")
    head(tab, 2, 5).click()
    tab.shows("All heads are on.")
    are_off(tab)
    grid_of_moves = tab.page.get_by_role("grid", name="attention moved (bits)")
    eventually(tab, grid_of_moves.count, 0)


def test_three_quick_clicks_all_count(tabs, bundled):
    tab = arrived(tabs)
    heads = [(0, 0), (0, 3), (4, 7)]
    for at in heads:
        head(tab, *at).click(no_wait_after=True)
    assert [head(tab, *at).evaluate(MARK) for at in heads] == ["off"] * 3
    says(tab, bundled, *heads)
    are_off(tab.settled(), *heads)
    for _ in heads:  # at once, before any answer: as many steps back or fewer, and no error
        tab.page.get_by_role("button", name="Undo").click(force=True)
    tab.settled()
    assert tab.page.get_by_test_id("stException").count() == 0
    tab.page.get_by_role("button", name="All on").click()
    tab.shows("All heads are on.")
    are_off(tab)


def test_the_keyboard_walks_and_switches(tabs, bundled):
    tab = arrived(tabs, "live?layer=1&head=4")
    is_chosen(tab, head(tab, 1, 4))
    head(tab, 1, 4).focus()
    for key, at in (("ArrowRight", (1, 5)), ("ArrowDown", (2, 5)), ("Home", (2, 0)), ("ArrowLeft", (2, 0))):
        tab.page.keyboard.press(key)
        is_chosen(tab, head(tab, *at))
    are_off(tab.settled())
    tab.shows("All heads are on.").shows("Switch L2·H0 off")
    tab.page.keyboard.press("Enter")
    says(tab, bundled, (2, 0))
    are_off(tab.settled(), (2, 0))
    tab.page.keyboard.press("ArrowRight")
    tab.page.keyboard.press("Space")
    says(tab, bundled, (2, 0), (2, 1))
    are_off(tab.settled(), (2, 0), (2, 1))
    tab.page.keyboard.press("Enter")
    says(tab, bundled, (2, 0))
    are_off(tab, (2, 0))
    is_chosen(tab, head(tab, 2, 1))


def test_a_reload_keeps_the_mask_and_back_takes_it_away(tabs, bundled):
    tab = arrived(tabs)
    head(tab, 0, 3).click()
    says(tab, bundled, (0, 3))
    are_off(tab.settled(), (0, 3))
    head(tab, 5, 1).click()
    says(tab, bundled, (0, 3), (5, 1))
    are_off(tab.settled(), (0, 3), (5, 1))
    grid(tab, "^attention moved").nth(4 * 12 + 2).click()
    tab.shows("Attention of L4·H2").settled()
    tab.page.wait_for_url(re.compile("watch=4.2"))
    tab.page.reload()
    tab.settled()
    says(tab, bundled, (0, 3), (5, 1))
    are_off(tab, (0, 3), (5, 1))
    is_chosen(tab, head(tab, 5, 1))
    is_chosen(tab, grid(tab, "^attention moved").nth(4 * 12 + 2))
    tab.page.go_back()
    tab.settled()
    are_off(tab, (0, 3), (5, 1))
    tab.page.go_back()
    says(tab, bundled, (0, 3))
    are_off(tab.settled(), (0, 3))


def test_two_tabs_with_other_heads_off_do_not_mix(tabs, bundled):
    first, second = arrived(tabs), arrived(tabs)
    head(first, 0, 3).click()
    head(second, 3, 1).click()
    head(second, 4, 4).click()
    says(first, bundled, (0, 3))
    says(second, bundled, (3, 1), (4, 4))
    write(second.settled(), "   ")
    second.shows("There is no text to read. Type a sentence.")
    says(first, bundled, (0, 3))
    are_off(first.settled(), (0, 3))
    first.page.get_by_role("button", name="Undo").click()
    first.shows("All heads are on.")
    write(second, TEXT)
    says(second, bundled, (3, 1), (4, 4))
    are_off(second.settled(), (3, 1), (4, 4))


def test_axe_finds_nothing_serious(tabs):
    off = switched.write(mask_of((0, 3), (2, 5)))
    tab = arrived(tabs, f"live?off={off}&example=5")
    tab.page.wait_for_selector(".js-plotly-plot .main-svg")
    assert serious(tab.settled()) == []
