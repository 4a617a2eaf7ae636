"""Learn: what people ask."""

from __future__ import annotations

from dashboard.learn.heading import heading

heading("questions")

from dashboard.learn import page, questions  # noqa: E402

page.draw(questions.PAGE)
