"""Texts from files: the forms, and one sentence for each that cannot be read."""

from __future__ import annotations

import importlib
from typing import ClassVar

import pandas as pd
import pytest

from analysis.texts import FileError, columns_of, read_texts, sample

PAIRS = [("A cat, asleep.", 'It "purrs".'), ("Seekor kucing.", "Ia tidur.")]


@pytest.fixture(params=[".csv", ".tsv", ".jsonl", ".parquet"])
def table(request, tmp_path):
    path = tmp_path / f"texts{request.param}"
    frame = pd.DataFrame([*PAIRS, ("", "no first"), ("no second", None)], columns=["left", "right"])
    if request.param == ".csv":
        frame.to_csv(path, index=False)
    elif request.param == ".tsv":
        rows = frame.fillna("").itertuples(index=False)
        path.write_text("left\tright\n" + "".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    elif request.param == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    return path


def test_columns_of_every_form(table):
    assert read_texts(str(table), ["left", "right"]) == PAIRS
    assert read_texts(str(table), ["left"]) == [*(left for left, _ in PAIRS), "no second"]


def test_a_missing_column_is_named_with_those_that_are_there(table):
    with pytest.raises(FileError, match=r"has the columns left, right; middle is not among them"):
        read_texts(str(table), ["middle"])
    with pytest.raises(FileError, match=r"none was named"):
        read_texts(str(table))


def test_columns_by_number_have_no_header(tmp_path):
    path = tmp_path / "plain.tsv"
    path.write_text('one\t0\ntwo "quoted\t1\n', encoding="utf-8")
    assert read_texts(str(path), ["0"]) == ["one", 'two "quoted']


def test_lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("One.\n\n  Two.  \r\nThree", encoding="utf-8")
    assert read_texts(str(path)) == ["One.", "Two.", "Three"]


@pytest.mark.parametrize("name", ["empty.txt", "empty.csv", "empty.jsonl"])
def test_an_empty_file_is_refused(tmp_path, name):
    path = tmp_path / name
    path.write_text("")
    with pytest.raises(FileError, match=r"holds no texts|has the columns|cannot be read"):
        read_texts(str(path), ["text"] if name != "empty.txt" else [])


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.parquet", "a.jsonl"])
def test_a_binary_file_is_refused_in_one_line(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\xff\xfe" * 20)
    with pytest.raises(FileError) as caught:
        read_texts(str(path), ["text"] if name != "a.txt" else [])
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file_and_too_many_columns(tmp_path):
    with pytest.raises(FileError, match="There is no file"):
        read_texts(str(tmp_path / "nothing.csv"), ["text"])
    with pytest.raises(FileError, match="3 columns are named"):
        read_texts(str(tmp_path), ["a", "b", "c"])


def test_the_samples_that_ship():
    english, indonesian = sample("en"), sample("id")
    assert (len(english), len(indonesian)) == (200, 60)
    assert sum(isinstance(text, tuple) for text in english) >= 30
    assert all(
        part.strip() for text in english + indonesian for part in ([text] if isinstance(text, str) else text)
    )


def test_a_line_ends_at_its_end_only(tmp_path):
    path = tmp_path / "odd.txt"
    path.write_bytes("\ufeffOne\u2028 goes on.\r\nTwo\x0bgoes on.\rThree.".encode())
    assert read_texts(str(path)) == ["One\u2028 goes on.", "Two\x0bgoes on.", "Three."]


def test_what_is_already_here_is_not_read_again():
    assert read_texts("upload.txt", data=b"One.\nTwo.") == ["One.", "Two."]
    assert read_texts("upload.CSV", ["text"], data=b"\xef\xbb\xbftext,n\nOne.,1\n") == ["One."]
    assert columns_of("upload.csv", b"text,n\nOne.,1\n") == ["text", "n"]


@pytest.fixture
def hub(monkeypatch):
    """A hub in memory."""
    from fsspec.implementations.memory import MemoryFileSystem

    class Hub(MemoryFileSystem):
        protocol = "hf"
        store: ClassVar[dict] = {}

        @classmethod
        def _strip_protocol(cls, path):
            return "/" + path.removeprefix("hf://").lstrip("/")

    registry = importlib.import_module("fsspec.registry")  # the package has a mapping of this name
    monkeypatch.setitem(registry._registry, "hf", Hub)
    return Hub()


def test_a_data_set_of_the_hub_is_read_like_a_file(hub):
    with hub.open("hf://datasets/someone/pairs/data.csv", "wb") as file:
        file.write(b"a,b\nOne.,Two.\n")
    with hub.open("hf://datasets/someone/pairs/lines.txt", "wb") as file:
        file.write(b"One.\nTwo.\n")
    assert read_texts("hf://datasets/someone/pairs/data.csv", ["a", "b"]) == [("One.", "Two.")]
    assert read_texts("hf://datasets/someone/pairs/lines.txt") == ["One.", "Two."]
    with pytest.raises(FileError, match=r"There is no file hf://datasets/someone/pairs/no.csv on the hub"):
        read_texts("hf://datasets/someone/pairs/no.csv", ["a"])


def test_without_a_network_a_data_set_is_refused_in_one_sentence():
    with pytest.raises(FileError, match=r"cannot be fetched: .*Check the network") as caught:
        read_texts("hf://datasets/someone/pairs/data.csv", ["a"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["https://example.org/a.csv", "s3://bucket/a.csv", "hf://models/a/b.csv"])
def test_no_other_address_is_asked(path):
    with pytest.raises(FileError, match="is no file of the hub"):
        read_texts(path, ["a"])


def test_a_header_of_numbers_can_be_a_header():
    data = b"0,1\nOne.,Two.\n"
    assert read_texts("a.csv", ["1"], data=data) == ["1", "Two."]
    assert read_texts("a.csv", ["1"], data=data, by_number=False) == ["Two."]


def test_words_that_look_like_nothing_are_words():
    assert read_texts("a.csv", ["t"], data=b"t\nNA\nnull\nNone\nnan\n\nTrue\n") == [
        "NA",
        "null",
        "None",
        "nan",
        "True",
    ]


@pytest.mark.parametrize("cell", [b"\xff\xfe", ["a", "b"], {"a": 1}])
def test_a_column_that_holds_no_text_is_one_sentence(tmp_path, cell):
    path = tmp_path / "odd.parquet"
    pd.DataFrame({"t": [cell, cell], "n": [1, 2]}).to_parquet(path)
    with pytest.raises(FileError, match=r"The column t of .* holds \w+, not text"):
        read_texts(str(path), ["t"])
    assert read_texts(str(path), ["n"]) == ["1", "2"]
