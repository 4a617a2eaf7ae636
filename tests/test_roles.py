"""Planted heads are named for what they do, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.collection import summarise
from analysis.findings import MEASURES, HeadStatistics
from analysis.roles import RULES, Rule, roles, scores
from analysis.texts import sample


def planted(**values):
    """Return the statistics of one head with these measures; all others 0."""
    names = tuple(MEASURES)
    mean = np.zeros((len(names), 1, 1))
    for name, value in values.items():
        mean[names.index(name)] = value
    return HeadStatistics(names, mean, mean, mean, 1, 1, "keep", "queries")


@pytest.mark.parametrize(
    ("values", "role"),
    [
        ({"previous": 0.95, "argmax_previous": 0.99}, "previous"),
        ({"next": 0.7, "cls": 0.2}, "next"),
        ({"self": 0.8}, "self"),
        ({"cls": 0.5, "sep": 0.3}, "sink"),
        ({"same_word": 0.5}, "same word"),
        ({"argmax_next": 0.95, "next": 0.3}, "positional"),
        ({"block_aa": 0.95, "block_bb": 0.97}, "block"),
        ({"entropy_normalised": 0.97}, "broad"),
        ({"previous": 0.3, "cls": 0.4, "entropy_normalised": 0.5}, "mixed"),
        ({"block_aa": np.nan, "block_bb": np.nan, "cls": 0.2}, "mixed"),
    ],
)
def test_a_planted_role_is_found(values, role):
    assert roles(planted(**values))[0, 0] == role


def test_rules_can_be_adjusted():
    found = planted(previous=0.3)
    assert roles(found)[0, 0] == "mixed"
    assert roles(found, [Rule("previous", "P", ("previous",), 0.25)])[0, 0] == "previous"
    assert scores(found).shape == (len(RULES), 1, 1)
    assert len({rule.letter for rule in RULES}) == len(RULES)


def test_the_bundled_model_on_the_sample(bundled):
    found = summarise(bundled, sample(), replicates=50)
    named = roles(found)
    assert named[0, 2] == "previous"
    assert found.table("previous")[0, 2] > 0.9
    assert named[1, 8] == "next"
    middle = found.table("cls")[1:5]
    assert (middle.mean(axis=1) > found.table("sep")[1:5].mean(axis=1)).all()
    assert "sink" in named[1:5]
