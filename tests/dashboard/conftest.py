"""A real dashboard in a real Chromium. Without a browser these tests skip; in CI that is a failure."""

from __future__ import annotations

import os

import pytest

from tests.dashboard.driver import FLAGS, Tab, dashboard, find_chromium

SIZE = {"width": 1400, "height": 900}


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


@pytest.fixture(scope="session")
def warm(browser, tmp_path_factory):
    """A browser that keeps what it has compiled, as that of a person does: each page comes in two thirds of the time."""
    context = browser.browser_type.launch_persistent_context(
        tmp_path_factory.mktemp("browser"), executable_path=find_chromium(), args=FLAGS, viewport=SIZE
    )
    yield context
    context.close()


@pytest.fixture(scope="session")
def idle():
    """Pages that a test has left and the next may take: they need not start a process and compile everything anew."""
    return []


@pytest.fixture
def tabs(warm, server, idle):
    """A function that opens a new tab, a session of its own; every tab must stay quiet."""
    opened = []

    def new(path="attention", viewport=SIZE):
        tab = Tab(idle.pop() if idle else warm.new_page(), server)
        tab.page.set_viewport_size(viewport)
        opened.append(tab)
        return tab.open(path)

    yield new
    for tab in opened:
        if tab.leave():
            idle.append(tab.page)
        assert tab.left_the_machine() == []
        assert tab.errors == []
