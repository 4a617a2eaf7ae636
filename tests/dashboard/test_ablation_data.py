"""The Ablation page on heads and data of one's own: what can be used gives its numbers, all else one sentence."""

from __future__ import annotations

import json
import shlex
import shutil
import sys

import numpy as np
import pandas as pd
import pytest

import analysis.__main__ as shell
import dashboard.components.switches as switches_module
from analysis.datasets import Data, read_data
from analysis.experiment import Options
from analysis.messages import HeadroomError
from dashboard import ablating
from tests.dashboard.test_ablation_page import (
    ask,
    direct,
    few,
    open_on,
    runs_of_its_own,
    shows,
    tiny,
)
from tests.dashboard.test_lens_views import press
from tests.dashboard.test_pages import _nothing_opened_before, put, ran, said, sent
from tests.tiny import WORDS

__all__ = ["_nothing_opened_before", "few", "press", "runs_of_its_own", "tiny"]  # fixtures for this file too

PRIVATE = "zqxjprivat"  # never in a link
FIRST = [f"the {WORDS[i]} and a {WORDS[i + 1]}" for i in range(20)]
SECOND = [f"{PRIVATE} {WORDS[i]} sat on the {WORDS[i * 7 % 20]}" for i in range(20)]
GRADES = [i * 3 % 11 / 2 for i in range(20)]
LABELS = [str(i * 3 % 11 % 2) for i in range(20)]


def lines(*columns):
    """Return what is pasted: one example a line, with tabs between."""
    return "\n".join("\t".join(map(str, row)) for row in zip(*columns, strict=True))


GOOD = {
    "similarity": lines(FIRST, SECOND, GRADES),
    "classification": lines(SECOND, LABELS),
    "classification-pairs": lines(FIRST, SECOND, LABELS),
    "masked": lines(SECOND),
    "fidelity": lines(SECOND),
    "fidelity-pairs": lines(FIRST, SECOND),
}


def paste(at, text):
    """Type one's own data into its box and press the button."""
    at.text_area(key="data.paste").set_value(text)
    at.button(key="data.paste.use").click()
    return ran(at.run())


def one_sentence(at, part):
    """Assert that the page says one thing that is wrong, and lives."""
    assert len(at.error) == 1
    assert part in at.error[0].value.replace("\\", "")
    assert "Traceback" not in at.error[0].value
    assert at.subheader[0].value.startswith("Ablation")


# Heads


