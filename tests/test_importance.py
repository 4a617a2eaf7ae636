"""Gradient scores: equal for any batch, equal to finite differences of the gates, refused where they are noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis.capture import pad
from analysis.datasets import Data
from analysis.importance import gradients, importance
from analysis.messages import OptionError
from analysis.models import open_model
from analysis.probe import Probe, run
from analysis.tasks import set_up
from tests import tiny

PAIRS = (("the cat sat", "the dog sat on the mat"), ("a dog", "the cat"), ("the cat sat", "a dog"),
         ("the mat", "the mat and the cat and the dog"), ("cat", "the cat sat"))  # fmt: skip
GRADES = np.array([4.0, 1.0, 2.5, 3.0, 0.5])
TEXTS = ("the cat sat on the mat", "a dog", "the cat and the dog sat", "the the the", "dog sat")
LABELS = np.array([0, 1, 0, 1, 0])


def problem_of(tmp_path, task, family="bert", kind=None):
    """Set a task up on a tiny model."""
    kind = kind or {"similarity": "headless", "classification": "classification", "masked": "masked"}[task]
    model = open_model(str(tiny.save_tiny(tmp_path / f"{family}-{kind}", family, kind)))
    data = {
        "similarity": Data("pairs", PAIRS, GRADES),
        "classification": Data("texts", TEXTS, LABELS, ("0", "1")),
        "masked": Data("texts", TEXTS),
    }[task]
    return set_up(task, model, data)


def in_double(problem):
    """Return the problem with a network in float64; the shared one stays as it is."""
    import copy

    return replace(
        problem, model=replace(problem.model, network=copy.deepcopy(problem.model.network).double())
    )


@pytest.mark.parametrize("task", ["similarity", "classification", "masked"])
def test_any_batch_gives_the_same(tmp_path, task):
    problem = problem_of(tmp_path, task)
    together = importance(problem)
    alone = importance(problem, tokens=1)
    some = importance(problem, tokens=40)
    for other in (alone, some):
        np.testing.assert_allclose(together.each, other.each, atol=2e-6, rtol=1e-4)
    assert together.absolute.max() > 1e-3
    np.testing.assert_allclose(np.linalg.norm(together.normalised, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(together.absolute, np.abs(together.each).mean(0))
    assert (np.abs(together.signed) <= together.absolute + 1e-12).all()


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "electra", "albert"])
def test_finite_differences_of_the_gates(tmp_path, family):
    problem = in_double(problem_of(tmp_path, "similarity", family))
    which = list(range(len(PAIRS)))
    found = gradients(problem, which)
    places, rows = problem.rows_of(which)
    batch = pad(problem.model, [problem.inputs[i] for i in places])
    step = 1e-4

    def loss(gates):
        with torch.no_grad():
            kept = problem.read(run(problem.model.network, batch, Probe(gates=gates[None])), batch, places)
            return problem.loss(kept, rows, which).numpy()

    layers, heads = found.shape[1:]
    for layer in range(layers):
        for head in range(heads):
            ends = []
            for sign in (1, -1):
                gates = torch.ones(layers, heads, dtype=torch.float64)
                gates[layer, head] += sign * step
                ends.append(loss(gates))
            slope = (ends[0] - ends[1]) / (2 * step)
            np.testing.assert_allclose(found[:, layer, head], slope, rtol=1e-3, atol=1e-7)


def test_the_order_of_the_data_changes_nothing(tmp_path):
    problem = problem_of(tmp_path, "similarity")
    turned = set_up("similarity", problem.model, problem.data.take(range(len(PAIRS))[::-1]))
    np.testing.assert_allclose(importance(problem).each, importance(turned).each[::-1], atol=2e-6, rtol=1e-4)


def test_a_shared_text_does_not_share_its_gradient(tmp_path):
    problem = problem_of(tmp_path, "similarity")
    alone = [gradients(problem, [i])[0] for i in range(len(PAIRS))]
    np.testing.assert_allclose(gradients(problem, list(range(len(PAIRS)))), alone, atol=2e-6, rtol=1e-4)


def test_the_model_stays_as_it_was(tmp_path):
    problem = problem_of(tmp_path, "classification")
    before = {name: value.clone() for name, value in problem.model.network.state_dict().items()}
    importance(problem)
    importance(problem)  # a second round still has gradients
    assert importance(problem).absolute.min() >= 0
    for name, value in problem.model.network.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(not p.requires_grad and p.grad is None for p in problem.model.network.parameters())


def test_fidelity_has_none_and_says_why(bundled):
    problem = set_up("fidelity", bundled, Data("texts", TEXTS))
    with pytest.raises(OptionError, match="its gradient is zero"):
        importance(problem)


def test_progress_can_end_it(tmp_path):
    class Cancelled(Exception):
        pass

    def stop(done):
        raise Cancelled

    with pytest.raises(Cancelled):
        importance(problem_of(tmp_path, "masked"), on_progress=stop)
