"""Learn: what people ask."""

from __future__ import annotations

from dashboard.learn import page, questions

page.draw(questions.PAGE)
