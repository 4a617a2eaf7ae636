"""Learn: every tensor with its shape."""

from __future__ import annotations

from dashboard.learn import page, shapes

page.draw(shapes.PAGE)
