"""An ablation experiment: its table, its record, and that a resumed run ends like an undisturbed one."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis import __main__, experiment, runs
from analysis.ablation import plain
from analysis.datasets import Data
from analysis.experiment import (
    Options,
    check_same,
    facts,
    prepare,
    sweep,
)
from analysis.maps import Head, read_heads, write_heads
from analysis.messages import OptionError
from analysis.models import open_model
from analysis.outcome import best_by_layer, judge, result
from analysis.runs import RunError
from analysis.saving import smaller
from tests import tiny

WORDS = ["the", "cat", "dog", "sat", "on", "mat", "and", "a", "run", "walk"]
PAIRS = tuple(
    (" ".join(WORDS[i % 7 : i % 7 + 3]), " ".join(WORDS[i % 5 : i % 5 + 2 + i % 3])) for i in range(40)
)
DATA = Data("pairs", PAIRS, np.linspace(0, 5, 40) % 3.1)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return open_model(str(tiny.save_tiny(tmp_path_factory.mktemp("model") / "bert")))


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch):
    monkeypatch.setattr(experiment, "SHARD", 7)


def made(model, **changes):
    return prepare(Options("pairs.csv", "similarity", **changes), model, DATA)


@pytest.mark.parametrize("replacement", ["zero", "uniform", "mean"])
def test_the_table_is_that_of_the_plain_loop(model, replacement):
    one = made(model, replacement=replacement)
    problem = one.problem
    predictions = sweep(one)
    everything = range(len(problem.examples))
    places, rows = problem.rows_of(everything)
    assert places == list(range(len(problem.inputs)))
    kept = plain(
        problem.model, problem.inputs, problem.read, one.masks, replacement=replacement, means=one.means
    )
    wanted = problem.predict(kept, rows, everything)
    np.testing.assert_allclose(predictions["spearman"], wanted["spearman"], atol=1e-5)
    table = result(one, judge(one, predictions))
    assert len(table) == 12
    assert table.columns.tolist() == [
        "layer",
        "head",
        "heads",
        "score",
        "delta",
        "ci_low",
        "ci_high",
        "p",
        "q",
    ]
    assert table.loc[5, ["layer", "head", "heads"]].tolist() == [1, 1, "1.1"]
    np.testing.assert_allclose(table["delta"], table["score"] - judge(one, predictions).score)
    assert table["delta"].abs().max() > 1e-3
    assert ((table["ci_low"] <= table["delta"]) & (table["delta"] <= table["ci_high"])).all()
    assert one.split == ("half" if replacement == "mean" else "all")
    assert len(problem.examples) == (20 if replacement == "mean" else 40)


def test_what_is_estimated_is_not_what_is_reported(model):
    one = made(model, replacement="mean", seed=4)
    again = made(model, replacement="mean", seed=4)
    np.testing.assert_array_equal(one.means, again.means)
    assert one.problem.data.texts == again.problem.data.texts
    assert made(model, replacement="mean", seed=5).problem.data.texts != one.problem.data.texts


def test_a_resumed_run_ends_like_an_undisturbed_one(model, tmp_path, monkeypatch):
    one = made(model)
    whole = sweep(one)
    run = runs.begin(tmp_path / "run", facts(one, DATA))

    class Killed(Exception):
        pass

    def stop(done):
        if done > 21:
            raise Killed

    with pytest.raises(Killed):
        sweep(one, run, stop)
    finished = len(list((tmp_path / "run" / "units").iterdir()))
    assert 0 < finished < 6 * 4
    counted = []
    real = experiment.predict
    monkeypatch.setattr(experiment, "predict", lambda *args: counted.append(len(args[2])) or real(*args))
    again = runs.resume(tmp_path / "run")
    check_same(again, one, DATA)
    resumed = sweep(one, again)
    assert sum(counted) == 40 - 21  # three shards were there
    for name, table in whole.items():
        np.testing.assert_array_equal(resumed[name], table)
    pd.testing.assert_frame_equal(result(one, judge(one, whole)), result(one, judge(one, resumed)))


def test_another_run_is_not_resumed(model, tmp_path):
    run = runs.begin(tmp_path / "run", facts(made(model), DATA))
    check_same(runs.resume(tmp_path / "run"), made(model), DATA)
    for other, data in ((made(model, seed=1), DATA), (made(model), replace(DATA, gold=DATA.gold + 1))):
        with pytest.raises(RunError, match=r"had another (seed|data)"):
            check_same(run, other, data)


def test_the_protocols(model):
    assert made(model, protocol="all-but-one").masks[1:].sum((1, 2)).tolist() == [3] * 12
    one = made(model, protocol="set", heads="2.3, 0.1")
    table = result(one, judge(one, sweep(one)))
    assert table["heads"].tolist() == ["0.1,2.3"]
    assert table["layer"].isna().all()
    one = made(model, protocol="pairs", heads="0.0,1.1,2.2")
    assert [write_heads(mask) for mask in one.masks[4:]] == ["0.0", "1.1", "2.2"]  # to compare with
    pairs = one.masks[1 : 1 + one.reported]
    assert [write_heads(mask) for mask in pairs] == ["0.0,1.1", "0.0,2.2", "1.1,2.2"]
    with pytest.raises(OptionError, match="needs heads"):
        made(model, protocol="set")
    with pytest.raises(OptionError, match="names no head"):
        read_heads("5.8,x")
    assert read_heads(" 5.8 , 0.0") == [Head(5, 8), Head(0, 0)]


def test_an_experiment_is_about_the_heads_that_are_there(model):
    gone = np.zeros((3, 4), dtype=bool)
    gone[1, 2] = gone[2] = True
    small = smaller(model, gone)
    there = [head for head in np.ndindex(3, 4) if not gone[head]]
    one = made(small)
    table = result(one, judge(one, sweep(one)))
    assert list(zip(table["layer"], table["head"], strict=True)) == there
    one = made(small, protocol="all-but-one")
    assert one.masks[1:].sum((1, 2)).tolist() == [3] * 4 + [2] * 3
    assert not (one.masks & gone).any()
    best = best_by_layer(one, sweep(one))
    assert best["layer"].tolist() == [0, 1]
    assert best["kept"].iloc[1] != 2
    with pytest.raises(OptionError, match="L1·H2 was removed"):
        made(small, protocol="set", heads="0.0,1.2")


def test_fidelity_has_an_interval_and_no_p(model):
    one = prepare(Options("texts", "fidelity"), model, Data("texts", tuple(first for first, _ in PAIRS)))
    found = judge(one, sweep(one))
    assert np.isnan(found.p).all()
    assert (found.delta <= 1e-6).all()
    assert (found.low <= found.high).all()


def test_the_command_repeats_the_experiment():
    options = Options("my data.csv", "similarity", ("a", "b", "c"), protocol="set", heads="5.8")
    assert options.command().startswith(
        "python -m analysis ablate 'my data.csv' --task similarity --columns a,b,c"
    )
    assert "--heads 5.8" in options.command()


@pytest.fixture
def shell(monkeypatch, capsys):
    """A function that runs a verb and returns its code, what it printed, and what it complained of."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["analysis", *words])
        code = __main__.main()
        return code, *capsys.readouterr()

    return call


