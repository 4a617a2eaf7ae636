"""From a click on a head to its new figure, in a real browser: milliseconds, and bytes sent to it."""

from __future__ import annotations

import statistics

from tests.dashboard.driver import FLAGS, Tab, dashboard, find_chromium

LENGTHS = (16, 64, 256, 512)
CLICKS = 15
# Clicks the cell, then waits for the figure whose name tells the head, and for the frame that paints it.
CLICK = """
([cell, name]) => new Promise(done => {
  const start = performance.now();
  const look = () => {
    const figure = document.querySelector(`[aria-label^="${name}"]`);
    figure ? requestAnimationFrame(() => done(performance.now() - start)) : requestAnimationFrame(look);
  };
  cell.click();
  look();
})
"""


def main() -> None:
    """Print a line a length, for the map of one head and for the small maps of the whole model."""
    chromium = find_chromium()
    if chromium is None:
        print("no Chromium on this machine (set CHROMIUM to its path)")
        return
    from playwright.sync_api import sync_playwright

    with dashboard() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        tab = Tab(browser.new_page(viewport={"width": 1400, "height": 900}), address)
        print("tokens  view     ms: median  (min - max)   kB a click", flush=True)
        for length in LENGTHS:
            for view in ("map", "heads"):
                _measure(tab, length, view)
        browser.close()


def _measure(tab: Tab, length: int, view: str) -> None:
    tab.open(f"attention?units=pieces&view={view}&scope=model")
    box = tab.page.get_by_role("textbox", name="Sentence", exact=True)
    box.fill("the cat sat on the mat and " * (length // 7) + "so " * ((length - 2) % 7))
    box.press("Enter")
    tab.page.get_by_role("option").nth(length - 8).wait_for()
    tab.settled()
    times, received = [], []
    for turn in range(CLICKS + 2):
        layer, head = turn % 6, (turn * 5) % 12
        cell = tab.page.get_by_role("gridcell").nth(layer * 12 + head).element_handle()
        before = sum(tab.received)
        name = {"map": f"Attention map of L{layer}·H{head},", "heads": "Small attention maps of 72 heads; "}[
            view
        ]
        name += f"L{layer}·H{head} " if view == "heads" else ""
        took = tab.page.evaluate(CLICK, [cell, name])
        tab.settled()
        if turn >= 2:  # the first clicks warm up
            times.append(took)
            received.append(sum(tab.received) - before)
    print(
        f"{length:6d}  {view:6s} {statistics.median(times):12.0f}  ({min(times):.0f} - {max(times):.0f})"
        f" {statistics.median(received) / 1e3:12.0f}",
        flush=True,
    )
