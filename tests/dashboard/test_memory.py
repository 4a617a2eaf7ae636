"""Ten models opened one after another leave two in memory, and no click opens a model again."""

from __future__ import annotations

import gc
import weakref

import pytest

import analysis.capture
from dashboard import cache, corpus
from tests.dashboard.test_pages import (
    ATTENTION,
    HOME,
    _nothing_opened_before,
    asked_for,
    open_other,
    open_page,
    put,
    ran,
)
from tests.tiny import save_tiny

__all__ = ["_nothing_opened_before", "asked_for"]  # fixtures for this file too
HEADS, COMPARE = "views/heads.py", "views/compare.py"


@pytest.fixture
def opened(monkeypatch):
    """Return weak references to every network opened from now on."""
    found = []
    real = analysis.capture.open_source

    def open_source(*args, **options):
        source = real(*args, **options)
        if hasattr(source, "network"):
            found.append(weakref.ref(source.network))
        return source

    monkeypatch.setattr(analysis.capture, "open_source", open_source)
    return found


def until_measured(at):
    """Run the page until what it waits for is there."""
    for _attempt in range(600):
        if not any("Not there yet" in caption.value for caption in at.caption):
            return at
        ran(at.run())
    raise AssertionError("the measuring does not end")


def test_ten_models_leave_two_in_memory(opened, tmp_path):
    at = open_page()
    for number in range(10):
        at.switch_page(ATTENTION)
        open_other(ran(at.run()), str(save_tiny(tmp_path / f"model-{number}", seed=number)))
        put(at, view="why")
        put(at, view="map", lens="norms")
        at.session_state[corpus.OWN] = corpus.corpus("mine", ["the cat sat", "the dog"])
        at.switch_page(HEADS)
        until_measured(put(at, texts="own"))
        assert "heads** have a clear role on 2 texts" in " ".join(element.value for element in at.markdown)
    assert len(opened) >= 10
    gc.collect()
    assert sum(reference() is not None for reference in opened) <= 2


def test_no_click_opens_a_model_again(asked_for):
    cache.source.clear()
    at = open_page(HOME)
    for page in (ATTENTION, HEADS, COMPARE, ATTENTION):
        at.switch_page(page)
        until_measured(ran(at.run()))
        for layer, head in ((0, 2), (5, 11)):
            put(at, layer=layer, head=head)
    for view in ("lines", "why", "beside", "heads", "map"):
        put(at, view=view, lens="rollout")
    assert asked_for == ["bundled"]
