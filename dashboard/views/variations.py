"""Learn: masks, crossing, scale, order, cost and context."""

from __future__ import annotations

from dashboard.learn import measured, page, variations
from dashboard.learn.lesson import Page

page.draw(Page("variations", (*variations.STEPS, *measured.STEPS)))
