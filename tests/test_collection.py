"""The measures of a collection against a plain reference, by hand, and against themselves in other batches."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis import stream
from analysis.capture import capture
from analysis.collection import summarise
from analysis.findings import MEASURES, difference
from analysis.maps import Head, with_specials
from analysis.measures import KINDS, Rows, measure, plan
from analysis.messages import TextError
from analysis.stream import rows_of
from tests import tiny

TEXTS = [
    "The cat sat on the mat, and the dog sat by the door.",
    "Unbelievable!",
    ("A man is playing a guitar.", "A man is playing a flute, isn't he?"),
    "the the the",
    "She did not say that he was wrong; he said so himself.",
    ("Yes.", "No."),
]


def reference(maps, specials):
    """Return {measure: (sum over queries [layer, head], queries)} by plain loops over one text's maps."""
    view = maps if specials == "hide" else with_specials(maps, specials)
    tokens = view.queries
    n = len(tokens)
    sums = {name: [np.zeros(view.weights.shape[:2]), 0] for name in MEASURES}

    def add(name, value):
        sums[name][0] = sums[name][0] + value
        sums[name][1] += 1

    word = ~tokens.special
    first_special = tokens.special & (np.arange(n) == 0)
    last = tokens.special & ~first_special
    marks = np.array([w and all(c in ".,;:!?'" for c in label.removeprefix("##"))
                      for w, label in zip(word, tokens.labels, strict=True)])  # fmt: skip
    sides = [word & (tokens.segment == side) for side in (0, 1)]
    for q in range(n):
        if specials == "hide" and tokens.special[q]:
            continue
        row = view.weights[:, :, q].astype(np.float64)
        bits = -np.where(row > 0, row * np.log2(np.where(row > 0, row, 1)), 0).sum(-1)
        add("entropy", bits)
        add("entropy_normalised", bits / math.log2(n) if n > 1 else bits * 0)
        if first_special[q]:
            add("entropy_cls", bits)
        if not tokens.special[q]:
            add("confidence", row.max(-1))
        top = row.argmax(-1)
        for step, name in ((-1, "previous"), (0, "self"), (1, "next")):
            if 0 <= q + step < n:
                add(name, row[..., q + step])
                add(f"argmax_{name}", top == q + step)
        for name, those in (("cls", first_special), ("sep", last)):
            if those.any():
                add(name, row[..., those].sum(-1))
        add("punctuation", row[..., marks].sum(-1))
        add("distance", (row * np.abs(np.arange(n) - q)).sum(-1))
        same = (tokens.ids == tokens.ids[q]) & (np.arange(n) != q) & word
        if same.any():
            add("same_word", row[..., same].sum(-1))
        if sides[1].any():
            for i, a in enumerate("ab"):
                for j, b in enumerate("ab"):
                    if sides[i][q]:
                        add(f"block_{a}{b}", row[..., sides[j]].sum(-1))
    return sums


@pytest.mark.parametrize("weighting", ["queries", "texts"])
@pytest.mark.parametrize("specials", ["keep", "hide", "renormalise"])
def test_the_measures_equal_a_plain_reference(bundled, specials, weighting):
    found = summarise(bundled, TEXTS, specials=specials, weighting=weighting, replicates=20)
    alone = [
        reference(capture(bundled, *([text] if isinstance(text, str) else text)), specials) for text in TEXTS
    ]
    for name in MEASURES:
        parts = [(total, count) for total, count in (one[name] for one in alone) if count]
        table = found.table(name)
        if not parts:
            assert np.isnan(table).all(), name
        elif weighting == "queries":
            wanted = sum(total for total, _ in parts) / sum(count for _, count in parts)
            np.testing.assert_allclose(table, wanted, atol=2e-6, err_msg=name)
        else:
            wanted = np.mean([total / count for total, count in parts], axis=0)
            np.testing.assert_allclose(table, wanted, atol=2e-6, err_msg=name)
    assert found.texts == len(TEXTS)


