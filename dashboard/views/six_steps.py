"""Learn: from one head to all together."""

from __future__ import annotations

from dashboard.learn.heading import heading

heading("six_steps")

from dashboard.learn import mixing, page, six_steps, two_layers  # noqa: E402
from dashboard.learn.lesson import Page  # noqa: E402

page.draw(Page("six_steps", (*six_steps.STEPS, *mixing.STEPS, two_layers.STEP)))
