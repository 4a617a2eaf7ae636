"""The record of a run: what is written is there whole or not at all, and a damaged folder is one sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest

from analysis import runs
from analysis.runs import RunError, begin, folder_for, hash_of, hash_of_texts, resume

TABLE = {"score": np.arange(6.0).reshape(2, 3)}
SHAPES = {"score": (2, 3)}


def test_a_unit_is_read_as_it_was_written(tmp_path):
    run = begin(tmp_path / "run", {"seed": 3})
    assert not run.has("L000-S00000")
    run.keep("L000-S00000", TABLE)
    again = resume(tmp_path / "run")
    assert again.has("L000-S00000")
    np.testing.assert_array_equal(again.read("L000-S00000", SHAPES)["score"], TABLE["score"])
    assert again.facts["seed"] == 3
    assert set(again.facts["versions"]) == {"torch", "transformers", "numpy", "scipy"}


def test_a_unit_that_was_cut_off_is_not_there(tmp_path, monkeypatch):
    run = begin(tmp_path / "run", {})

    def killed(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(runs.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        run.keep("a", TABLE)
    monkeypatch.undo()
    again = resume(tmp_path / "run")
    assert not again.has("a")
    assert list((tmp_path / "run" / "units").iterdir()) == []  # what was left is cleared away


def test_a_folder_that_holds_something_is_not_written_into(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="is not empty"):
        begin(tmp_path, {})
    (tmp_path / "empty").mkdir()
    begin(tmp_path / "empty", {})


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"format": 99}', "{}"])
def test_a_damaged_record_is_one_sentence(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunError, match="damaged or of another version"):
        resume(tmp_path)


def test_no_record_and_damaged_units_are_one_sentence(tmp_path):
    with pytest.raises(RunError, match="holds no run"):
        resume(tmp_path)
    run = begin(tmp_path / "run", {})
    run.keep("a", TABLE)
    with pytest.raises(RunError, match="belongs to another run"):
        run.read("a", {"score": (2, 4)})
    path = tmp_path / "run" / "units" / "a.npz"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(RunError, match="is damaged"):
        run.read("a", SHAPES)


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, monkeypatch):
    run = begin(tmp_path / "run", {})

    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs.np, "savez", full)
    with pytest.raises(RunError, match="No space left on device"):
        run.keep("a", TABLE)
    assert list((tmp_path / "run" / "units").iterdir()) == []


def test_hashes_tell_what_differs(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"one")
    first = hash_of(tmp_path)
    (tmp_path / "a.safetensors").write_bytes(b"two")
    assert hash_of(tmp_path) != first
    assert hash_of_texts(["a", "b"]) != hash_of_texts(["ab"])
    assert hash_of_texts(("a", "b"), None) == hash_of_texts(["a", "b"], None)


def test_a_run_is_named_by_its_time_and_what_it_does(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADROOM_RUNS", str(tmp_path))
    folder = folder_for("similarity / single")
    assert folder.parent == tmp_path
    assert folder.name.endswith("-similarity-single")
    run = begin(folder, {"odd": "ä"})
    assert json.loads((run.folder / "run.json").read_text(encoding="utf-8"))["odd"] == "ä"
