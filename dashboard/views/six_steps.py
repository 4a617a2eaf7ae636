"""Learn: from one head to all together."""

from __future__ import annotations

from dashboard.learn import mixing, page, six_steps, two_layers
from dashboard.learn.lesson import Page

page.draw(Page("six_steps", (*six_steps.STEPS, *mixing.STEPS, two_layers.STEP)))
