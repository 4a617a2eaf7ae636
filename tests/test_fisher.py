"""Fisher masks: the search takes the smallest information, exchanges within a layer only ever lower the loss."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from analysis.control import control
from analysis.fisher import fisher_masks, rearrange
from analysis.importance import importance
from analysis.maps import Head
from analysis.pruning import Limits, path, steps
from analysis.tasks import set_up
from tests.test_importance import problem_of

SHAPE = LAYERS, HEADS = 3, 4
NOTHING = np.zeros(SHAPE, dtype=bool)
SEEDS = st.integers(0, 2**32 - 1)
PLACES = st.tuples(st.integers(0, LAYERS - 1), st.integers(0, HEADS - 1))
GONE = st.lists(st.booleans(), min_size=12, max_size=12).map(lambda row: np.array(row).reshape(SHAPE))


def gradients(seed, heads=HEADS, layers=LAYERS, examples=9):
    """Return gradients [example, layer, head] that go together, so that exchanges have something to find."""
    random = np.random.default_rng(seed)
    shared = random.normal(size=(examples, layers, 2)) @ random.normal(size=(2, heads))
    return shared + 0.2 * random.normal(size=(examples, layers, heads))


def information(seed, heads):
    """Return E of the products of gradients [head, head] of one layer."""
    each = gradients(seed, heads)[:, 0]
    return each.T @ each / len(each)


def loss_of(each, mask):
    """Return 1/2 sum over layers of E (sum of dL/dm over the removed)^2, straight from the gradients of each example."""
    return float(((each * mask).sum(axis=2) ** 2).mean(axis=0).sum() / 2)


def loss_in_layer(matrix, mask):
    """Return m' I m / 2."""
    return float(mask.astype(float) @ matrix @ mask.astype(float) / 2)


def best_of_all(matrix, count, fixed):
    """Return the lowest loss of any mask with so many of the free heads."""
    free = np.flatnonzero(~fixed).tolist()
    return min(
        loss_in_layer(matrix, np.isin(np.arange(len(fixed)), chosen)) for chosen in combinations(free, count)
    )


# The exchanges within a layer


@given(SEEDS, st.integers(2, 7), st.data())
def test_exchanges_lower_the_loss_and_keep_the_count(seed, heads, data):
    matrix = information(seed, heads)
    fixed = np.array(data.draw(st.lists(st.booleans(), min_size=heads, max_size=heads)))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=heads, max_size=heads))) & ~fixed
    before = mask.copy()
    found = rearrange(matrix, mask, fixed)
    np.testing.assert_array_equal(mask, before)
    assert found.sum() == mask.sum()
    assert not (found & fixed).any()
    loss = loss_in_layer(matrix, found)
    assert loss <= loss_in_layer(matrix, mask) + 1e-12
    assert (loss < loss_in_layer(matrix, mask) - 1e-15) or np.array_equal(found, mask)
    for out in np.flatnonzero(found):  # no exchange of one for one is left that lowers it
        for into in np.flatnonzero(~found & ~fixed):
            other = found.copy()
            other[[out, into]] = False, True
            assert loss_in_layer(matrix, other) >= loss - 1e-12
    np.testing.assert_array_equal(rearrange(matrix, found, fixed), found)


@given(SEEDS, st.integers(2, 6), st.booleans(), st.data())
def test_where_one_exchange_reaches_every_mask_the_best_of_all_is_found(seed, heads, one, data):
    """One head removed, or all but one: any mask is an exchange away."""
    matrix = information(seed, heads)
    fixed = np.zeros(heads, dtype=bool)
    first = data.draw(st.integers(0, heads - 1))
    mask = np.arange(heads) == first
    mask = mask if one else ~mask
    found = rearrange(matrix, mask, fixed)
    assert loss_in_layer(matrix, found) == pytest.approx(
        best_of_all(matrix, int(mask.sum()), fixed), abs=1e-12
    )


@given(SEEDS, st.integers(2, 6), st.data())
def test_where_heads_do_not_go_together_the_best_of_all_is_found(seed, heads, data):
    matrix = np.diag(np.random.default_rng(seed).random(heads))
    fixed = np.array(data.draw(st.lists(st.booleans(), min_size=heads, max_size=heads)))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=heads, max_size=heads))) & ~fixed
    found = rearrange(matrix, mask, fixed)
    assert loss_in_layer(matrix, found) == pytest.approx(
        best_of_all(matrix, int(mask.sum()), fixed), abs=1e-12
    )


