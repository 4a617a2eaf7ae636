"""Learn: multi-head attention by hand."""

from __future__ import annotations

from dashboard.learn import by_hand, page

page.draw(by_hand.PAGE)
