"""From a control of a Learn page to its new numbers, in a real browser: milliseconds."""

from __future__ import annotations

import statistics

from tests.dashboard.driver import FLAGS, Tab, dashboard, find_chromium

TURNS = 15
# Presses what is there, then waits until the numbers that are said have changed, and for the frame that paints them.
PRESS = """
target => new Promise(done => {
  const said = () => [...document.querySelectorAll('[data-testid=stMain] [data-testid=stMarkdown]')]
    .map(one => one.innerText).join('|') + document.querySelectorAll('.js-plotly-plot').length;
  const before = said(), start = performance.now();
  const look = () => {
    const over = performance.now() - start;
    if (said() !== before) requestAnimationFrame(() => done(over));
    else if (over > 20000) done(null);
    else requestAnimationFrame(look);
  };
  target.click();
  look();
})
"""
# A step and its controls by role and name, pressed in turn.
STEPS = {
    "by_hand?part=module": [("radio", "causal"), ("radio", "additive"), ("radio", "none")],
    "shapes": [("option", "softmax"), ("option", "view"), ("option", "output")],
    "six_steps?part=one": [("option", "mouse"), ("option", "chased"), ("option", "cat")],
    "six_steps?part=many": [("radio", "1"), ("radio", "4"), ("radio", "8")],
    "six_steps?part=patterns": [("option", "mouse"), ("option", "chased"), ("option", "cat")],
    "six_steps?part=concat": [("radio", "1"), ("radio", "4"), ("radio", "8")],
    "six_steps?part=mix": [("button", "subject"), ("button", "object"), ("button", "broad")],
    "six_steps?part=together&source=bert": [("option", "mouse"), ("option", "chased"), ("option", "cat")],
    "variations?part=causal": [("radio", "none"), ("option", "mouse"), ("radio", "causal")],
    "variations?part=order": [("radio", "words swapped"), ("radio", "sinusoidal, added"), ("radio", "as the first"), ("radio", "without")],
    "variations?part=context": [("radio", "one meaning"), ("radio", "two meanings")],
}  # fmt: skip


def main() -> None:
    """Print a line a step: the median time of its controls."""
    chromium = find_chromium()
    if chromium is None:
        print("no Chromium on this machine (set CHROMIUM to its path)")
        return
    from playwright.sync_api import sync_playwright

    with dashboard() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        tab = Tab(browser.new_page(viewport={"width": 1400, "height": 900}), address)
        print(f"{'step':38s} ms: median  (min - max)", flush=True)
        every = []
        for path, controls in STEPS.items():
            times = _measure(tab, path, controls)
            every += times
            print(
                f"{path:38s} {statistics.median(times):10.0f}  ({min(times):.0f} - {max(times):.0f})",
                flush=True,
            )
        print(
            f"{'all':38s} {statistics.median(every):10.0f}  ({min(every):.0f} - {max(every):.0f})", flush=True
        )
        browser.close()


def _measure(tab: Tab, path: str, controls: list[tuple[str, str]]) -> list[float]:
    tab.open(path)
    times = []
    for turn in range(TURNS + len(controls)):
        role, name = controls[turn % len(controls)]
        target = tab.page.get_by_role(role, name=name, exact=role != "option").first
        took = tab.page.evaluate(PRESS, target.element_handle())
        tab.settled()
        if turn >= len(controls) and took is not None:  # the first round warms up
            times.append(took)
    return times