@pytest.mark.parametrize(("kind", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("specials", ["keep", "hide", "renormalise"])
def test_the_measures_equal_a_plain_reference_on_the_same_maps(bundled, specials, kind, tolerance):
    if specials == "renormalise":  # the view of the reference brings its rows back to 1 in float32
        tolerance = 1e-6
    for text in TEXTS:
        maps = capture(bundled, *([text] if isinstance(text, str) else text))
        wanted = reference(maps, specials)
        tokens = maps.queries
        rows = rows_of(bundled, [{"input_ids": tokens.ids.tolist()}], [tokens.segment.tolist()])
        prepared = plan(replace(rows, kinds=rows.kinds.to(kind)), specials)
        counts = prepared.counts[0, :, None].double()
        for layer, weights in enumerate(maps.weights):
            found = measure(torch.from_numpy(weights)[None].to(kind), None, prepared)[0].double() / counts
            for name, row in zip(MEASURES, found.numpy(), strict=True):
                total, count = wanted[name]
                if count:
                    np.testing.assert_allclose(
                        row, total[layer] / count, rtol=tolerance, atol=tolerance, err_msg=name
                    )
                else:
                    assert np.isnan(row).all()


@pytest.mark.parametrize("specials", ["keep", "renormalise"])
def test_batches_and_padding_change_nothing(bundled, monkeypatch, specials):
    together = summarise(bundled, TEXTS, specials=specials, replicates=10)
    monkeypatch.setattr(stream, "TOKENS", 1)  # every text alone
    monkeypatch.setattr(stream, "CHUNK", 2)
    alone = summarise(bundled, reversed(TEXTS), specials=specials, replicates=10)
    np.testing.assert_allclose(together.mean, alone.mean, atol=1e-5)
    assert together.queries == alone.queries


def test_the_bundled_model_has_the_heads_it_is_known_for(bundled):
    texts = [text for text in TEXTS if isinstance(text, str)] * 3
    found = summarise(bundled, texts, replicates=10)
    assert found.table("previous")[0, 2] > 0.9
    assert found.table("argmax_previous")[0, 2] > 0.9
    assert found.table("next")[1, 8] > 0.3
    assert (found.table("cls")[1:5].mean(axis=1) > 0.35).all()


def rows_by_hand(n, *, special=(), side=None):
    kinds = torch.zeros(1, n, len(KINDS))
    for i in range(n):
        if i in special:
            kinds[0, i, KINDS.index("cls" if i == 0 else "sep")] = 1
        else:
            kinds[0, i, KINDS.index("a" if side is None or side[i] == 0 else "b")] = 1
    flags = torch.tensor([[i in special for i in range(n)]])
    return Rows(
        real=torch.ones(1, n, dtype=torch.bool), special=flags, kinds=kinds, ids=torch.arange(n)[None]
    )


def by_hand(weights, rows, specials="keep"):
    prepared = plan(rows, specials)
    sums = measure(torch.tensor(weights, dtype=torch.float32)[None, None], None, prepared)[0, :, 0]
    return dict(zip(MEASURES, (sums / prepared.counts[0]).tolist(), strict=True))


def test_a_shifted_identity_by_hand():
    shifted = np.eye(4, k=-1)
    shifted[0, 0] = 1  # the first token has no previous one and looks at itself
    found = by_hand(shifted, rows_by_hand(4))
    assert found["entropy"] == found["entropy_normalised"] == 0.0
    assert found["previous"] == found["argmax_previous"] == found["confidence"] == 1.0
    assert found["self"] == found["argmax_self"] == 0.25
    assert found["next"] == found["argmax_next"] == 0.0
    assert found["distance"] == 0.75


def test_uniform_rows_by_hand():
    found = by_hand(np.full((4, 4), 0.25), rows_by_hand(4, special=(0, 3)))
    assert found["entropy"] == found["entropy_cls"] == 2.0
    assert found["entropy_normalised"] == 1.0
    assert found["cls"] == found["sep"] == found["self"] == found["previous"] == 0.25
    assert found["distance"] == pytest.approx((6 + 4 + 4 + 6) / 16)
    left = by_hand(np.full((4, 4), 0.25), rows_by_hand(4, special=(0, 3)), "renormalise")
    assert left["entropy"] == 1.0
    assert math.isnan(left["cls"])
    assert left["previous"] == 0.5


def test_one_token_has_no_entropy():
    found = by_hand([[1.0]], rows_by_hand(1))
    assert found["entropy"] == found["entropy_normalised"] == 0.0
    assert math.isnan(found["previous"])


def test_blocks_of_a_pair_by_hand():
    weights = np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    found = by_hand(weights, rows_by_hand(3, side=[0, 1, 1]))
    assert [found[f"block_{name}"] for name in ("aa", "ab", "ba", "bb")] == [0.5, 0.5, 0.5, 0.5]


def test_the_interval_holds_the_mean_and_narrows(bundled):
    few = summarise(bundled, TEXTS * 2, replicates=200)
    many = summarise(bundled, TEXTS * 12, replicates=200)
    i = few.names.index("entropy")
    assert (few.low[i] <= few.mean[i]).all()
    assert (few.mean[i] <= few.high[i]).all()
    narrower = (many.high[i] - many.low[i]) / (few.high[i] - few.low[i]).clip(1e-12)
    assert 0.25 < np.median(narrower) < 0.65  # 1 / sqrt(6) = 0.41
    again = summarise(bundled, TEXTS * 2, replicates=200)
    np.testing.assert_array_equal(few.low, again.low)


def test_the_poisson_interval_is_that_of_the_plain_bootstrap(bundled):
    from scipy.stats import bootstrap

    texts = [f"{word} and {word} ran over the {noise}" for word in ("a cat", "dogs", "we", "it", "people")
             for noise in ("hill", "unbelievable bridge", "road, slowly", "sea", "old town!")]  # fmt: skip
    found = summarise(bundled, texts, weighting="texts", replicates=1000)
    i = found.names.index("entropy")
    values = [capture(bundled, text).weights for text in texts]
    entropies = np.array([-(w * np.log2(w.clip(1e-30))).sum(-1).mean(-1)[3, 1] for w in values])
    plain = bootstrap((entropies,), np.mean, n_resamples=2000, method="percentile", rng=0).confidence_interval
    width = plain.high - plain.low
    assert abs(found.low[i, 3, 1] - plain.low) < 0.2 * width
    assert abs(found.high[i, 3, 1] - plain.high) < 0.2 * width


def test_the_frame_has_a_row_a_head(bundled):
    frame = summarise(bundled, TEXTS, replicates=10).frame()
    assert len(frame) == 72
    assert frame.columns.tolist()[:5] == ["layer", "head", "entropy", "entropy_low", "entropy_high"]
    assert frame[["layer", "head"]].values.tolist()[13] == [1, 1]


def test_nothing_to_read_is_refused_and_blank_lines_are_left_out(bundled):
    with pytest.raises(TextError, match="nothing to read"):
        summarise(bundled, ["", "  ", ("a", " ")], replicates=2)
    assert summarise(bundled, ["", "a cat", " "], replicates=2).texts == 1


def test_progress_is_told_and_can_end_the_run(bundled):
    class Cancelled(Exception):
        pass

    seen = []

    def on_progress(done):
        seen.append(done)
        raise Cancelled

    with pytest.raises(Cancelled):
        summarise(bundled, TEXTS, replicates=2, on_progress=on_progress)
    assert len(seen) == 1


@pytest.mark.parametrize("family", ["roberta", "distilbert", "modernbert", "albert"])
def test_other_families_are_measured_alike(tmp_path, family):
    from analysis.models import open_model

    model = open_model(str(tiny.save_tiny(tmp_path / family, family)))
    texts = ["the cat sat on the mat and the dog sat", "the dog"]
    found = summarise(model, texts, replicates=5)
    parts = [capture(model, text) for text in texts]
    weights = [part.weights.astype(np.float64) for part in parts]
    bits = [-np.where(w > 0, w * np.log2(w.clip(1e-300)), 0).sum(-1) for w in weights]
    np.testing.assert_allclose(found.table("entropy"), np.concatenate(bits, axis=-1).mean(-1), atol=2e-5)
    rows = rows_of(model, [{"input_ids": part.queries.ids.tolist()} for part in parts],
                   [part.queries.segment.tolist() for part in parts])  # fmt: skip
    assert rows.real.sum(1).tolist() == [len(part.queries) for part in parts]
    assert rows.special[0, : len(parts[0].queries)].tolist() == parts[0].queries.special.tolist()


def test_the_toy_is_measured_like_its_maps():
    from analysis.toy import make_toy

    toy = make_toy()
    texts = ["The cat saw the cat.", ("It ran.", "It hid!")]
    found = summarise(toy, texts, replicates=5)
    assert found.mean.shape[1:] == (1, 8)
    maps = [capture(toy, "The cat saw the cat."), capture(toy, "It ran.", "It hid!")]
    alone = [reference(one, "keep") for one in maps]
    for name in ("entropy", "punctuation", "block_ab", "distance"):
        sums = [one[name] for one in alone if one[name][1]]
        wanted = sum(total for total, _ in sums) / sum(count for _, count in sums)
        np.testing.assert_allclose(found.table(name), wanted, atol=2e-6, err_msg=name)
    cats = (
        maps[0].weights[0, :, [0, 1, 3, 4], [3, 4, 0, 1]].sum(0)
    )  # the and cat stand twice, it in two sentences
    its = maps[1].weights[0, :, [0, 3], [3, 0]].sum(0)
    np.testing.assert_allclose(found.table("same_word")[0], (cats + its) / 6, atol=1e-6)
    assert np.isnan(found.table("cls")).all()  # there is no [CLS] that it could look at


def test_the_texts_a_head_is_most_and_least_focused_on(bundled):
    texts = [text for text in TEXTS if isinstance(text, str)] + ["", "Birds sing at dawn."]
    found = summarise(bundled, texts, replicates=2)
    from analysis.statistics import head_entropy

    shares = {i: head_entropy(capture(bundled, text))[1] for i, text in enumerate(texts) if text}
    for layer, head in ((0, 2), (3, 1), (5, 11)):
        ranked = sorted(shares, key=lambda i: shares[i][layer, head])
        for end, wanted in enumerate((ranked, ranked[::-1])):
            places = found.focus.places[end, layer, head]
            assert places[: len(wanted)].tolist() == wanted
            assert set(places[len(wanted) :].tolist()) == {-1}
            values = [shares[i][layer, head] for i in wanted]
            np.testing.assert_allclose(
                found.focus.entropy[end, layer, head, : len(wanted)], values, atol=1e-5
            )


def test_only_so_many_texts_are_remembered_of_many_batches(bundled, monkeypatch):
    texts = [f"{'very ' * i}small" for i in range(20)]
    whole = summarise(bundled, texts, replicates=2)
    monkeypatch.setattr(stream, "TOKENS", 40)
    small = summarise(bundled, texts, replicates=2)
    assert whole.focus.places.shape == (2, 6, 12, 8)
    np.testing.assert_allclose(whole.focus.entropy, small.focus.entropy, atol=1e-5)


def test_two_heads_are_compared_text_by_text(bundled):
    found = summarise(bundled, TEXTS * 4, replicates=300)
    head, other = Head(3, 1), Head(5, 8)
    mean, low, high = difference(found, found, head, other)
    i = found.names.index("entropy")
    assert mean[i] == pytest.approx(found.mean[i, 3, 1] - found.mean[i, 5, 8])
    assert low[i] <= mean[i] <= high[i]
    unpaired = np.hypot(found.high[i, 3, 1] - found.low[i, 3, 1], found.high[i, 5, 8] - found.low[i, 5, 8])
    assert 0 < high[i] - low[i] < unpaired
    none, *ends = difference(found, found, head, head)
    assert np.nan_to_num(none).max() == 0
    assert [np.nan_to_num(end).max() for end in ends] == [0, 0]


def test_what_a_replicate_counts_depends_on_the_place_alone(bundled, sst2, monkeypatch):
    ours = summarise(bundled, TEXTS, replicates=50)
    monkeypatch.setattr(stream, "TOKENS", 30)
    again = summarise(bundled, TEXTS, replicates=50)
    np.testing.assert_allclose(ours.low, again.low, atol=1e-5)
    same = summarise(sst2, TEXTS, replicates=50)  # the same tokenizer: its counts of queries are the same
    assert same.queries == ours.queries
