"""Odd data, options and run folders: read as they stand, or refused in one sentence, from file to shell."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import analysis.__main__ as shell
from analysis import significance
from analysis.ablation import plain
from analysis.capture import encode
from analysis.datasets import Data, read_data
from analysis.importance import importance
from analysis.messages import OptionError
from analysis.models import open_model
from analysis.tasks import set_up
from analysis.texts import FileError, columns_of
from tests import tiny

TEXTS = ("the cat sat on the mat", "a dog", "the bird and the dog sat", "it is good", "dog sat", "is this film bad",
         "you love this", "run and walk", "the street was bad", "a bird")  # fmt: skip
LABELS = np.arange(10) // 3 % 2
ROWS = "".join(f"{a},{b},{i / 2},{label}\n" for i, (a, b, label) in enumerate(zip(TEXTS, TEXTS[5:] + TEXTS[:5], LABELS, strict=True)))  # fmt: skip
KIND = {"similarity": "headless", "classification": "classification", "masked": "masked"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return by task the folder of a tiny model."""
    root = tmp_path_factory.mktemp("tiny")
    return {task: tiny.save_tiny(root / kind, "bert", kind) for task, kind in KIND.items()}


@pytest.fixture(autouse=True)
def _few_replicates(monkeypatch):
    monkeypatch.setattr(significance, "REPLICATES", 200)


