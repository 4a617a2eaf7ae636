"""The distance between heads: by hand, against scipy by plain loops, and what is drawn and sorted by it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon, pdist, squareform
from scipy.special import softmax

from analysis import distance, stream
from analysis.capture import capture
from analysis.distance import HeadDistances, distances, divergences, frame, order, place, twins
from analysis.maps import with_specials
from analysis.messages import OptionError, TextError
from analysis.models import open_model
from analysis.toy import make_toy
from tests import planted, tiny

TEXTS = [
    "The cat sat on the mat, and the dog sat by the door.",
    "Unbelievable!",
    ("A man is playing a guitar.", "A man is playing a flute, isn't he?"),
    "She did not say that he was wrong; he said so himself.",
]


def by_hand(*rows):
    """Return the divergences of heads that have one row each."""
    return divergences(np.array(rows, dtype=np.float32)[:, None]).tolist()


def made_up(mean):
    """Return distances with this matrix."""
    mean = np.asarray(mean, dtype=float)
    return HeadDistances(1, len(mean), mean, mean, mean, 1, 1, "keep")


def reference(source, texts, specials, chosen=None):
    """Return the mean divergence [one, other] over the queries of ``texts``, pair by pair with scipy."""
    parts = []  # of each text: [head, query, key]
    for text in texts:
        maps = capture(source, *([text] if isinstance(text, str) else text))
        if specials == "renormalise":
            maps = with_specials(maps, specials)
        weights = maps.weights.astype(np.float64).reshape(-1, *maps.weights.shape[2:])
        if specials == "hide":
            weights = weights[:, ~maps.queries.special]
        parts.append(weights if chosen is None else weights[:, chosen])
    heads = len(parts[0])
    wanted = np.zeros((heads, heads))
    for one in range(heads):
        for other in range(one + 1, heads):
            found = [jensenshannon(part[one], part[other], base=2, axis=-1) ** 2 for part in parts]
            wanted[one, other] = wanted[other, one] = np.concatenate(found).mean()
    return wanted, sum(part.shape[1] for part in parts)


def test_equal_rows_are_0_apart_and_disjoint_ones_1():
    assert by_hand([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]) == [0.0]
    assert by_hand([1, 0, 0], [0, 0, 1]) == [1.0]
    assert by_hand([0.5, 0.5, 0, 0], [0, 0, 0.25, 0.75]) == [pytest.approx(1.0)]


@pytest.mark.parametrize("n", [2, 3, 8, 100])
def test_an_even_row_against_one_key_by_hand(n):
    m = (1 + 1 / n) / 2  # the mean row on that key; on the others 1 / (2 n)
    wanted = -m * np.log2(m) + (n - 1) / (2 * n) * np.log2(2 * n) - np.log2(n) / 2
    assert by_hand([1 / n] * n, [1] + [0] * (n - 1)) == [pytest.approx(wanted, abs=1e-6)]


def test_pairs_run_row_by_row_and_queries_add_up():
    one, other = [1.0, 0.0], [0.0, 1.0]
    rows = np.array([[one, one], [one, other], [other, other]])  # [head, query, key]
    assert divergences(rows).tolist() == [1.0, 2.0, 1.0]
    assert divergences(rows[:1]).tolist() == []


@given(heads=st.integers(1, 6), queries=st.integers(1, 4), keys=st.integers(1, 9), seed=st.integers(0, 10**6),
       sharpness=st.sampled_from([0.0, 1.0, 30.0, 300.0]))  # fmt: skip
def test_divergences_are_symmetric_within_0_and_1_and_right(heads, queries, keys, seed, sharpness):
    random = np.random.default_rng(seed)
    rows = softmax(sharpness * random.standard_normal((heads, queries, keys)), axis=-1)
    rows[rows < 1e-30] = 0  # float32 holds no less, and scipy's own divergence overflows there
    rows[-1] = rows[0]
    found = squareform(divergences(rows.astype(np.float32)) / queries)
    assert found.min() >= -1e-6
    assert found.max() <= 1 + 1e-6
    assert found[0, -1] == 0
    back = squareform(divergences(rows[::-1].astype(np.float32)) / queries)
    np.testing.assert_allclose(found, back[::-1, ::-1], atol=1e-6)
    for i in range(heads):
        for j in range(i):
            wanted = np.nan_to_num(jensenshannon(rows[i], rows[j], base=2, axis=-1)) ** 2
            assert found[i, j] == pytest.approx(wanted.mean(), abs=2e-6)


@pytest.mark.parametrize("specials", ["keep", "hide", "renormalise"])
def test_distances_equal_a_plain_reference(bundled, specials):
    found = distances(bundled, TEXTS, specials=specials, replicates=5)
    wanted, queries = reference(bundled, TEXTS, specials)
    np.testing.assert_allclose(found.mean, wanted, atol=1e-5)
    assert (found.layers, found.heads, found.texts, found.queries) == (6, 12, len(TEXTS), queries)
    assert found.specials == specials


@pytest.mark.parametrize("family", ["roberta", "distilbert", "modernbert", "albert"])
def test_other_families_are_compared_alike(tmp_path, family):
    model = open_model(str(tiny.save_tiny(tmp_path / family, family)))
    texts = ["the cat sat on the mat and the dog sat", "the dog"]
    np.testing.assert_allclose(distances(model, texts).mean, reference(model, texts, "keep")[0], atol=1e-5)


def test_the_toy_is_compared_like_its_maps():
    toy = make_toy()
    texts = ["The cat saw the cat.", ("It ran.", "It hid!")]
    np.testing.assert_allclose(distances(toy, texts).mean, reference(toy, texts, "keep")[0], atol=1e-5)


def test_a_matrix_of_distances_is_one(bundled):
    found = distances(bundled, TEXTS, replicates=50)
    for table in (found.mean, found.low, found.high):
        assert table.shape == (72, 72)
        assert np.array_equal(table, table.T)
        assert (np.diag(table) == 0).all()
        assert not np.signbit(table).any()
        assert table.max() <= 1
    assert (found.low <= found.high).all()
    assert found.mean[~np.eye(72, dtype=bool)].min() > 0


def test_batches_padding_and_the_order_of_texts_change_nothing(bundled, monkeypatch):
    together = distances(bundled, TEXTS, replicates=5)
    monkeypatch.setattr(stream, "TOKENS", 1)  # every text alone
    again = distances(bundled, TEXTS, replicates=5)
    np.testing.assert_allclose(together.low, again.low, atol=1e-5)  # what is drawn depends on the place alone
    monkeypatch.setattr(stream, "CHUNK", 2)
    alone = distances(bundled, reversed(TEXTS), replicates=5)
    np.testing.assert_allclose(together.mean, alone.mean, atol=1e-5)
    assert (together.texts, together.queries) == (alone.texts, alone.queries)


def test_many_groups_are_measured_as_one(bundled, monkeypatch):
    texts = [f"{'very ' * (i % 7)}small" for i in range(20)]
    whole = distances(bundled, texts, replicates=20)
    monkeypatch.setattr(distance, "GROUP", 4)
    parts = distances(bundled, iter(texts), replicates=20)
    for name in ("mean", "low", "high"):
        np.testing.assert_allclose(getattr(whole, name), getattr(parts, name), atol=1e-5)


@pytest.mark.parametrize("most", [1, 12, 40])
def test_a_large_collection_is_measured_on_its_first_texts(bundled, most):
    texts = ["a long text that stands first of all", "", *["short", "a cat sat"] * 5]
    lengths = [len(capture(bundled, text).queries) for text in texts if text]
    first = int(np.searchsorted(np.cumsum(lengths), most)) + 1
    found = distances(bundled, texts, replicates=5, most_queries=most)
    assert (found.texts, found.queries) == (first, sum(lengths[:first]))
    wanted = distances(bundled, [text for text in texts if text][:first], replicates=5)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-5)


def test_a_long_text_shows_evenly_spaced_queries(bundled, monkeypatch):
    text = "the " * 14  # 16 tokens
    assert distances(bundled, [text], replicates=2).queries == 16
    monkeypatch.setattr(distance, "CELLS", 64)
    found = distances(bundled, [text], replicates=2)
    assert found.queries == 4
    np.testing.assert_allclose(
        found.mean, reference(bundled, [text], "keep", chosen=[2, 6, 10, 14])[0], atol=1e-5
    )


def test_a_row_with_nothing_left_has_nothing_in_common(tmp_path):
    model = planted.open_planted(tmp_path)
    planted.parts(model.network.encoder.layer[0].attention, 2)[0].mul_(3)  # now exactly 0 beside [CLS]
    found = distances(model, ["the cat sat on a mat"], specials="renormalise")
    others = np.arange(8) != 2
    np.testing.assert_allclose(found.mean[2, others], 1, atol=1e-6)
    assert found.mean[2, 2] == 0
    assert np.isfinite(found.mean).all()


def test_intervals_hold_the_mean_and_narrow(bundled):
    few = distances(bundled, TEXTS * 2, replicates=200)
    many = distances(bundled, TEXTS * 12, replicates=200)
    pairs = np.triu_indices(72, 1)
    assert (few.low <= few.mean).all()
    assert (few.mean <= few.high).all()
    narrower = (many.high - many.low)[pairs] / (few.high - few.low)[pairs]
    assert 0.25 < np.median(narrower) < 0.65  # 1 / sqrt(6) = 0.41


def test_a_copied_head_is_the_twin_and_stands_beside_it(tmp_path):
    model = open_model(str(tiny.save_tiny(tmp_path)))
    attention = model.network.encoder.layer[1].attention.self
    size = tiny.WIDTH // tiny.HEADS
    for layer in (attention.query, attention.key):
        for table in (layer.weight, layer.bias):
            table[3 * size :] = table[size : 2 * size]
    found = distances(model, ["the cat sat on the mat", "the dog ran and it was tired"])
    one, other = tiny.HEADS + 1, tiny.HEADS + 3
    nearest, mean, low, high = twins(found)
    assert (nearest[one], nearest[other]) == (other, one)
    assert mean[one] == low[one] == high[one] == 0
    assert mean[0] > 0
    assert low[0] <= mean[0] <= high[0]
    line = order(found).tolist()
    assert abs(line.index(one) - line.index(other)) == 1


def test_order_puts_the_heads_of_a_cluster_together():
    kinds = np.random.default_rng(0).permutation(np.repeat(np.arange(4), 6))
    mean = np.where(kinds[:, None] == kinds[None], 0.05, 0.8) * ~np.eye(24, dtype=bool)
    line = order(made_up(mean))
    assert sorted(line) == list(range(24))
    assert (np.diff(kinds[line]) != 0).sum() == 3


def test_the_map_gives_back_a_planted_plane():
    points = np.random.default_rng(1).uniform(0, 0.7, (30, 2))
    placed, stress = place(made_up(squareform(pdist(points))))
    np.testing.assert_allclose(pdist(placed), pdist(points), atol=1e-2)
    assert 0 <= stress < 1e-3
    turned = points @ np.array([[0.6, -0.8], [0.8, 0.6]]) * [1, -1]
    again, _stress = place(made_up(squareform(pdist(turned))))
    np.testing.assert_allclose(placed, again, atol=1e-2)  # whichever way it was turned


def test_the_map_of_the_bundled_model_is_the_same_again_without_a_warning(bundled):
    found = distances(bundled, TEXTS, replicates=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        points, stress = place(found)
        order(found)
    assert points.shape == (72, 2)
    np.testing.assert_array_equal(points, place(found)[0])
    np.testing.assert_allclose(points.mean(axis=0), 0, atol=1e-9)
    assert np.ptp(points[:, 0]) > np.ptp(points[:, 1]) / 2
    apart = squareform(pdist(points))
    true = found.mean
    assert stress == pytest.approx(np.sqrt(((apart - true) ** 2).sum() / (true**2).sum()), abs=0.05)
    assert np.corrcoef(pdist(points), squareform(true))[0, 1] > 0.8


def test_a_plane_cannot_hold_heads_all_equally_far_apart():
    assert place(made_up(1 - np.eye(20)))[1] > 0.2


def test_one_head_stands_alone():
    found = distances(make_toy(num_heads=1), ["a cat sat"])
    assert found.mean.tolist() == found.low.tolist() == [[0.0]]
    points, stress = place(found)
    assert points.tolist() == [[0.0, 0.0]]
    assert stress == 0
    assert order(found).tolist() == [0]
    nearest, *rest = twins(found)
    assert nearest.tolist() == [-1]
    assert np.isnan(rest).all()
    assert len(frame(found)) == 0


@pytest.mark.parametrize("heads", [2, 3, 5])
def test_few_heads_and_equal_heads_have_a_place(heads):
    apart = 1 - np.eye(heads)
    assert np.isfinite(place(made_up(apart))[0]).all()
    assert (place(made_up(apart * 0))[0] == 0).all()


def test_the_frame_has_a_row_a_pair(bundled):
    found = distances(bundled, TEXTS[:2], replicates=5)
    table = frame(found)
    assert table.columns.tolist() == ["layer_a", "head_a", "layer_b", "head_b", "distance", "low", "high"]
    assert len(table) == 72 * 71 // 2
    row = table[(table.layer_a == 1) & (table.head_a == 8) & (table.layer_b == 3) & (table.head_b == 0)]
    assert row.distance.item() == found.mean[20, 36]
    assert row.high.item() == found.high[20, 36]


def test_nothing_to_read_and_no_query_are_refused(bundled):
    with pytest.raises(TextError, match="nothing to read"):
        distances(bundled, ["", " "])
    with pytest.raises(TextError, match="nothing to read"):
        distances(bundled, ["[SEP]"], specials="renormalise")
    with pytest.raises(OptionError, match="1 at least"):
        distances(bundled, TEXTS, most_queries=0)


def test_progress_is_told_and_can_end_the_run(bundled):
    class Cancelled(Exception):
        pass

    seen = []

    def on_progress(done):
        seen.append(done)
        raise Cancelled

    with pytest.raises(Cancelled):
        distances(bundled, TEXTS, on_progress=on_progress)
    assert seen == [4]
