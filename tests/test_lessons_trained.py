"""The network that trains while one looks: it learns, an induction pair appears, and its best heads cost most."""

from __future__ import annotations

import inspect
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.messages import OptionError
from analysis.toy_pruning import loss_without, prune
from analysis.trained_toy import (
    CHANCE,
    EVERY,
    HEADS,
    LAYERS,
    LENGTH,
    PERIODS,
    role_scores,
    say,
    train,
    trained_maps,
)

STEPS = 400


@pytest.fixture(scope="module")
def course():
    """The whole course of one training; the random numbers of others are left out of it."""
    torch.manual_seed(12)
    return list(train(0, steps=STEPS))


@pytest.fixture(scope="module")
def network(course):
    return course[-1].network


@pytest.fixture(scope="module")
def pruned(network):
    return prune(network)


def off(*heads):
    """Return switches for these (layer, head)."""
    switches = np.zeros((LAYERS, HEADS), dtype=bool)
    for layer, head in heads:
        switches[layer, head] = True
    return switches


def test_it_learns_and_an_induction_pair_appears(course):
    assert [one.step for one in course] == [*range(0, STEPS, EVERY), STEPS]
    first, last = course[0], course[-1]
    assert first.loss > CHANCE - 0.1
    assert last.loss < 0.2
    assert first.previous.max() < 0.3
    assert first.induction.max() < 0.2
    assert last.previous.max() > 0.8
    assert last.induction.max() > 0.8
    assert last.scores.shape == (LAYERS, HEADS)
    for one in course:
        assert one.scores.min() >= 0
        assert one.scores.max() <= 1 + 1e-6


def test_the_loss_falls_when_the_pair_appears(course):
    """While neither exists, nothing can be known but the letters of the passage."""
    for one in course:
        if one.induction.max() < 0.2:
            assert one.loss > 2.5
        if one.loss < 0.5:
            assert one.induction.max() > 0.7
            assert one.previous.max() > 0.6


def test_only_the_last_one_brings_the_network(course):
    assert all(one.network is None for one in course[:-1])
    network = course[-1].network
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_the_course_depends_on_the_seed_alone():
    one, again, other = ([p.loss for p in train(seed, steps=3, every=1)] for seed in (5, 5, 6))
    assert one == again
    assert one != other
    assert len(one) == 4


def test_it_is_drawn_as_it_goes_and_can_be_left():
    running = train(1, steps=10_000)
    assert inspect.isgenerator(running)
    assert next(running).step == 0
    with torch.no_grad():  # a page may ask for the next one from anywhere
        assert next(running).step == EVERY
    running.close()


@pytest.mark.parametrize(("steps", "every"), [(0, 1), (5, 0)])
def test_no_step_is_no_training(steps, every):
    with pytest.raises(OptionError, match="takes 1 step at least, not 0"):
        next(train(steps=steps, every=every))


@settings(max_examples=20)
@given(seed=st.integers(0, 9999))
def test_passages_have_different_letters_and_varying_lengths(seed):
    said = say(50, torch.Generator().manual_seed(seed))
    assert said.letters.shape == (50, LENGTH)
    periods = said.periods[:, 0].tolist()
    assert PERIODS[0] <= min(periods) < max(periods) <= PERIODS[1] == LENGTH // 2
    for letters, k in zip(said.letters.tolist(), periods, strict=True):
        assert len(set(letters[:k])) == k
        assert letters[k:] == letters[:-k]


def test_removing_heads_with_the_highest_scores_costs_most(pruned):
    for removed in (pruned.both, pruned.layers[0]):
        for number in range(1, HEADS):
            assert removed.highest[number] > removed.average[number] > removed.lowest[number]
    for removed in (pruned.both, *pruned.layers):
        for way in (removed.highest, removed.lowest, removed.average):
            assert way.shape == (HEADS + 1,)
            assert way[0] == pytest.approx(pruned.whole)
            assert way[-1] == pytest.approx(removed.highest[-1])
    assert (pruned.without_role > pruned.whole + 2).all()
    assert pruned.alone[0, pruned.scores[0].argmax()] == pruned.alone[0].max()


def test_a_shared_role_is_missed_only_when_all_who_share_it_are_gone(pruned):
    for layer in range(LAYERS):
        if pruned.roles[layer].sum() > 1:
            alone = pruned.alone[layer, pruned.roles[layer]]
            assert pruned.without_role[layer] > 2 * alone.max()
    assert pruned.only_roles < pruned.whole + 0.3


def test_every_number_of_the_pruning_is_a_loss_without_heads(network, pruned):
    def check(value, *heads):
        assert loss_without(network, off(*heads)) == pytest.approx(value, abs=1e-5)

    check(pruned.whole)
    best, worst = (order.tolist() for order in (pruned.scores.argsort()[:, ::-1], pruned.scores.argsort()))
    for layer, removed in enumerate(pruned.layers):
        for head in range(HEADS):
            check(pruned.alone[layer, head], (layer, head))
        check(removed.highest[2], *((layer, head) for head in best[layer][:2]))
        check(removed.lowest[3], *((layer, head) for head in worst[layer][:3]))
        check(pruned.without_role[layer], *((layer, head) for head in np.flatnonzero(pruned.roles[layer])))
        pairs = combinations(range(HEADS), 2)
        losses = [loss_without(network, off(*((layer, head) for head in pair))) for pair in pairs]
        assert np.mean(losses) == pytest.approx(removed.average[2], abs=1e-5)
    check(pruned.both.highest[1], *((layer, best[layer][0]) for layer in range(LAYERS)))
    check(pruned.both.lowest[2], *((layer, head) for layer in range(LAYERS) for head in worst[layer][:2]))
    single = [
        loss_without(network, off((0, one), (1, other))) for one in range(HEADS) for other in range(HEADS)
    ]
    assert np.mean(single) == pytest.approx(pruned.both.average[1], abs=1e-5)
    assert loss_without(network, ~pruned.roles) == pytest.approx(pruned.only_roles, abs=1e-5)
    assert loss_without(network, off(), seed=1) != pruned.whole


def test_the_maps_of_a_passage(network):
    letters = "QWERTZ" * 4
    maps = trained_maps(network, letters)
    assert maps.weights.shape == (LAYERS, HEADS, len(letters), len(letters))
    assert "".join(maps.queries.labels) == letters
    assert (np.triu(maps.weights, 1) == 0).all()
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-5)
    assert maps.key_counts().tolist() == [list(range(1, len(letters) + 1))] * LAYERS
    # the second "Q" is place 6: an induction head looks from there to the first "W"
    assert maps.weights[1, :, 6, 1].max() > 0.5
    assert maps.weights[0, :, 1, 0].max() > 0.5


def test_scores_are_means_over_letters(network):
    said = say(5, torch.Generator().manual_seed(3))
    with torch.no_grad():
        maps = network(said.letters[:, :-1])[1]
    previous, induction = [], []
    for row, k in enumerate(said.periods[:, 0].tolist()):
        for query in range(1, LENGTH - 1):
            if query < k:
                previous.append(maps[0, row, :, query, query - 1])
            else:
                after = [key for key in range(query + 1) if key and (query - key + 1) % k == 0]
                induction.append(maps[1, row, :, query, after].sum(-1))
    expected = torch.stack([torch.stack(previous).mean(0), torch.stack(induction).mean(0)])
    np.testing.assert_allclose(role_scores(maps, said), expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("text", ["", "ABc", "A" * (LENGTH + 1), "A B"])
def test_what_it_cannot_read_is_refused(network, text):
    with pytest.raises(OptionError, match="reads 1 to 32 capital letters"):
        trained_maps(network, text)
