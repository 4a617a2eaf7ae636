"""The Ablation page in a browser: long work that is told, left alone, waited for and cancelled; heads by a click."""

from __future__ import annotations

import re

import pytest

from analysis.datasets import shipped
from tests.dashboard.driver import WAIT, serious
from tests.dashboard.test_browser import cell, eventually
from tests.dashboard.test_heads_browser import progress

pytestmark = pytest.mark.browser

INDONESIAN, ENGLISH = len(shipped("similarity", "id")), len(shipped("similarity", "en"))
CANCELLED = "Cancelled. What was finished is kept: Run goes on from there."


def arrived(tabs, link):
    """Open the page by a link, with time to wait for an experiment beside whatever else is measured."""
    tab = tabs(f"ablation?{link}")
    tab.page.set_default_timeout(15 * WAIT)
    return tab.shows("Which heads matter, beyond noise?").settled()


def run(tab):
    tab.page.get_by_role("button", name="Run", exact=True).click()
    return tab


def go(tab, page):
    tab.page.get_by_test_id("stSidebarNav").get_by_role("link", name=page, exact=True).click()
    return tab


def moving(tab, variants, examples):
    """Wait until the progress tells that some of the examples are done."""
    said = re.compile(rf"Ablating: {variants} variants on {examples} examples: [1-9]\d* of ")
    progress(tab).get_by_text(said).wait_for()


def test_an_experiment_runs_while_other_pages_answer_and_arrives_by_itself(tabs):
    link = "protocol=pairs&data=id&heads=0.1,0.5,1.2,2.3,3.4,4.5"
    tab = run(arrived(tabs, link))
    tab.shows("Under way: other pages can be used meanwhile.")
    moving(tab, 15, INDONESIAN)
    tab.page.evaluate("window.neverReloaded = true")
    go(tab, "Attention").shows("Which head links it to animal?")
    cell(tab, 0, 2).click()
    tab.shows("L0·H2 looks at the previous word for")
    go(tab, "Ablation").shows(f"on {INDONESIAN} examples.").shows("of 15 pairs stand in for each other")
    progress(tab).wait_for(state="detached")
    assert tab.page.evaluate("window.neverReloaded")
    tab.settled()
    assert tab.page.get_by_role("button", name="Run", exact=True).is_disabled()
    other = arrived(tabs, link)  # in another tab it is there at once
    other.shows(f"on {INDONESIAN} examples.")


def test_a_cancelled_experiment_is_gone_on_with(tabs):
    tab = run(arrived(tabs, "protocol=all-but-one"))
    for _time in range(2):
        moving(tab, 72, ENGLISH)
        progress(tab).get_by_role("button", name="Cancel").click()
        tab.shows(CANCELLED)
        progress(tab).wait_for(state="detached")
        assert "Whole model" not in tab.text()
        run(tab)
    moving(tab, 72, ENGLISH)
    progress(tab).get_by_role("button", name="Cancel").click()
    tab.shows(CANCELLED)


def test_heads_are_chosen_by_a_click_and_switched_off_together(tabs):
    tab = run(arrived(tabs, "protocol=set&data=id"))
    tab.shows("The protocol set needs heads")
    for head, heads in ((4, "0.4"), (7, "0.4,0.7"), (4, "0.7"), (2, "0.2,0.7")):
        cell(tab, 0, head).click()
        eventually(
            tab, lambda: tab.page.get_by_role("textbox", name="Heads", exact=True).input_value(), heads
        )
        tab.settled()
    assert "needs heads" not in tab.text()
    run(tab).shows("With 2 heads off it changes by ")
    tab.page.wait_for_url(re.compile(r"heads=0\.2(,|%2C)0\.7"))
    tab.page.locator(".js-plotly-plot .barlayer .point").first.wait_for(state="attached")
    assert serious(tab.settled()) == []