def test_the_verbs_from_a_shell(tmp_path, shell):
    folder = str(tiny.save_tiny(tmp_path / "model"))
    data = tmp_path / "pairs.csv"
    rows = [(a, b, grade) for (a, b), grade in zip(PAIRS, DATA.gold, strict=True)]
    pd.DataFrame(rows, columns=["left", "right", "grade"]).to_csv(data, index=False)
    asked = [str(data), "--task", "similarity", "--columns", "left,right,grade", "--model", folder]
    code, out, err = shell("ablate", *asked, "--out", str(tmp_path / "run"))
    assert code == 0, err
    assert "whole model: spearman" in out
    table = pd.read_csv(tmp_path / "run" / "result.csv")
    assert len(table) == 12
    for unit in list((tmp_path / "run" / "units").iterdir())[:2]:
        unit.unlink()
    code, _out, err = shell("ablate", *asked, "--resume", str(tmp_path / "run"))
    assert code == 0, err
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "run" / "result.csv"), table)
    code, _out, err = shell("ablate", *asked, "--out", str(tmp_path / "run"))
    assert (code, err.count("\n")) == (2, 1)
    out = tmp_path / "importance.csv"
    code, _out, err = shell("importance", *asked, "--out", str(out))
    assert code == 0, err
    columns = ["layer", "head", "importance", "importance_normalised", "signed"]
    assert pd.read_csv(out).columns.tolist() == columns
    asked = [str(data), "--task", "fidelity", "--columns", "left", "--model", folder]
    code, _out, err = shell("importance", *asked, "--out", str(out))
    assert code == 2
    assert "its gradient is zero" in err
    assert "There is no task cooking" in shell("ablate", str(data), "--task", "cooking")[2]
