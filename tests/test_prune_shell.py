"""Prune and shrink from a shell: the files they write, the numbers they print, what they refuse."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import transformers

import analysis.__main__ as shell
from analysis import onnx_file, significance, trial
from analysis.checks import apart
from analysis.curves import knee
from analysis.datasets import read_data
from analysis.maps import Head, read_heads
from analysis.models import open_model
from analysis.pruning import Limits
from analysis.saving import smaller
from analysis.surgery import sizes
from analysis.trial import Options
from tests import tiny
from tests.test_pruning import DATA, PAIRS
from tests.test_surgery import UNEVEN, mask_of, said

COLUMNS = ["left", "right", "grade"]


@pytest.fixture(autouse=True)
def few_replicates(monkeypatch):
    monkeypatch.setattr(significance, "REPLICATES", 300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a tiny model; nothing may change it."""
    return str(tiny.save_tiny(tmp_path_factory.mktemp("model") / "whole", seed=3))


@pytest.fixture(scope="module")
def whole(folder):
    return open_model(folder)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table of pairs, and a second one to report on."""
    root = tmp_path_factory.mktemp("data")
    rows = [(*pair, grade) for pair, grade in zip(PAIRS, DATA["similarity"].gold, strict=True)]
    pd.DataFrame(rows, columns=COLUMNS).to_csv(root / "my pairs.csv", index=False)
    pd.DataFrame(rows[::-1][:9], columns=COLUMNS).to_csv(root / "other.csv", index=False)
    return root / "my pairs.csv"


@pytest.fixture
def call(monkeypatch, capsys):
    """Return a function that runs a verb -> (exit code, stdout, stderr)."""

    def verb(*words):
        monkeypatch.setattr(sys, "argv", ["analysis", *map(str, words)])
        code = shell.main()
        out, err = capsys.readouterr()
        return code, out, err

    return verb


@pytest.fixture
def prune(call, table, folder):
    """Return a function that prunes a tiny model in wide steps."""

    def verb(out, *words):
        asked = ["--task", "similarity", "--columns", "left,right,grade", "--model", folder, "--step", 0.25]
        return call("prune", table, *asked, "--out", out, *words)

    return verb


def refused(answer, said):
    """Assert that a verb ended with one line on stderr and code 2."""
    code, out, err = answer
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    assert said in err


# prune


def test_the_curves_are_those_of_a_trial(prune, table, whole, tmp_path):
    code, out, err = prune(tmp_path / "curve.csv", "--order", "greedy,random", "--seeds", 3, "--loss", 1)
    assert code == 0
    assert err.endswith("4 of 4 orders\n")
    data = read_data(str(table), "similarity", COLUMNS)
    options = Options(
        str(table), "similarity", orders=("greedy", "random"), seeds=3, limits=Limits(step=0.25)
    )
    made = trial.prepare(options, whole, *trial.split(data))
    curves = [made.curve(*one) for one in made.paths()]
    found = pd.read_csv(tmp_path / "curve.csv", dtype={"heads": str}, keep_default_na=False)
    assert ",".join(found.columns) == "order,seed,removed,share,score,ci_low,ci_high,heads"
    pd.testing.assert_frame_equal(found, trial.frame(curves), check_dtype=False)
    assert found.groupby(["order", "seed"]).size().tolist() == [5, 5, 5, 5]
    printed = out.splitlines()
    low, high = curves[0].changes.score_ends
    assert printed[0].startswith(
        f"whole model: spearman {curves[0].whole:.6f} [{low:.4f}, {high:.4f}] on 8 examples"
    )
    knees = [knee(one, 1.0) for one in curves]
    assert 0 < knees[0].removed < 12
    assert printed[1].startswith(f"greedy: {knees[0].removed} of 12 heads ({knees[0].share:.0%}) can go")
    assert f"(loss {knees[0].loss:.4f}, at most {knees[0].loss_high:.4f})" in printed[1]
    random = sorted(one.removed for one in knees[1:])
    assert printed[2] == f"random, 3 orders: {random[0]} to {random[2]} heads, median {random[1]}"
    assert len(printed) == 3


@pytest.mark.parametrize("order", ["importance", "signed", "fisher", "entropy", "random"])
def test_a_seed_gives_the_same_bytes_and_another_others(prune, tmp_path, order):
    files = []
    for number, seed in enumerate([1, 1, 2]):
        files.append(tmp_path / f"{number}.csv")
        code, _out, err = prune(files[-1], "--order", order, "--seeds", 1, "--seed", seed)
        assert code == 0, err
    first, again, other = (file.read_bytes() for file in files)
    assert first == again
    assert first != other


def test_the_command_of_a_trial_repeats_it(call, table, folder, whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = Options(
        str(table), "similarity", str(table.with_name("other.csv")), tuple(COLUMNS), folder,
        orders=("importance", "random"), seeds=2, seed=3, normalised=False,
        limits=Limits(step=0.5, keep=1, protected=(Head(0, 1), Head(2, 2))),
    )  # fmt: skip
    words = shlex.split(options.command("again.csv"))
    assert words[:4] == ["python", "-m", "analysis", "prune"]
    assert call(*words[3:])[0] == 0
    made = trial.prepare(options, whole, *trial.read(options))
    wanted = trial.frame([made.curve(*one) for one in made.paths()])
    found = pd.read_csv(tmp_path / "again.csv", dtype={"heads": str}, keep_default_na=False)
    pd.testing.assert_frame_equal(found, wanted, check_dtype=False)
    last = read_heads(found["heads"].iloc[-1])
    assert len(last) == found["removed"].iloc[-1] == 9
    assert not {Head(0, 1), Head(2, 2)} & set(last)
    raw = trial.prepare(replace(options, normalised=True), whole, *trial.read(options)).curve("importance", 3)
    assert trial.frame([raw])["heads"].tolist() != wanted["heads"][: len(raw.score)].tolist()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--order", "best"], "There is no order best. Choose one of: importance, importance-once"),
        (["--order", ","], "No order is named"),
        (["--task", "cooking"], "There is no task cooking"),
        (["--task", "fidelity", "--columns", "left", "--order", "random,signed"], "no order by signed"),
        (["--step", "1.5"], "The step 1.5 is no share"),
        (["--keep", "9"], "To keep 9 heads a layer is not possible"),
        (["--protect", "9.9"], "There is no head L9·H9"),
        (["--protect", "five"], "five names no head"),
        (["--loss", "-1"], "A loss of -1.0 cannot be asked for"),
        (["--seeds", "0"], "greater than or equal to 1"),
        (["--report", "nothing.csv"], "There is no file nothing.csv"),
        (["--columns", "left,right"], "similarity reads 3 columns, but 2 are named"),
        (["--model", "/no/such/folder"], "There is no folder /no/such/folder"),
        (["--out", "/no/such/folder/curve.csv"], "There is no folder /no/such/folder to write into"),
    ],
)
def test_what_prune_cannot_use_is_one_line_and_code_2(prune, tmp_path, words, said):
    refused(prune(tmp_path / "curve.csv", *words), said)
    assert not list(tmp_path.iterdir())


def test_a_curve_that_no_table_holds_is_refused(prune):
    refused(prune("curve.txt"), "curve.txt ends in none of the forms")


# shrink


def test_what_was_shrunk_opens_and_says_what_the_masked_model_says(call, folder, whole, tmp_path):
    code, out, err = call("shrink", "--model", folder, "--heads", "0.1,0.2,1.0,1.1,1.2,1.3,2.0", "--out",
                          tmp_path / "small")  # fmt: skip
    assert (code, err) == (0, "")
    small = open_model(str(tmp_path / "small"))
    np.testing.assert_array_equal(small.gone, UNEVEN)
    torch.testing.assert_close(said(small.network), said(whole.network, UNEVEN), atol=1e-6, rtol=0)
    before, after = sizes(whole.network), sizes(small.network)
    share = after.products / before.products
    assert out.splitlines() == [
        f"{tmp_path / 'small'}: 7 of 12 heads removed, {after.parameters:,} of {before.parameters:,} parameters, "
        f"{share:.1%} of the multiply-adds at 64 tokens",
        f"largest difference from the masked model: {apart(whole, UNEVEN, small):.1e}",
    ]
    _code, again, _err = call(
        "shrink", "--model", tmp_path / "small", "--heads", "0.1,0.0", "--out", tmp_path / "two"
    )
    assert "1 of 5 heads removed" in again, "one was gone already"
    card = (tmp_path / "small" / "README.md").read_text(encoding="utf-8")
    assert out.splitlines()[1].split(": ")[1] in card
    assert re.search(r"\| parameters \| [\d,]+ of [\d,]+ \(", card)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_share_of_a_curve_is_the_step_up_to_it(call, prune, folder, tmp_path, suffix):
    curve = tmp_path / f"curve{suffix}"
    assert prune(curve, "--order", "greedy,random", "--seeds", 1)[0] == 0
    rows = pd.read_parquet(curve) if suffix == ".parquet" else pd.read_csv(curve, dtype={"heads": str})
    for share, step in ((0.4, 1), (0.5, 2), (1, 4)):
        out = tmp_path / f"small-{share}"
        code, said, err = call("shrink", "--model", folder, "--from", curve, "--share", share, "--out", out)
        assert (code, err) == (0, "")
        np.testing.assert_array_equal(open_model(str(out)).gone, mask_of(rows["heads"][step]))
        assert f"{3 * step} of 12 heads removed" in said


def test_zeros_load_with_plain_transformers(call, folder, whole, tmp_path):
    code, out, _err = call(
        "shrink", "--model", folder, "--heads", "0.1,2.3", "--zeros", "--out", tmp_path / "full"
    )
    assert code == 0
    assert out == f"{tmp_path / 'full'}: 2 heads are zero; the model is as large as before\n"
    plainly = transformers.AutoModel.from_pretrained(tmp_path / "full").eval()
    inputs = tiny.batch_of(plainly, [24, 11, 3])
    with torch.no_grad():
        found = plainly(**inputs).last_hidden_state[inputs["attention_mask"].bool()]
    torch.testing.assert_close(found, said(whole.network, mask_of("0.1,2.3")), atol=1e-6, rtol=0)
    assert sizes(plainly) == sizes(whole.network)


def test_onnx_is_written_beside_the_weights_and_its_difference_printed(call, folder, tmp_path, monkeypatch):
    def export(model, path):
        path.write_bytes(str(int(model.gone.sum())).encode())
        return 3e-7

    monkeypatch.setattr(onnx_file, "check_packages", lambda: None)
    monkeypatch.setattr(onnx_file, "export", export)
    code, out, _err = call(
        "shrink", "--model", folder, "--heads", "0.1", "--onnx", "--out", tmp_path / "small"
    )
    assert code == 0
    assert out.splitlines()[0] == "model.onnx: differs by 3.0e-07 of the largest output"
    assert (tmp_path / "small" / "model.onnx").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Say which heads go"),
        (["--heads", "0.1", "--from", "curve.csv"], "Say which heads go"),
        (["--heads", "0.9"], "There is no head L0·H9 in 3 layers x 4 heads"),
        (["--heads", "0.1,0.1"], "Head L0·H1 is given twice"),
        (["--heads", "0-1"], "0-1 names no head"),
        (["--from", "nothing.csv", "--share", "0.5"], "nothing.csv is no curve of a pruning run"),
        (["--from", "nothing.csv", "--share", "40"], "40.0 is no share of the heads"),
        (["--heads", "0.1", "--zeros", "--onnx"], "give --onnx or --zeros, not both"),
        (["--heads", "0.1", "--model", "/no/such/folder"], "There is no folder /no/such/folder"),
    ],
)
def test_what_shrink_cannot_use_is_one_line_and_code_2(call, folder, tmp_path, words, said):
    model = [] if "--model" in words else ["--model", folder]
    refused(call("shrink", *model, *words, "--out", tmp_path / "small"), said)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_holds_something_is_refused_before_anything_is_read(call, tmp_path):
    (tmp_path / "mine").write_text("mine")
    answer = call("shrink", "--model", "/no/such/folder", "--heads", "0.1", "--out", tmp_path)
    refused(answer, f"{tmp_path} is not empty. Name another folder.")
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("form", [(), ("--zeros",)])
def test_layers_that_share_weights_are_refused_with_the_reason(call, tmp_path, form):
    folder = tiny.save_tiny(tmp_path / "albert", "albert")
    answer = call("shrink", "--model", folder, "--heads", "0.1", "--out", tmp_path / "small", *form)
    refused(
        answer, "uses one and the same layer several times: a head cannot be removed from one of them alone"
    )
    assert not (tmp_path / "small").exists()


def test_a_smaller_model_that_is_wrong_is_not_saved(call, folder, whole, tmp_path, monkeypatch):
    monkeypatch.setattr("analysis.saving.smaller", lambda model, _heads: smaller(model, mask_of("2.2")))
    refused(
        call("shrink", "--model", folder, "--heads", "0.1", "--out", tmp_path / "small"), "it is not kept"
    )
    assert not (tmp_path / "small").exists()
