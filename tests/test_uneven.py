"""All that looks at heads, on a network without some: those left are as in the masked whole, the others nowhere."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis import distance
from analysis.answers import moved
from analysis.capture import capture
from analysis.collection import summarise
from analysis.compare import align, changes
from analysis.distance import distances
from analysis.export import to_bytes
from analysis.findings import difference
from analysis.importance import importance
from analysis.induction import induction
from analysis.lenses import head_vectors, lengths, norm_weighted, rollout
from analysis.live import answer, effects
from analysis.maps import Head, block, in_units, largest, pool, with_specials
from analysis.messages import OptionError
from analysis.models import open_model
from analysis.roles import GONE, RULES, roles, scores
from analysis.saving import smaller
from analysis.statistics import describe, head_entropy, link
from analysis.surgery import zeroed
from tests import tiny
from tests.test_ablation import TEXTS
from tests.test_importance import problem_of
from tests.test_surgery import SHAPE, UNEVEN, mask_of

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

THERE = ~UNEVEN  # layer 1 has no head left
LEFT = [Head(*map(int, at)) for at in np.argwhere(THERE)]
AWAY = [Head(*map(int, at)) for at in np.argwhere(UNEVEN)]
PAIR = ("the cat sat on a mat.", "unbelievable dog")
SPECIALS = ("keep", "hide", "renormalise")
MASKED = "the [MASK] sat on a mat"


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Return a function that gives a tiny model, the same without some heads, and the same with these masked."""
    root, made = tmp_path_factory.mktemp("tiny"), {}

    def get(family="bert", kind="headless"):
        if (family, kind) not in made:
            whole = open_model(str(tiny.save_tiny(root / f"{family}-{kind}", family, kind, seed=3)))
            masked = replace(whole, network=zeroed(whole.network, UNEVEN))
            made[family, kind] = whole, smaller(whole, UNEVEN), masked
        return made[family, kind]

    return get


@pytest.fixture(scope="module", params=["bert", "distilbert", "modernbert"])
def models(request, opened):
    """The whole model, the smaller one and the masked one."""
    return opened(request.param)


def assert_only_there(found, expected, *, atol=2e-6):
    """What is found [layer, head, ...] is NaN for the heads that are gone, and else what was expected."""
    assert np.isnan(found[UNEVEN]).all()
    np.testing.assert_allclose(found[THERE], expected[THERE], atol=atol)
    assert np.isfinite(found[THERE]).any()


# One text


@pytest.mark.parametrize("specials", SPECIALS)
@pytest.mark.parametrize("units", ["words", "pieces"])
def test_views_keep_what_is_gone_apart(models, units, specials):
    _, small, masked = models
    found, expected = (with_specials(in_units(capture(m, *PAIR), units), specials) for m in (small, masked))
    for view in (lambda maps: maps, lambda maps: block(maps, "AB"), lambda maps: block(maps, "BB")):
        one, other = view(found), view(expected)
        np.testing.assert_array_equal(one.gone, UNEVEN)
        assert not other.gone.any()
        assert_only_there(one.weights, other.weights)
        assert_only_there(pool(one.weights, 3), pool(other.weights, 3))
        assert [one.at(head).gone.item() for head in (*AWAY, *LEFT)] == [True] * len(AWAY) + [False] * len(
            LEFT
        )


@pytest.mark.parametrize("specials", SPECIALS)
def test_entropies_and_links(models, specials):
    _, small, masked = models
    found, expected = (in_units(capture(m, *PAIR), "words") for m in (small, masked))
    for one, other in zip(head_entropy(found, specials), head_entropy(expected, specials), strict=True):
        assert_only_there(one, other, atol=1e-5)
    one, other = (link(maps, 2, 3, specials=specials) for maps in (found, expected))
    assert_only_there(one, other)
    assert largest(one) in LEFT


def test_the_largest_of_nothing_is_no_head():
    assert largest(np.full(SHAPE, np.nan)) is None
    assert largest(np.where(UNEVEN, np.nan, -1.0)) == LEFT[0]


def test_a_head_that_is_gone_is_said_to_be_and_nothing_else(models):
    _, small, masked = models
    found, expected = capture(small, *PAIR), capture(masked, *PAIR)
    for head in LEFT:
        assert str(describe(found, head)) == str(describe(expected, head))
        assert head_vectors(small, *PAIR, head).queries.shape == (len(found.queries), 8)
    for head in AWAY:
        assert str(describe(found, head)) == "was removed from this model"
        with pytest.raises(OptionError, match=f"Head {head} was removed from this model"):
            head_vectors(small, *PAIR, head)


