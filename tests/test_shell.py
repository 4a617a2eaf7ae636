"""The same from a shell: a line a head, and one line on stderr for what cannot be used."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import analysis.__main__ as shell
import analysis.capture
from analysis.capture import capture
from analysis.maps import strongest
from analysis.statistics import head_entropy
from tests.conftest import ROOT

TEXT = "The animal didn't cross the street because it was too tired."


@pytest.fixture
def attention(monkeypatch, capsys, bundled):
    """Return a function that runs ``attention`` with arguments -> (exit code, stdout, stderr)."""
    opened = analysis.capture.open_source

    def open_source(source="bundled", **options):
        return bundled if source == "bundled" else opened(source, **options)

    monkeypatch.setattr(analysis.capture, "open_source", open_source)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["analysis", "attention", *map(str, arguments)])
        code = shell.main()
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_line_a_head_with_the_values_of_the_library(attention, bundled):
    code, out, err = attention(TEXT)
    assert (code, err) == (0, "")
    header, *lines = out.splitlines()
    assert header.split("\t") == ["layer", "head", "entropy", "normalised", "strongest"]
    assert len(lines) == 72
    maps = capture(bundled, TEXT)
    bits, share = head_entropy(maps)
    for i, line in enumerate(lines):
        layer, head, entropy, normalised, link = line.split("\t")
        assert (int(layer), int(head)) == divmod(i, 12)
        assert float(entropy) == pytest.approx(bits[i // 12, i % 12], abs=5.1e-4)
        assert float(normalised) == pytest.approx(share[i // 12, i % 12], abs=5.1e-4)
        query, key = strongest(maps.weights[i // 12, i % 12])
        labels = maps.queries.labels
        assert link == f"{labels[query]} -> {labels[key]} {maps.weights[i // 12, i % 12].max():.3f}"


def test_a_pair(attention):
    code, out, _ = attention("A cat sleeps.", "--pair", "A dog runs.")
    assert code == 0
    assert len(out.splitlines()) == 73
    assert out != attention("A cat sleeps.")[1]


def test_the_toy(attention):
    code, out, err = attention("the cat sat", "--model", "toy")
    assert code == 0
    assert len(out.splitlines()) == 9
    assert err.startswith("note: The toy is untrained")


def test_what_was_cut_is_a_note_on_stderr(attention):
    code, out, err = attention("cat " * 600)
    assert code == 0
    assert "note: Cut to the 512 tokens that this model can read: 90 tokens are left out." in err
    assert "note" not in out


@pytest.mark.parametrize("suffix", [".npz", ".json", ".csv"])
def test_the_maps_are_written(attention, tmp_path, suffix, bundled):
    path = tmp_path / f"maps{suffix}"
    code, out, _ = attention("A cat.", "--out", path)
    assert code == 0
    assert len(out.splitlines()) == 73
    expected = capture(bundled, "A cat.").weights
    if suffix == ".npz":
        with np.load(path, allow_pickle=False) as data:
            np.testing.assert_array_equal(data["weights"], expected)
    elif suffix == ".json":
        assert len(json.loads(path.read_text(encoding="utf-8"))["rows"]) == expected.size
    else:
        assert len(path.read_text(encoding="utf-8").splitlines()) == expected.size + 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([""], "no text to read"),
        (["   "], "no text to read"),
        (["a cat", "--pair", ""], "second sentence of the pair is empty"),
        (["a cat", "--model", "/no/such/folder"], "no folder /no/such/folder"),
        (["a cat", "--model", "nobody/no-such-model"], "nobody/no-such-model is not on this machine"),
        (["a cat", "--model", "nobody/no-such-model", "--revision", "v2"], "nobody/no-such-model"),
        (["a cat", "--model", "/no/such/folder", "--device", "warp"], "no device warp"),
        (["a cat", "--colour"], "--colour"),
        ([], "Missing argument 'text'"),
        (["a cat", "--out", "maps.txt"], ".csv, .json, .npz"),
        (["a cat", "--out", "/no/such/folder/maps.csv"], "cannot be written"),
        (["a cat", "and a dog"], "and a dog"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_code_2(attention, arguments, said):
    code, out, err = attention(*arguments)
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err
    assert out == ""


@pytest.mark.parametrize("arguments", [["attend"], ["--no-such-option"], []])
def test_an_unknown_verb_is_refused(monkeypatch, capsys, arguments):
    monkeypatch.setattr(sys, "argv", ["analysis", *arguments])
    assert shell.main() == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")


def test_as_a_program():
    """In a process of its own: stdout holds the table alone, stderr nothing, and an error one line."""
    run = [sys.executable, "-m", "analysis", "attention"]
    done = subprocess.run(
        [*run, TEXT], cwd=ROOT, capture_output=True, text=True, encoding="utf-8", timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 73
    failed = subprocess.run([*run, TEXT, "--colour"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr == "error: No such option: --colour (Possible options: --out)\n"


def test_statistics_of_a_file(tmp_path, monkeypatch, capsys):
    texts, out = tmp_path / "texts.txt", tmp_path / "heads.csv"
    texts.write_text("The cat sat on the mat.\n\nA dog barked at it.\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["analysis", "statistics", str(texts), "--out", str(out)])
    assert shell.main() == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 73
    assert "2 of 2 texts" in printed.err
    table = pd.read_csv(out)
    assert len(table) == 72
    assert {"layer", "head", "entropy", "entropy_low", "entropy_high", "confidence", "role"} <= set(
        table.columns
    )
    assert table.loc[2, "role"] == "previous"
    bound = table.dropna(subset=["entropy_low"])
    assert (bound["entropy_low"] <= bound["entropy"] + 1e-9).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.txt"], "There is no file nothing.txt"),
        (["nothing.txt", "--specials", "drop"], "not drop: choose keep, hide or renormalise"),
        (["nothing.txt", "--out", "x.json"], "x.json ends in none of the forms"),
    ],
)
def test_statistics_refuse_in_one_line(monkeypatch, capsys, arguments, said):
    monkeypatch.setattr(sys, "argv", ["analysis", "statistics", *arguments])
    assert shell.main() == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert len(printed.err.strip().splitlines()) == 1
