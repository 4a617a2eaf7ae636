"""Learn: multi-head attention by hand."""

from __future__ import annotations

from dashboard.learn.heading import heading

heading("by_hand")

from dashboard.learn import by_hand, page  # noqa: E402

page.draw(by_hand.PAGE)