@pytest.fixture
def verb(monkeypatch, capsys):
    """Return a function that runs a verb of the shell -> (exit code, stdout, last line of stderr)."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["analysis", *map(str, words)])
        code = shell.main()
        out, err = capsys.readouterr()
        return code, out, err.replace("\r", "\n").strip().split("\n")[-1]

    return call


def parquet(**columns):
    """Return a table as a Parquet file."""
    file = io.BytesIO()
    pd.DataFrame(columns).to_parquet(file)
    return file.getvalue()


WORDS = list("abcde")
RIGHT = {  # name: (file, its bytes, what the texts and the labels of them are)
    "a mark of the byte order": ("a.jsonl", b"\xef\xbb\xbf" + b'{"t": "a", "l": "x"}\n' * 4, "aaaa", "xxxx"),
    "a gap among whole numbers": ("a.parquet", parquet(t=WORDS, l=pd.array([1, 0, 1, 0, None], "Int64")), "abcd", "1010"),
    "a gap among categories": ("a.parquet", parquet(t=WORDS, l=pd.Categorical([*"pnpn", None])), "abcd", "pnpn"),
    "a gap in lines of JSON": ("a.jsonl", b'{"t": "a", "l": 1}\n' * 4 + b'{"t": "b", "l": null}\n{"t": "c"}', "aaaa", "1111"),
    "labels of many digits": ("a.jsonl", b'{"t": "a", "l": 123456789012345678901}\n{"t": "b", "l": 123456789012345678902}\n' * 2,
                              "abab", ["123456789012345678901", "123456789012345678902"] * 2),
    "labels longer than any number": ("a.csv", b"t,l\n" + b"a,%b\nb,1\n" % (b"9" * 5000) * 2, "abab", ["9" * 5000, "1"] * 2),
    "digits that are no number": ("a.csv", "t,l\na,²\nb,1\na,²\nb,1\n".encode(), "abab", "²1²1"),
    "blanks around names and cells": ("a.csv", b"t , l\n a, x \nb,y\na,x\n b,y\n", "abab", "xyxy"),
    "quotes": ("a.csv", b'"t","l"\n"a, ""b""\nc",x\nd,y\ne,x\nf,y\n', ['a, "b"\nc', "d", "e", "f"], "xyxy"),
    "ends of lines": ("a.csv", b"t,l\r\na,x\r\n\r\nb,y\rc,x\rd,y", "abcd", "xyxy"),
}  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "data", "texts", "labels"), RIGHT.values(), ids=RIGHT)
def test_odd_files_are_read_as_they_stand(name, data, texts, labels):
    assert columns_of(name, data) == ["t", "l"]
    found = read_data(name, "classification", ["t", "l"], data=data)
    assert found.texts == tuple(texts)
    assert [found.labels[i] for i in found.gold] == list(labels)


def test_labels_are_ordered_as_numbers_and_grades_are_told_by_their_row():
    rows = b"".join(b"a,%d\n" % label for label in (10, 9, -1, 0))
    assert read_data("a.csv", "classification", ["0", "1"], data=rows).labels == ("-1", "0", "9", "10")
    rows = "t,u,g\na,b,1\na,,1\na,b,NaN\na,b,2\na,b,3\n"
    with pytest.raises(FileError, match=r"Example 3 of a\.csv has the grade NaN"):
        read_data("a.csv", "similarity", ["t", "u", "g"], data=rows.encode())


@pytest.mark.parametrize("rows", ["Well, a cat,1\nYes, a dog,0\n", "a cat,x,1\na dog,x,0\n", "a,1,\nb,0,\n"])
def test_rows_with_more_cells_than_names_are_refused_and_not_shifted(rows):
    with pytest.raises(FileError, match=r"more cells than its first line has names|Expected 2 fields"):
        read_data("a.csv", "classification", ["t", "l"], data=f"t,l\n{rows * 4}".encode())


@pytest.mark.parametrize(("first", "second"), [("NEGATIVE", " positive "), ("1", "0"), ("1.0", "0.0")])
def test_labels_go_by_name_or_number_whatever_their_order(verb, tmp_path, first, second):
    folder = tiny.save_tiny(tmp_path / "model", "bert", "classification",
                            id2label={0: "Positive", 1: "Negative"}, label2id={"Positive": 0, "Negative": 1})  # fmt: skip
    model, file = open_model(str(folder)), tmp_path / "data.csv"
    file.write_text(
        "t,l\n" + "".join(f"{text},{(first, second)[i % 3 > 0]}\n" for i, text in enumerate(TEXTS))
    )
    nothing = np.zeros((1, 3, 4), dtype=bool)
    inputs = [encode(model, text).inputs for text in TEXTS]
    said = plain(model, inputs, lambda outputs, _, __: outputs.logits, nothing)[0].argmax(-1)
    right = (said == (np.arange(10) % 3 == 0)).mean()
    code, out, _ = verb("ablate", file, "--task", "classification", "--columns", "t,l", "--model", folder,
                        "--protocol", "set", "--heads", "0.0", "--out", tmp_path / "run")  # fmt: skip
    assert code == 0
    assert f"whole model: accuracy {right:.6f} on 10 examples (all)" in out


def test_texts_without_a_word_are_left_out_of_masked_words_and_it_is_said(models):
    problem = set_up(
        "masked", open_model(str(models["masked"])), Data("texts", ("a cat", "[SEP]", "it is", "[MASK]"))
    )
    assert problem.data.texts == ("a cat", "it is")
    assert len(problem.examples) == 2
    assert str(problem.notes[0]) == "2 texts without a word to mask are left out."
    assert importance(problem).each.shape == (2, 3, 4)
    with pytest.raises(OptionError, match="None of the 2 texts has a word to mask"):
        set_up("masked", open_model(str(models["masked"])), Data("texts", ("[SEP]", "[MASK]")))


def test_classes_whose_names_differ_by_case_stay_two_and_labels_that_do_so_are_one(models):
    model = open_model(str(models["classification"]))
    one = Data("texts", TEXTS, LABELS, ("LABEL_1", "label_1"))
    with pytest.raises(OptionError, match="All examples have the label LABEL_1"):
        set_up("classification", model, one)
    apart = replace(model, readout=replace(model.readout, labels=("a", "A")))
    problem = set_up("classification", apart, replace(one, labels=("A", "a")))
    np.testing.assert_array_equal(problem.gold, 1 - LABELS)
    with pytest.raises(OptionError, match="The part to report on has the label A only"):
        set_up("classification", apart, Data("few", TEXTS[:3], LABELS[:3], ("A", "a")),
               estimate=Data("rest", TEXTS[3:], LABELS[3:], ("A", "a")))  # fmt: skip


REFUSED = [  # task, columns, what is in the file, further options, what is said
    ("similarity", "a,b,z", ROWS, (), "has the columns a, b, g, l; z is not among them"),
    ("similarity", "a", ROWS, (), "similarity reads 3 columns, but 1 are named (a)"),
    ("similarity", "0,1,2", ROWS, (), "Example 1 of data.csv has the grade g, which is no number"),
    ("similarity", "a,b,g", ROWS.replace(",0.0,", ",nan,"), (), "has the grade nan, which is no number"),
    ("similarity", "a,b,g", "x,y,7,0\n" * 5, (), "The gold value of all 5 examples is 7.0"),
    ("similarity", "a,a,g", ROWS, (), "for all 10 examples; spearman needs at least two different predictions"),
    ("similarity", "a,b,g", ",,,\n" * 9, (), "has 0 whole examples"),
    ("similarity", "a,b,g", "x,y,1,1\n", (), "has 1 whole examples"),
    ("classification", "a,l", "x,y,1,1\n" * 5, (), "All examples have the label 1"),
    ("classification", "a,b", ROWS, (), "but the classes of classification are LABEL_0, LABEL_1"),
    ("masked", "a", "[SEP],y,1,1\n" * 5, (), "None of the 5 texts has a word to mask"),
    *(
        ("similarity", "a,b,g", ROWS, ("--protocol", "set", "--heads", heads), said)
        for heads, said in {"2.2,2.2": "given twice", "99.0": "no head L99", "": "needs heads", "-1.2": "-1.2 names no",
                            "1": "1 names no", "٣.1": "names no"}.items()
    ),
    ("similarity", "a,b,g", ROWS, ("--out", "data.csv"), "data.csv is not empty"),
    ("similarity", "a,b,g", ROWS, ("--out", "data.csv/run"), "data.csv/run cannot be written"),
    ("similarity", "a,b,g", ROWS, ("--resume", "data.csv"), "data.csv holds no run"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "columns", "rows", "options", "said"), REFUSED)
def test_what_cannot_be_used_is_one_sentence_in_the_shell(verb, models, tmp_path, monkeypatch, task, columns, rows,
                                                          options, said):  # fmt: skip
    (tmp_path / "data.csv").write_text("a,b,g,l\n" + rows)
    monkeypatch.chdir(tmp_path)
    words = ("ablate", "data.csv", "--task", task, "--columns", columns, "--model", models[task])
    code, out, err = verb(*words, *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert said in err


def test_a_finished_run_is_resumed_without_work_and_with_another_seed_not_at_all(
    verb, models, tmp_path, monkeypatch
):
    (tmp_path / "data.csv").write_text("a,b,g,l\n" + ROWS)
    monkeypatch.chdir(tmp_path)
    asked = {"--task": "similarity", "--columns": "a,b,g", "--model": models["similarity"]}
    words = ("ablate", "data.csv", *(word for option in asked.items() for word in option))
    first = verb(*words, "--out", "run")
    table = pd.read_csv("run/result.csv")
    monkeypatch.setattr("analysis.experiment.evaluate", None)  # would raise if anything were left to do
    assert verb(*words, "--resume", "run")[:2] == first[:2]
    pd.testing.assert_frame_equal(pd.read_csv("run/result.csv"), table)
    code, _, err = verb(*words, "--resume", "run", "--seed", "1")
    assert code == 2
    assert "had another" in err
