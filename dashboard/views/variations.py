"""Learn: masks, crossing, scale, order, cost and context."""

from __future__ import annotations

from dashboard.learn.heading import heading

heading("variations")

from dashboard.learn import measured, page, variations  # noqa: E402
from dashboard.learn.lesson import Page  # noqa: E402

page.draw(Page("variations", (*variations.STEPS, *measured.STEPS)))