def test_rollout_averages_over_the_heads_that_are_there(models):
    _, small, _ = models
    maps = capture(small, *PAIR)
    reached = np.eye(len(maps.keys))
    for layer, flow in enumerate(rollout(maps).weights[:, 0]):
        there = maps.weights[layer][THERE[layer]].astype(np.float64)
        mixed = there.mean(axis=0) + np.eye(len(reached)) if len(there) else np.eye(len(reached))
        reached = mixed / mixed.sum(axis=-1, keepdims=True) @ reached
        np.testing.assert_allclose(flow, reached, atol=1e-6)
        np.testing.assert_allclose(flow.sum(axis=-1), 1, atol=1e-5)
    flows = rollout(maps).weights
    np.testing.assert_array_equal(flows[1], flows[0], "a layer without heads passes everything on")


def test_lengths_and_shares_of_what_is_carried(models):
    _, small, masked = models
    carried = lengths(small, *PAIR)
    assert_only_there(carried, lengths(masked, *PAIR), atol=1e-5)
    found = norm_weighted(capture(small, *PAIR), carried)
    np.testing.assert_array_equal(found.gone, UNEVEN)
    np.testing.assert_allclose(found.weights[THERE].sum(axis=-1), 1, atol=1e-5)


def test_the_smaller_one_is_compared_with_the_whole(models):
    whole, small, masked = models
    one, two, three = (capture(m, *PAIR) for m in (whole, small, masked))
    alignment = align(one.queries, two.queries)
    found = changes(one, two, alignment)
    assert_only_there(found, changes(one, three, alignment), atol=1e-5)
    np.testing.assert_array_equal(np.isnan(changes(two, one, alignment)), UNEVEN)
    assert largest(found) in LEFT


def test_files_leave_what_is_gone_empty(opened):
    maps = capture(opened()[1], "the cat")
    n = len(maps.queries)
    table = pd.read_csv(io.BytesIO(to_bytes(maps, ".csv")))
    empty = table["weight"].isna().to_numpy().reshape(*SHAPE, n * n)
    np.testing.assert_array_equal(empty, np.broadcast_to(UNEVEN[..., None], empty.shape))

    def no_number(name):
        raise AssertionError(f"{name} is not JSON")

    rows = json.loads(to_bytes(maps, ".json"), parse_constant=no_number)["rows"]
    assert {(row["layer"], row["head"]) for row in rows if row["weight"] is None} == {
        (head.layer, head.index) for head in AWAY
    }
    with np.load(io.BytesIO(to_bytes(maps, ".npz")), allow_pickle=False) as file:
        np.testing.assert_array_equal(file["weights"], maps.weights)


# Many texts


@pytest.mark.parametrize("weighting", ["queries", "texts"])
@pytest.mark.parametrize("specials", SPECIALS)
def test_every_measure_is_that_of_the_heads_that_are_left(models, specials, weighting):
    _, small, masked = models
    options = {"specials": specials, "weighting": weighting, "replicates": 20}
    found, expected = (summarise(m, TEXTS, **options) for m in (small, masked))
    np.testing.assert_array_equal(found.gone, UNEVEN)
    assert not expected.gone.any()
    for name in ("mean", "low", "high", "replicates"):
        one, other = (np.moveaxis(getattr(side, name), (-2, -1), (0, 1)) for side in (found, expected))
        assert_only_there(one, other, atol=2e-5)
    assert (found.focus.places[:, UNEVEN] == -1).all()
    np.testing.assert_array_equal(found.focus.places[:, THERE], expected.focus.places[:, THERE])
    frame = found.frame()
    assert (
        frame[frame["entropy"].isna()][["layer", "head"]].to_numpy().tolist() == np.argwhere(UNEVEN).tolist()
    )
    assert np.nanmax(np.abs(difference(found, expected, LEFT[0], LEFT[0])[0])) < 2e-5
    assert np.isnan(difference(expected, found, AWAY[0], AWAY[0])[0]).all()


def test_a_head_that_is_gone_has_no_role(models):
    _, small, masked = models
    found, expected = (summarise(m, TEXTS, replicates=2) for m in (small, masked))
    names = roles(found)
    assert (names[UNEVEN] == GONE).all()
    assert (names[THERE] == roles(expected)[THERE]).all()
    assert GONE not in {rule.role for rule in RULES}
    assert_only_there(np.moveaxis(scores(found), 0, -1), np.moveaxis(scores(expected), 0, -1), atol=2e-5)