def test_two_heads_that_cancel_go_together():
    """The diagonal takes heads 0 and 1, which say the same; 0 and 2 say the opposite, and cost less together."""
    each = np.array([[1.0, 0.9, -1.2, 5.0], [-1.0, -0.9, 1.2, 5.0]])[:, None]  # [example, layer 1, head]
    nothing = np.zeros((1, 4), dtype=bool)
    [mask] = fisher_masks(each, [2], nothing)
    np.testing.assert_array_equal(mask, [[True, False, True, False]])
    assert loss_of(each, mask) == pytest.approx(0.2**2 / 2)
    assert loss_of(each, np.array([[True, True, False, False]])) == pytest.approx(1.9**2 / 2)
    [kept] = fisher_masks(each, [2], nothing, protected=[Head(0, 0)])
    np.testing.assert_array_equal(kept, [[False, True, True, False]])
    [gone] = fisher_masks(each * [1, 1, 0, 1], [2], np.array([[False, False, True, False]]))
    np.testing.assert_array_equal(gone, [[True, True, False, False]])


# The search


def apart(diagonal):
    """Return gradients in which no two heads have a share in the same example: their information is this diagonal."""
    flat = np.asarray(diagonal, dtype=float).ravel()
    each = np.diag(np.sqrt(flat * len(flat)))
    return each.reshape(len(flat), *np.shape(diagonal))


def test_the_search_by_hand():
    diagonal = [[1, 8, 2, 9], [3, 3, 7, 12], [5, 4, 11, 10]]
    each = apart(diagonal)
    assert (each**2).mean(axis=0) == pytest.approx(np.array(diagonal))
    turn = [(0, 0), (0, 2), (1, 0), (1, 1), (2, 1), (2, 0), (1, 2), (0, 1), (0, 3), (2, 3), (2, 2), (1, 3)]
    masks = fisher_masks(each, range(13), NOTHING)
    for count, mask in enumerate(masks):
        assert sorted(map(tuple, np.argwhere(mask))) == sorted(turn[:count])
    [kept] = fisher_masks(each, [7], NOTHING, keep=1, protected=[Head(0, 2), Head(2, 1)])
    assert set(map(tuple, np.argwhere(kept))) == {(0, 0), (1, 0), (1, 1), (2, 0), (1, 2), (0, 1), (0, 3)}
    gone = NOTHING.copy()
    gone[0, :3] = True  # of the four one is left, which stays
    [left] = fisher_masks(each, [3], gone, keep=1)
    assert set(map(tuple, np.argwhere(left))) == {(1, 0), (1, 1), (2, 1)}


@given(SEEDS, GONE, st.lists(PLACES, max_size=3, unique=True), st.integers(0, 2))
def test_what_must_stay_stays_and_the_loss_is_not_above_the_search(seed, gone, protected, keep):
    each = gradients(seed) * ~gone
    heads = tuple(Head(*place) for place in protected)
    fixed = gone.copy()
    for place in protected:
        fixed[place] = True
    assume((~fixed).any())
    there = (~gone).sum(axis=1)
    most = int(np.minimum((~fixed).sum(axis=1), np.maximum(there - keep, 0)).sum())
    assume(most > 0)
    counts = list(range(most + 1))
    found = fisher_masks(each, counts, gone, keep, heads)
    searched = fisher_masks(apart((each**2).mean(axis=0)), counts, gone, keep, heads)
    assert found.sum((1, 2)).tolist() == counts
    assert not (found & fixed).any()
    assert ((there - found.sum(axis=2)) >= np.minimum(there, keep)).all()
    np.testing.assert_array_equal(found.sum(axis=2), searched.sum(axis=2))  # as many from each layer
    for mask, before in zip(found, searched, strict=True):
        assert loss_of(each, mask) <= loss_of(each, before) + 1e-12


# In a network


@pytest.mark.parametrize("task", ["similarity", "classification", "masked"])
def test_the_order_is_that_of_the_gradients_of_each_example(tmp_path, task):
    problem = problem_of(tmp_path, task)
    limits = Limits(step=0.25, keep=1, protected=(Head(1, 1),))
    each = importance(problem).each
    wanted = fisher_masks(each, steps(NOTHING, limits), NOTHING, 1, [Head(1, 1)])
    np.testing.assert_array_equal(path("fisher", problem, limits).masks, wanted)
    worst = [loss_of(each, ~mask & (np.arange(12) != 5).reshape(SHAPE)) for mask in wanted[1:-1]]
    assert [loss_of(each, mask) for mask in wanted[1:-1]] < worst


def test_of_a_planted_network_the_idle_heads_cost_nothing():
    made = control()
    each = importance(set_up("classification", made.model, made.data.take(range(60)))).each
    idle = made.truth == "idle"
    [mask] = fisher_masks(each, [4], np.zeros_like(idle))
    np.testing.assert_array_equal(mask, idle)
    assert loss_of(each, mask) < 1e-10
