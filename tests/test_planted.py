"""Heads set by hand are found: by their measures, by the rules of the roles, by the induction scores."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.capture import capture
from analysis.collection import summarise
from analysis.distance import distances, twins
from analysis.induction import induction
from analysis.roles import roles
from tests import planted, tiny

SENTENCES = [
    "the cat sat on the mat and the dog sat on a street.",
    "it was too tired because the animal didn't cross the street.",
    "this film is good, I love it!",
    "you run and I walk; a bird is on the mat.",
    "the film was too good, and the cat was bad.",
    ("the dog is good", "the cat is bad"),
    "a bird sat on the dog, and the dog didn't love it.",
    ("I love this animal", "you didn't love this animal"),
]


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """The planted network, opened as any other model."""
    return planted.open_planted(tmp_path_factory.mktemp("planted"))


def random_texts(count, seed):
    """Return texts of 6 to 40 random words that the tokenizer leaves whole."""
    random = np.random.default_rng(seed)
    words = [word for word in tiny.WORDS if not word.startswith("##")]
    return [" ".join(random.choice(words, size=random.integers(6, 41))) for _ in range(count)]


def test_each_head_of_the_first_layer_does_what_it_was_set_to(network):
    weights = capture(network, SENTENCES[0]).weights[0]
    n = weights.shape[-1]
    inner = np.arange(1, n - 1)
    assert weights[0, inner, inner - 1].min() > 0.999
    assert weights[1, inner, inner + 1].min() > 0.999
    assert weights[2, :, 0].min() > 0.999
    np.testing.assert_allclose(weights[3], 1 / n, atol=1e-6)


@pytest.mark.parametrize("texts", [SENTENCES, random_texts(30, 0), random_texts(30, 1)],
                         ids=["sentences", "random", "others"])  # fmt: skip
def test_the_rules_name_every_planted_role_and_no_other(network, texts):
    named = roles(summarise(network, texts, replicates=5))
    for (layer, head), does in planted.PLANTED.items():
        wanted = does if does in planted.ROLES else "mixed"
        assert named[layer, head] == wanted, (layer, head)


def test_the_induction_heads_are_found_in_their_own_direction_only(network):
    found = induction(network)
    for (layer, head), does in planted.PLANTED.items():
        for name in found.names:
            score, low = found.table(name)[layer, head], found.low[found.names.index(name), layer, head]
            if does == name:
                assert score > 0.9
                assert low > 0.9
            else:
                assert score < 0.3, (layer, head, name)


def test_a_head_that_looks_everywhere_has_the_score_of_chance(network):
    found = induction(network, sequences=40)
    np.testing.assert_allclose(found.mean[:, 0, 3], found.chance, atol=1e-6)


def test_a_fixed_distance_does_not_pass_for_induction(tmp_path):
    model = planted.open_planted(tmp_path)
    query, _key = planted.parts(model.network.encoder.layer[0].attention, 0)
    query[planted.WITHIN, planted.POSITION] = 1000 * planted.shift(-11)  # always 11 tokens back
    assert induction(model, length=(12, 12), sequences=20).mean[0, 0, 0] > 0.9
    assert induction(model).mean[0, 0, 0] < 0.3


def test_planted_heads_do_different_things(network):
    found = distances(network, SENTENCES)
    previous, following, broad = 0, 1, 3
    assert found.mean[previous, following] > 0.8
    assert (twins(found)[1] > 0.1).all()
    assert found.mean[broad, previous] < found.mean[previous, following]
