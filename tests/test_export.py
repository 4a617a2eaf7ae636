"""Maps as files: what was written is what is read, whatever the tokens hold."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.capture import attend, toy_tokens
from analysis.export import LONG_COLUMNS, check_suffix, layer_frames, long_form, save, to_bytes
from analysis.maps import Head
from analysis.messages import OptionError
from analysis.toy import make_toy
from tests.test_maps import random_maps

ODD = [
    "a,b",
    '"',
    "'",
    "</script>",
    "<b>&amp;",
    "😀",
    "你",
    "=1+1",
    " x",
    "NaN",
    "null",
    "1.0",
    "\\",
    "é",
    "a;b",
    "x\ty",
]


def maps_of(labels, **options):
    """Return random maps whose tokens carry these labels."""
    maps = random_maps([["w"] for _ in labels], layers=2, heads=2, **options)
    tokens = replace(maps.queries, labels=tuple(labels))
    return replace(maps, queries=tokens, keys=tokens)


LABELS = st.lists(
    st.sampled_from(ODD) | st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=5),
    min_size=1,
    max_size=5,
)


@settings(max_examples=30)
@given(labels=LABELS, seed=st.integers(0, 50))
def test_csv_comes_back(labels, seed):
    maps = maps_of(labels, seed=seed)
    frame = pd.read_csv(
        io.BytesIO(to_bytes(maps, ".csv")),
        keep_default_na=False,
        dtype={"query_token": str, "key_token": str},
    )
    assert list(frame.columns) == LONG_COLUMNS
    expected = pd.concat(list(layer_frames(maps)), ignore_index=True)
    assert len(frame) == maps.weights.size
    np.testing.assert_array_equal(frame["weight"].to_numpy(np.float32), maps.weights.ravel())
    for name in LONG_COLUMNS[:-1]:
        assert frame[name].tolist() == expected[name].tolist()


@settings(max_examples=30)
@given(labels=LABELS, seed=st.integers(0, 50))
def test_json_comes_back(labels, seed):
    maps = maps_of(labels, seed=seed)
    data = json.loads(to_bytes(maps, ".json"))
    assert data["model"] == "test"
    assert data["texts"] == list(maps.queries.texts)
    assert [token["token"] for token in data["tokens"]] == labels
    assert [token["id"] for token in data["tokens"]] == maps.queries.ids.tolist()
    assert data["tokens"] == data["key_tokens"]
    rows = data["rows"]
    assert list(rows[0]) == LONG_COLUMNS
    np.testing.assert_allclose([row["weight"] for row in rows], maps.weights.ravel(), atol=1e-9)
    assert [row["query_token"] for row in rows] == [labels[row["query"]] for row in rows]
    assert [row["key_token"] for row in rows] == [labels[row["key"]] for row in rows]


@settings(max_examples=30)
@given(labels=LABELS, seed=st.integers(0, 50), window=st.none() | st.integers(0, 2))
def test_npz_comes_back_without_pickles(labels, seed, window):
    maps = maps_of(labels, seed=seed, window=window)
    with np.load(io.BytesIO(to_bytes(maps, ".npz")), allow_pickle=False) as data:
        np.testing.assert_array_equal(data["weights"], maps.weights)
        assert data["weights"].dtype == np.float32
        assert data["tokens"].tolist() == data["key_tokens"].tolist() == labels
        assert str(data["model"]) == "test"
        assert data["texts"].tolist() == list(maps.queries.texts)
        for name in ("ids", "spans", "special", "segment", "word"):
            np.testing.assert_array_equal(data[name], getattr(maps.queries, name))
        assert ("attendable" in data) == (window is not None)
        if window is not None:
            np.testing.assert_array_equal(data["attendable"], maps.attendable)


def test_the_long_form_by_hand():
    maps = replace(maps_of(["a", "a"]), first=Head(3, 5))
    frame = long_form(maps, 1)
    assert frame.columns.tolist() == LONG_COLUMNS
    assert frame["layer"].unique().tolist() == [4]
    assert frame["head"].tolist() == [5] * 4 + [6] * 4
    assert frame["query"].tolist() == [0, 0, 1, 1] * 2
    assert frame["key"].tolist() == [0, 1, 0, 1] * 2
    np.testing.assert_array_equal(frame["weight"], maps.weights[1].ravel())


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_one_head_keeps_its_numbers(suffix):
    maps = maps_of(["a", "b"])
    data = to_bytes(maps.at(Head(1, 1)), suffix)
    rows = json.loads(data)["rows"] if suffix == ".json" else pd.read_csv(io.BytesIO(data)).to_dict("records")
    assert {(row["layer"], row["head"]) for row in rows} == {(1, 1)}
    assert rows[1]["weight"] == pytest.approx(float(maps.weights[1, 1, 0, 1]), rel=1e-6)


def test_one_head_in_npz_says_which_it_is():
    data = np.load(io.BytesIO(to_bytes(maps_of(["a", "b"]).at(Head(1, 1)), ".npz")), allow_pickle=False)
    assert data["first_head"].tolist() == [1, 1]
    assert data["weights"].shape == (1, 1, 2, 2)


def test_maps_from_one_sequence_to_another_keep_both():
    maps = attend(make_toy(d_model=8, num_heads=2), toy_tokens("fish eat"), toy_tokens("the big fish"))
    with np.load(io.BytesIO(to_bytes(maps, ".npz")), allow_pickle=False) as data:
        assert data["tokens"].tolist() == ["fish", "eat"]
        assert data["key_tokens"].tolist() == ["the", "big", "fish"]
    rows = json.loads(to_bytes(maps, ".json"))["rows"]
    assert len(rows) == 2 * 2 * 3
    assert (rows[5]["query_token"], rows[5]["key_token"]) == ("eat", "fish")


@pytest.mark.parametrize("suffix", [".npz", ".json", ".csv", ".CSV"])
def test_saving_writes_what_the_bytes_hold(tmp_path, suffix):
    maps = maps_of(["a", "😀"])
    save(maps, tmp_path / f"maps{suffix}")
    written = (tmp_path / f"maps{suffix}").read_bytes()
    if suffix == ".npz":  # the archive carries the time
        with np.load(io.BytesIO(written), allow_pickle=False) as data:
            np.testing.assert_array_equal(data["weights"], maps.weights)
    else:
        assert written == to_bytes(maps, suffix.lower())


@pytest.mark.parametrize("name", ["maps.txt", "maps", "maps.npz.bak", "maps.pkl"])
def test_an_ending_that_is_not_known_is_refused(tmp_path, name):
    with pytest.raises(OptionError, match=r"\.csv, \.json, \.npz") as caught:
        save(maps_of(["a"]), tmp_path / name)
    assert name in str(caught.value)
    with pytest.raises(OptionError):
        check_suffix(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    for path in (tmp_path / "missing" / "maps.csv", tmp_path / "folder.csv"):
        (tmp_path / "folder.csv").mkdir(exist_ok=True)
        with pytest.raises(OptionError, match="cannot be written") as caught:
            save(maps_of(["a"]), path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