@pytest.mark.parametrize("specials", SPECIALS)
def test_distances_are_between_the_heads_that_are_left(models, specials):
    _, small, masked = models
    found, expected = (distances(m, TEXTS, specials=specials, replicates=10) for m in (small, masked))
    there = np.flatnonzero(THERE)
    np.testing.assert_array_equal(found.there, there)
    np.testing.assert_array_equal(expected.there, np.arange(UNEVEN.size))
    both = np.ix_(there, there)
    for name in ("mean", "low", "high"):
        one, other = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(one[both], other[both], atol=1e-4)
        assert np.isnan(one).sum() == one.size - len(there) ** 2
    left = replace(expected, layers=1, heads=len(there), **{
        name: getattr(found, name)[both] for name in ("mean", "low", "high")
    })  # fmt: skip
    points, stress = distance.place(found)
    assert np.isnan(points[UNEVEN.ravel()]).all()
    np.testing.assert_array_equal(points[there], distance.place(left)[0])
    assert stress == distance.place(left)[1]
    np.testing.assert_array_equal(distance.order(found), there[distance.order(left)])
    nearest, *numbers = distance.twins(found)
    expected_nearest, *expected_numbers = distance.twins(left)
    np.testing.assert_array_equal(nearest[there], there[expected_nearest])
    assert (nearest[UNEVEN.ravel()] == -1).all()
    for one, other in zip(numbers, expected_numbers, strict=True):
        np.testing.assert_array_equal(one[there], other)
        assert np.isnan(one[UNEVEN.ravel()]).all()
    assert distance.frame(found)["distance"].notna().sum() == len(there) * (len(there) - 1) // 2


def test_induction_is_that_of_the_heads_that_are_left(models):
    _, small, masked = models
    found, expected = (induction(m, length=(4, 6), sequences=8) for m in (small, masked))
    for name in ("mean", "low", "high"):
        one, other = (np.moveaxis(getattr(side, name), 0, -1) for side in (found, expected))
        assert_only_there(one, other)


# Heads switched off


ASKED = [
    ("headless", *PAIR),
    ("headless", PAIR[0], None),
    ("classification", *PAIR),
    ("masked", MASKED, None),
]


@pytest.mark.parametrize(("kind", "text", "pair"), ASKED)
def test_what_is_gone_cannot_be_switched_off(opened, kind, text, pair):
    _, small, masked = opened("bert", kind)
    before, expected = answer(small, text, pair), answer(masked, text, pair)
    np.testing.assert_allclose(before.values, expected.values, atol=1e-6)
    assert_only_there(effects(small, text, pair, before), effects(masked, text, pair, expected), atol=1e-5)
    off = mask_of("0.0,0.1,1.2")  # only the first is there
    after, other = answer(small, text, pair, off), answer(masked, text, pair, off)
    np.testing.assert_allclose(after.values, other.values, atol=1e-6)
    assert_only_there(moved(before.maps[0], after.maps[0]), moved(expected.maps[0], other.maps[0]), atol=1e-5)
    again = answer(small, text, pair, UNEVEN)
    np.testing.assert_array_equal(again.values, before.values)


def test_importance_has_no_number_for_what_is_gone(tmp_path):
    problem = problem_of(tmp_path, "similarity")
    found = importance(replace(problem, model=smaller(problem.model, UNEVEN)))
    frame = found.frame()
    for name in ("importance", "importance_normalised", "signed"):
        np.testing.assert_array_equal(frame[name].isna().to_numpy().reshape(SHAPE), UNEVEN)
    assert not importance(problem).frame().isna().any().any()


# Almost nothing left, and nothing


@pytest.mark.parametrize("left", ["2.3", ""])
def test_one_head_and_none(opened, left):
    there = mask_of(left)
    small = smaller(opened()[0], ~there)
    maps = capture(small, *PAIR)
    np.testing.assert_array_equal(maps.gone, ~there)
    flow = rollout(maps).weights
    np.testing.assert_array_equal(flow[:2, 0], np.broadcast_to(np.eye(len(maps.keys)), flow[:2, 0].shape))
    found = summarise(small, TEXTS, replicates=5)
    np.testing.assert_array_equal(roles(found) == GONE, ~there)
    apart = distances(small, TEXTS, replicates=5)
    assert (
        len(distance.order(apart)) == there.sum() == np.isfinite(distance.place(apart)[0]).all(axis=1).sum()
    )
    assert (distance.twins(apart)[0] == -1).all()
    assert np.isnan(induction(small, length=(4, 6), sequences=4).mean).any(axis=0).sum() == (~there).sum()
    change = effects(small, *PAIR, answer(small, *PAIR))
    np.testing.assert_array_equal(np.isnan(change), ~there)
    np.testing.assert_array_equal(np.isnan(lengths(small, *PAIR)).all(axis=-1), ~there)
