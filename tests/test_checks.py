"""A smaller network is held against the masked one, and timed in turn with the whole: no test says how fast it must be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis import latency
from analysis.checks import TEXTS, apart
from analysis.latency import Spread, compare
from analysis.messages import HeadroomError
from analysis.models import open_model
from analysis.probe import Probe, run
from analysis.saving import smaller
from analysis.surgery import zeroed
from tests import tiny
from tests.test_surgery import UNEVEN, mask_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A tiny model, shared: nothing may change it."""
    return open_model(str(tiny.save_tiny(tmp_path_factory.mktemp("model") / "whole", seed=3)))


@pytest.mark.parametrize("kind", ["headless", "classification", "masked"])
def test_apart_lets_the_right_network_pass_and_no_other(tmp_path, kind):
    model = open_model(str(tiny.save_tiny(tmp_path / "model", "bert", kind)))
    small = smaller(model, UNEVEN)
    assert 0 <= apart(model, UNEVEN, small) < 1e-6
    assert 0 <= apart(model, UNEVEN, replace(model, network=zeroed(model.network, UNEVEN))) < 1e-6
    broken = smaller(model, UNEVEN)
    next(broken.network.parameters()).fill_(torch.nan)
    for wrong in (model, smaller(model, mask_of("0.1")), smaller(model, ~UNEVEN), broken):
        with pytest.raises(
            HeadroomError, match=r"The smaller model differs from the masked one by .* it is not kept"
        ):
            apart(model, UNEVEN, wrong)


def test_apart_refuses_a_mask_that_changes_nothing(whole, monkeypatch):
    zeros = replace(whole, network=zeroed(whole.network, UNEVEN))
    with pytest.raises(HeadroomError, match="changes nothing at all: the mask was not used"):
        apart(zeros, UNEVEN, smaller(zeros, UNEVEN))
    monkeypatch.setattr("analysis.checks.run", lambda network, batch, _probe: run(network, batch, Probe()))
    with pytest.raises(HeadroomError, match="the mask was not used"):  # a gate that nobody reads
        apart(whole, UNEVEN, whole)
    assert apart(whole, np.zeros_like(UNEVEN), whole, TEXTS[:1]) == 0


# Timing


def test_timing_has_a_row_a_batch_and_the_arithmetic(whole):
    small, told = smaller(whole, UNEVEN), []
    found = compare(whole, small, batches=(1, 3), tokens=20, turns=4, report=told.append)
    assert [(one.batch, one.tokens, one.turns) for one in found] == [(1, 20, 4), (3, 20, 4)]
    assert told == [1, 2]
    head = 20 * 4 * 8 * 32 + 2 * 20 * 20 * 8  # multiply-adds of one head of width 8
    layer = 4 * head + 20 * 2 * 32 * 48
    for one in found:
        assert one.allowed == pytest.approx(7 * head / (3 * layer))
        for spread in (one.whole, one.small, one.saved):
            assert spread.low <= spread.median <= spread.high
        assert min(one.whole.low, one.small.low) > 0
        assert one.saved.high < 1
    assert compare(whole, whole, batches=(1,), tokens=20, turns=2)[0].allowed == 0
    [cut] = compare(whole, small, batches=(1,), tokens=500, turns=1)
    assert cut.tokens == whole.geometry.max_tokens == 64


def test_timing_runs_both_in_turn_and_the_spread_is_within_turns(whole, monkeypatch):
    turns = iter([(9.0, 9.0)] * latency.WARM + [(0.002, 0.001), (0.004, 0.003), (0.008, 0.002)])
    monkeypatch.setattr(latency, "_turn", lambda *_models: next(turns))
    [found] = compare(whole, whole, batches=(2,), turns=3)
    assert found.whole.median == pytest.approx(4)
    assert found.small.median == pytest.approx(2)
    assert found.saved == Spread.of(np.array([0.5, 0.25, 0.75]))
    assert (found.saved.median, found.saved.low, found.saved.high) == (0.5, 0.375, 0.625)
    assert next(turns, None) is None


def test_timing_can_be_ended(whole):
    class Cancelled(Exception):
        pass

    def stop(_done):
        raise Cancelled

    with pytest.raises(Cancelled):
        compare(whole, whole, batches=(1, 1), tokens=8, turns=1, report=stop)
