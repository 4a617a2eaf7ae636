"""A real dashboard in a real Chromium. Without a browser these tests skip; in CI that is a failure."""

from __future__ import annotations

import os

import pytest

from tests.dashboard.driver import FLAGS, Tab, dashboard, find_chromium


@pytest.fixture(scope="session")
def browser():
    """One Chromium for all browser tests."""
    found = find_chromium()
    if found is None:
        reason = "no Chromium on this machine (set CHROMIUM to its path)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def server(browser):
    """The address of a running dashboard."""
    with dashboard() as address:
        yield address


@pytest.fixture
def tabs(browser, server):
    """A function that opens a new tab, in a browser context of its own; every tab must stay quiet."""
    contexts, opened = [], []

    def new(path="attention", **options):
        context = browser.new_context(**({"viewport": {"width": 1400, "height": 900}} | options))
        contexts.append(context)
        tab = Tab(context, server)
        opened.append(tab)
        return tab.open(path)

    yield new
    for tab in opened:
        assert tab.left_the_machine() == []
        assert tab.errors == []
    for context in contexts:
        context.close()
