"""A real dashboard in a real Chromium. Without a browser these tests skip; in CI that is a failure."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LOCAL = re.compile(r"(https?|wss?)://(localhost|127\.0\.0\.1)[:/]|data:|blob:|file:|about:")
WAIT = 20_000  # a bound for a hung page, in ms; no test measures time


@pytest.fixture(scope="session")
def browser():
    """One Chromium for all browser tests."""
    found = os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
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
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "dashboard/app.py"]
    process = subprocess.Popen(
        [*command, "--server.headless", "true", "--server.port", str(port)],
        cwd=ROOT,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    address = f"http://localhost:{port}"
    for _attempt in range(240):
        try:
            urllib.request.urlopen(f"{address}/_stcore/health", timeout=1)
            break
        except OSError:
            assert process.poll() is None, process.stdout.read().decode()
            time.sleep(0.25)
    yield address
    process.terminate()
    process.wait(timeout=20)


class Tab:
    """A browser tab on the dashboard, and what it asked of the network or complained of."""

    def __init__(self, context, address):
        self.page = context.new_page()
        self.page.set_default_timeout(WAIT)
        self.address = address
        self.requests, self.errors, self.received = [], [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("websocket", self._listen)

    def _listen(self, socket):
        self.requests.append(socket.url)
        socket.on("framereceived", lambda frame: self.received.append(len(frame)))

    def open(self, path=""):
        self.page.goto(f"{self.address}/{path}")
        self.settled()
        return self

    def settled(self):
        """Wait until the page has been drawn and nothing runs any more."""
        self.page.wait_for_selector('[data-testid="stMain"] h3')
        self.page.wait_for_function(
            "() => document.querySelector('.stApp')?.dataset.testScriptState !== 'running' "
            "&& !document.querySelector('[data-testid=stSkeleton]')"
        )
        self.page.wait_for_timeout(150)
        self.page.wait_for_function(
            "() => document.querySelector('.stApp')?.dataset.testScriptState !== 'running'"
        )
        return self

    def text(self):
        """Return the text that stands in the main part of the page."""
        return self.page.locator('[data-testid="stMain"]').inner_text()

    def shows(self, sentence):
        """Wait until the main part shows ``sentence``."""
        self.page.wait_for_function(
            "s => document.querySelector('[data-testid=stMain]').innerText.includes(s)", arg=sentence
        )
        return self

    def left_the_machine(self):
        return [url for url in self.requests if not LOCAL.match(url)]


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
