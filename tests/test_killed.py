"""A run from a shell that is killed at once, as by a full memory or a power cut, goes on and ends like any other."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from analysis.datasets import shipped
from tests import tiny
from tests.conftest import ROOT

LAYERS, HEADS = 4, 6
PAIRS = 200  # four shards of 64 at most
WAIT = 120  # a bound for a hung process, in seconds; no test measures time


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Return the words that ask for an ablation of a small model on a table of shipped pairs."""
    folder = tmp_path_factory.mktemp("asked")
    data = shipped("similarity").take(range(PAIRS))
    rows = [(*pair, grade) for pair, grade in zip(data.texts, data.gold, strict=True)]
    table = folder / "some pairs.csv"
    pd.DataFrame(rows, columns=["text", "pair", "score"]).to_csv(table, index=False)
    model = tiny.save_tiny(
        folder / "model", num_hidden_layers=LAYERS, num_attention_heads=HEADS, hidden_size=48
    )
    asked = [str(table), "--task", "similarity", "--protocol", "single", "--columns", "text,pair,score"]
    return [sys.executable, "-m", "analysis", "ablate", *asked, "--model", str(model)]


def begun(words, **environment):
    """Start a verb as a process of its own."""
    return subprocess.Popen(
        words,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},  # a second thread gains nothing here
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    """Wait for a process to end well, and return what it said."""
    try:
        out, err = process.communicate(timeout=WAIT)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out


def units(folder):
    """Return the finished units of a run, by name, with when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("units/*.npz")}


@pytest.fixture(scope="module")
def undisturbed(words, tmp_path_factory):
    """Return the folder of all runs after one that nobody disturbed, and what it said; no --out was given."""
    runs = tmp_path_factory.mktemp("elsewhere") / "runs"
    return runs, ended(begun(words, HEADROOM_RUNS=str(runs)))


def test_runs_are_kept_where_the_environment_says(undisturbed):
    runs, said = undisturbed
    [folder] = runs.iterdir()
    assert re.fullmatch(r"\d{8}-\d{6}-similarity-single", folder.name)
    assert said.splitlines()[-1].endswith(f"{folder}/result.csv")
    assert {path.name for path in folder.iterdir()} == {
        "run.json",
        "units",
        "result.csv",
        "result.parquet",
    }
    table = pd.read_csv(folder / "result.csv")
    assert len(table) == LAYERS * HEADS
    assert table["delta"].abs().max() > 1e-3
    assert len(units(folder)) == (LAYERS + 1) * 4  # of each shard, each layer's and the whole model's


def test_a_killed_run_goes_on_and_ends_like_an_undisturbed_one(words, undisturbed, tmp_path):
    [whole] = undisturbed[0].iterdir()
    folder = tmp_path / "killed"
    process = begun([*words, "--out", str(folder)])
    until = time.monotonic() + WAIT
    while not units(folder) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=WAIT)
    assert process.returncode == -signal.SIGKILL
    left = units(folder)
    assert 0 < len(left) < len(units(whole))
    assert not list(folder.glob("result.*"))
    (folder / "units" / "L000-S00003.npz.part").write_bytes(
        b"PK half of a unit"
    )  # as one killed while writing

    said = ended(begun([*words, "--resume", str(folder)]))
    assert str(folder) in said
    now = units(folder)
    assert now.keys() == units(whole).keys()
    assert {name: now[name] for name in left} == left  # what was finished is as it was
    assert not list(folder.rglob("*.part"))
    first, second = (path / "result.csv" for path in (whole, folder))
    if first.read_bytes() != second.read_bytes():
        ours, theirs = pd.read_csv(second), pd.read_csv(first)
        pd.testing.assert_frame_equal(ours, theirs, rtol=0, atol=1e-12)
    for name in now:
        with np.load(whole / "units" / name) as one, np.load(folder / "units" / name) as other:
            assert one.files == other.files
            for part in one.files:
                np.testing.assert_allclose(other[part], one[part], rtol=0, atol=1e-5)
