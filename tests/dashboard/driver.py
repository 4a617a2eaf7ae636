"""A real dashboard and a real Chromium, for the browser tests and the benchmark."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
NOT_OURS = {"list", "listitem"}  # what axe finds in Streamlit's own sidebar
WAIT = 45_000  # a bound for a hung page, in ms; no test measures time


def find_chromium() -> str | None:
    """Return the path of a Chromium on this machine, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def dashboard() -> Iterator[str]:
    """Run the dashboard on a free port, with runs of its own, and yield its address."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    # Code that changes meanwhile is nothing that a person meets: it is not watched.
    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        "dashboard/app.py",
        "--server.fileWatcherType",
        "none",
    ]
    with tempfile.TemporaryDirectory(prefix="headroom-", ignore_cleanup_errors=True) as runs:
        process = subprocess.Popen(
            [*command, "--server.headless", "true", "--server.port", str(port)],
            cwd=ROOT,
            env=os.environ | {"HF_HUB_OFFLINE": "1", "HEADROOM_RUNS": runs},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_for(f"http://localhost:{port}/_stcore/health", process)
            yield f"http://localhost:{port}"
        finally:
            process.terminate()
            process.wait(timeout=20)


def _wait_for(address: str, process: subprocess.Popen) -> None:
    for _attempt in range(240):
        try:
            urllib.request.urlopen(address, timeout=1).close()
            return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.25)
    raise RuntimeError(f"the dashboard did not start on {address}")


class Tab:
    """A browser tab on the dashboard, and what it asked of the network or complained of."""

    def __init__(self, page, address):
        self.page = page
        self.page.set_default_timeout(WAIT)
        self.address = address
        self.requests, self.errors, self.received = [], [], []
        self._heard = {
            "request": lambda request: self.requests.append(request.url),
            "pageerror": lambda error: self.errors.append(str(error)),
            "websocket": self._listen,
        }
        for event, listener in self._heard.items():
            self.page.on(event, listener)

    def _listen(self, socket):
        self.requests.append(socket.url)
        socket.on("framereceived", lambda frame: self.received.append(len(frame)))

    def leave(self):
        """End the session and listen no more. Returns whether the page can be taken by another tab."""
        if self.page.is_closed():
            return False
        self.page.emulate_media(color_scheme="null", media="null")
        self.page.goto("about:blank")
        for event, listener in self._heard.items():
            self.page.remove_listener(event, listener)
        return True

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


def serious(tab, within=None):
    """Return what axe finds on the page, or in one part of it, in light and in dark, apart from Streamlit's own."""
    from axe_playwright_python.sync_playwright import Axe

    found = []
    # What fades from one colour into another has neither for a while.
    tab.page.add_style_tag(
        content="*, *::before, *::after { transition: none !important; animation: none !important }"
    )
    once = {"runOnly": ["color-contrast"]}  # all but the colours is the same in light and in dark
    for scheme, rules in (("light", {}), ("dark", once)):
        tab.page.emulate_media(color_scheme=scheme)
        tab.page.wait_for_timeout(500)
        found += [
            (scheme, item["id"], item["nodes"][0]["html"][:200])
            for item in Axe()
            .run(tab.page, context=within, options={"resultTypes": ["violations"], **rules})
            .response["violations"]
            if item["impact"] in ("serious", "critical") and item["id"] not in NOT_OURS
        ]
    return found
