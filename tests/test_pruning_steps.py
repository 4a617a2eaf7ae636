"""How many heads go at each step, and which may: what is gone, kept or protected stays, and bad limits are one sentence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.maps import Head
from analysis.messages import OptionError
from analysis.pruning import Limits, path, remove_lowest, steps
from tests import tiny
from tests.test_importance import problem_of
from tests.test_surgery import UNEVEN

SHAPE = tiny.LAYERS, tiny.HEADS
NOTHING = np.zeros(SHAPE, dtype=bool)
DEFAULT = Limits()
GONE = st.lists(st.booleans(), min_size=12, max_size=12).map(lambda row: np.array(row).reshape(SHAPE))
PLACES = st.tuples(st.integers(0, 2), st.integers(0, 3))


def allowed(gone, mask, limits):
    """Return the heads that may still go, lowest place first, straight from what `Limits` says."""
    protected = {(head.layer, head.index) for head in limits.protected}
    left = (~gone & ~mask).sum(axis=1)
    return [(layer, head) for layer, head in np.argwhere(~gone & ~mask).tolist()
            if (layer, head) not in protected and left[layer] > limits.keep]  # fmt: skip


def lowest(scores, mask, count, gone=NOTHING, limits=DEFAULT):
    """Return the mask with the lowest of those that may go added, one at a time."""
    mask = mask.copy()
    while mask.sum() < count:
        mask[min(allowed(gone, mask, limits), key=lambda place: scores[place])] = True
    return mask


@given(GONE, st.lists(PLACES, max_size=5, unique=True), st.integers(0, 4), st.floats(0, 1))
def test_the_steps_end_with_all_that_may_go(gone, protected, keep, step):
    limits = Limits(step, keep, tuple(Head(*place) for place in protected))
    everything = NOTHING.copy()
    while places := allowed(gone, everything, limits):
        everything[places[-1]] = True
    if not everything.any():
        with pytest.raises(OptionError, match="Nothing may be removed"):
            steps(gone, limits)
        return
    counts = steps(gone, limits)
    size = max(1, round(step * int((~gone).sum())))
    assert (counts[0], counts[-1]) == (0, everything.sum())
    each = np.diff(counts)
    assert (each[:-1] == size).all()
    assert 0 < each[-1] <= size


@given(
    GONE, st.lists(PLACES, max_size=4, unique=True), st.integers(0, 3), st.lists(
        st.integers(-3, 3), min_size=12, max_size=12), st.integers(0, 12)
)  # fmt: skip
def test_the_lowest_that_may_go_are_removed(gone, protected, keep, scores, count):
    limits = Limits(0.1, keep, tuple(Head(*place) for place in protected))
    scores = np.array(scores, dtype=float).reshape(SHAPE)
    most = NOTHING.copy()
    while places := allowed(gone, most, limits):
        most[places[0]] = True
    count = min(count, int(most.sum()))
    half = lowest(scores, NOTHING, count // 2, gone, limits)
    found = remove_lowest(scores, half, count, gone, limits)
    np.testing.assert_array_equal(found, lowest(scores, half, count, gone, limits))
    assert found.sum() == count
    assert not half[~found].any()
    left = (~gone & ~found).sum(axis=1)
    assert (left >= np.minimum((~gone).sum(axis=1), keep)).all()
    assert not any(found[place] for place in protected)


def test_the_steps_by_hand():
    assert steps(NOTHING, Limits()) == list(range(13))
    assert steps(NOTHING, Limits(step=0.0)) == list(range(13))
    assert steps(np.zeros((6, 12), dtype=bool), Limits()) == [*range(0, 72, 7), 72]
    assert steps(NOTHING, Limits(step=0.4, keep=1)) == [0, 5, 9]
    assert steps(NOTHING, Limits(step=1.0)) == [0, 12]
    assert steps(UNEVEN, Limits(step=0.5, protected=(Head(2, 3),))) == [0, 2, 4]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(keep=-1), "To keep -1 heads a layer is not possible: give 0 to 4."),
        (Limits(keep=5), "To keep 5 heads a layer is not possible: give 0 to 4."),
        (Limits(step=-0.1), "The step -0.1 is no share: give 0 (one head) to 1."),
        (Limits(step=10.0), "The step 10.0 is no share: give 0 (one head) to 1."),
        (Limits(step=float("nan")), "The step nan is no share"),
        (Limits(keep=4), "Nothing may be removed"),
        (Limits(protected=tuple(Head(*divmod(i, 4)) for i in range(12))), "Nothing may be removed"),
        (Limits(protected=(Head(3, 0),)), "There is no head L3·H0 in 3 layers x 4 heads"),
        (Limits(protected=(Head(0, 4),)), "There is no head L0·H4 in 3 layers x 4 heads"),
        (Limits(protected=(Head(1, 1), Head(1, 1))), "Head L1·H1 is given twice."),
    ],
)
def test_bad_limits_are_one_sentence(tmp_path, limits, said):
    problem = problem_of(tmp_path, "masked")
    for ask in (lambda: steps(NOTHING, limits), lambda: path("random", problem, limits)):
        with pytest.raises(OptionError) as caught:
            ask()
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
