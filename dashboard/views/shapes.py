"""Learn: every tensor with its shape."""

from __future__ import annotations

from dashboard.learn.heading import heading

heading("shapes")

from dashboard.learn import page, shapes  # noqa: E402

page.draw(shapes.PAGE)