@pytest.mark.parametrize("protocol", ["set", "pairs"])
def test_without_heads_it_says_so_and_a_click_brings_some(protocol, tiny, press):
    at = open_on(tiny(), protocol=protocol)
    assert len(at.error) == 0
    one_sentence(ask(at), f"The protocol {protocol} needs heads: name them, such as 5.8,3.2.")
    assert sent(at, "switches")["off"] == []
    for off in (["0.1"], ["0.1", "2.3"], ["0.1", "1.2", "2.3"]):
        layer, head = map(int, off[len(off) // 2].split("."))
        message = {"layer": layer, "head": head, "number": len(off), "off": off}
        press(at, switches_module, "_SWITCHES", "ablation.set", message)
        assert at.query_params["heads"] == ",".join(off) == at.text_input(key="ablation.heads").value
        assert len(at.error) == 0  # what was wrong before is not said of these
    ask(at)
    assert len(at.error) == 0
    found = (
        "With 3 heads off it changes by **" if protocol == "set" else " of 3 pairs** change it beyond noise"
    )
    assert found in said(at)
    assert sent(at, "switches")["off"] == ["0.1", "1.2", "2.3"]
    assert at.button(key="ablation.run").disabled


@pytest.mark.parametrize(
    ("heads", "part"),
    [
        ("99.0", "There is no head L99·H0 in 3 layers x 4 heads: both are counted from 0."),
        ("0.1,99.0", "There is no head L99·H0"),
        ("0.4", "There is no head L0·H4"),
        ("0.1,0.1", "Head L0·H1 is given twice."),
        ("5.8;3.2", "names no head"),
        ("<b>x</b>", "<b>x</b>"),
        (" , ", "needs heads"),
    ],
)
def test_unknown_heads_are_one_sentence(heads, part, tiny):
    at = open_on(tiny(), protocol="set")
    ran(at.text_input(key="ablation.heads").set_value(heads).run())
    assert len(at.error) == 0
    one_sentence(ask(at), part)
    assert sent(at, "switches")["off"] == (["0.1"] if heads.startswith("0.1") else [])
    put(at, protocol="single")
    assert len(at.error) == 0
    put(at, protocol="set")
    ran(at.text_input(key="ablation.heads").set_value("0.1").run())
    assert "With 1 heads off it changes by **" in said(ask(at))


def test_unknown_heads_of_a_link(tiny):
    at = open_on(tiny(), protocol="pairs", heads="99.0,0.1,1.1")
    assert sent(at, "switches")["off"] == ["0.1", "1.1"]
    one_sentence(ask(at), "There is no head L99·H0")


# Data of one's own


@pytest.mark.parametrize("name", GOOD)
def test_own_data_gives_its_own_numbers(name, tiny, runs_of_its_own):
    task = name.split("-")[0]
    folder = tiny({"classification": "classification", "masked": "masked"}.get(task, "headless"))
    at = paste(open_on(folder, task=task), GOOD[name])
    assert len(at.error) == 0
    assert at.selectbox(key="data.en").value == "own"
    assert "your own, 20" in at.selectbox(key="data.en").options
    assert "Press Run to measure this." in said(at)
    ask(at)
    columns = [str(i) for i in range(GOOD[name].split("\n")[0].count("\t") + 1)]
    data = read_data("pasted.tsv", task, columns, data=GOOD[name].encode(), by_number=True)
    made, predictions, found = direct(Options("own", task, model=folder), data)
    shows(at, made, predictions, found, (3, 4))
    [copy] = (runs_of_its_own / "data").iterdir()
    assert PRIVATE in copy.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("task", "text", "part"),
    [
        ("similarity", lines(FIRST, SECOND), "similarity reads 3 columns, but 2 are named"),
        ("similarity", lines(FIRST), "similarity reads 3 columns, but 1 are named"),
        ("classification", lines(FIRST), "classification reads 2 or 3 columns, but 1 are named"),
        (
            "similarity",
            lines(FIRST, SECOND, [*GRADES[:-1], "much"]),
            "Example 20 of pasted.tsv has the grade much",
        ),
        ("similarity", lines(FIRST, SECOND, [*GRADES[:-1], "nan"]), "has the grade nan, which is no number"),
        ("similarity", "", "similarity reads 3 columns"),
        ("similarity", "a cat\ta dog\t3", "pasted.tsv has 1 whole examples, too few to measure anything."),
        ("masked", "", "pasted.tsv"),
        ("masked", "a cat", "pasted.tsv has 1 whole examples"),
        ("fidelity", " \n\t\n ", "pasted.tsv"),
        ("similarity", "a\tb\n" + lines(FIRST, SECOND, GRADES), "pasted.tsv cannot be read as TSV"),
    ],
)
def test_data_that_cannot_be_read_is_one_sentence(task, text, part, tiny, runs_of_its_own):
    at = paste(open_on(tiny("masked"), task=task), text)
    one_sentence(at, part)
    assert at.selectbox(key="data.en").value == "en"
    assert not runs_of_its_own.exists()
    paste(at, GOOD[task])
    assert len(at.error) == 0
    assert at.selectbox(key="data.en").value == "own"


@pytest.mark.parametrize(
    ("task", "text", "part"),
    [
        (
            "classification",
            lines(FIRST, ["1"] * 20),
            "All examples have the label 1: there is nothing to tell apart.",
        ),
        ("classification", lines(FIRST, ["good", *["bad"] * 19]), "lacks some of the labels bad, good."),
        ("similarity", lines(FIRST, SECOND, [2] * 20), "The gold value of all 20 examples is 2.0"),
    ],
)
def test_data_of_which_nothing_can_be_found_is_one_sentence(task, text, part, tiny):
    at = paste(open_on(tiny(), task=task), text)
    assert len(at.error) == 0
    one_sentence(ask(at), part)
    assert not at.button(key="ablation.run").disabled
    put(at, data="en")
    assert len(at.error) == 0
    assert "Whole model: " in said(ask(at))


def test_rows_with_an_empty_cell_are_left_out_and_said(tiny):
    at = paste(open_on(tiny()), GOOD["similarity"] + "\nalone\t\t3\n\tagain\t2")
    ask(at)
    assert "on 20 examples." in said(at)
    assert "2 rows with an empty cell are left out." in said(at)


def test_own_data_is_never_in_the_link_and_the_shown_command_repeats_it(tiny, runs_of_its_own, monkeypatch):
    at = paste(open_on(tiny()), GOOD["similarity"])
    ask(put(at, replace="mean", protocol="all-but-one"))
    put(at, **{"ablation.repeat": True})
    assert "a copy is kept beside the runs" in said(at)
    [copy] = (runs_of_its_own / "data").iterdir()
    link = " ".join(f"{name}={value}" for name, value in at.query_params.items())
    assert PRIVATE not in link
    assert copy.stem not in link
    assert "data" not in at.query_params
    [folder] = runs_of_its_own.glob("*-similarity-all-but-one")
    assert at.code[0].value == json.loads((folder / "run.json").read_text())["command"]
    words = shlex.split(at.code[0].value)
    assert words[:3] == ["python", "-m", "analysis"]
    assert str(copy) in words
    again = runs_of_its_own / "again"
    monkeypatch.setattr(sys, "argv", [*words[2:], "--out", str(again)])
    assert shell.main() == 0
    first, second = (pd.read_csv(path / "result.csv", dtype=str) for path in (folder, again))
    pd.testing.assert_frame_equal(first, second)
    with monkeypatch.context() as patch:
        patch.setenv("HEADROOM_RUNS", str(runs_of_its_own / "other"))
        shutil.rmtree(runs_of_its_own / "data")  # as someone may tidy up
        ran(at.run())
        assert "Whole model: " in said(at)


def test_another_task_gets_what_ships_for_it(tiny, few):
    at = paste(open_on(tiny()), GOOD["similarity"])
    for task, said_of in (("fidelity", ("fidelity", "en")), ("classification", ("classification", "en"))):
        put(at, task=task)
        assert at.selectbox(key="data.en").value == "en"
        ask(at)
        put(at, **{"ablation.repeat": True})
        assert "ablate sample:en --task " + task in at.code[0].value
        made, predictions, found = direct(Options("sample:en", task, model=tiny()), few[said_of])
        shows(at, made, predictions, found, (3, 4))
    put(at, task="similarity")
    assert at.selectbox(key="data.en").value == "own"  # it was kept
    other = open_on(tiny(), task="classification", data="id")  # which ships for other tasks
    assert f"on {found.examples} examples." in said(other)  # the same experiment, so it is there
    assert "ablate sample:en --task classification" in put(other, **{"ablation.repeat": True}).code[0].value


@pytest.mark.parametrize(
    "text",
    [
        'a "quoted", word',
        "NA",
        "line\nbreak",
        "carriage\rreturn",
        "nul\0byte",
        "=1+1",
        "é 你 😀 سلام",
        "\\N",
        "tab\there",
    ],
)
def test_a_copy_says_what_the_data_says(text):
    texts = tuple((f"{text}{i}", f"b {text}") for i in range(4))
    data = Data("x", texts, np.array([0.1 + 0.2, 1e-7, 3, 5]))
    copy = ablating.keep_data(data, "similarity")
    again = read_data(copy.name, "similarity", ablating.columns_of(copy.name))
    assert again.texts == texts
    np.testing.assert_array_equal(again.gold, data.gold)
    labelled = Data("x", tuple(first for first, _ in texts), np.array([0, 1, 1, 0]), ("01", text.strip()))
    copy = ablating.keep_data(labelled, "classification")
    again = read_data(copy.name, "classification", ablating.columns_of(copy.name))
    assert [again.labels[i] for i in again.gold] == ["01", text, text, "01"]


def test_a_copy_of_what_utf8_cannot_hold_is_made(runs_of_its_own):
    copy = ablating.keep_data(Data("x", tuple(f"\ud800 {i}" for i in range(4))), "fidelity")
    assert read_data(copy.name, "fidelity", ["text"]).texts == ("? 0", "? 1", "? 2", "? 3")


def test_a_folder_that_cannot_be_written_is_one_sentence(monkeypatch, tmp_path, tiny):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEADROOM_RUNS", str(tmp_path / "file"))
    at = open_on(tiny())
    one_sentence(paste(at, GOOD["similarity"]), "The copy of the data cannot be written into")
    one_sentence(ask(open_on(tiny())), "cannot be written")
    with pytest.raises(HeadroomError):
        ablating.keep_data(Data("x", ("a", "b")), "fidelity")
