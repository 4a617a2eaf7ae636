"""Texts from a file: one a line, or the columns of a table (CSV, TSV, JSONL, Parquet), and those that ship."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.messages import HeadroomError, first_line

Text = str | tuple[str, str]
SAMPLES = Path(__file__).parent / "samples"
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
HUB = "hf://datasets/"


class FileError(HeadroomError):
    """A file that holds no texts that can be read."""


def sample(language: str = "en") -> list[Text]:
    """Return the texts that ship with the project, sentences and pairs, in English or Indonesian."""
    name = {"en": "english", "id": "indonesian"}[language]
    frame = pd.read_csv(
        SAMPLES / f"{name}.tsv", sep="\t", quoting=csv.QUOTE_NONE, keep_default_na=False, encoding="utf-8"
    )
    return [(text, pair) if pair else text for text, pair in zip(frame["text"], frame["pair"], strict=True)]


def read_texts(
    path: str, columns: Sequence[str] = (), *, data: bytes | None = None, by_number: bool | None = None
) -> list[Text]:
    """Return the texts of a file: every line that is not blank, or the one or two ``columns`` of a table.

    path: a local file, or a file of a data set on the hub (``hf://datasets/owner/name/file.parquet``)
    columns: names (then the first row is the header) or numbers from 0 (then there is none)
    data: what the file holds, where that is already here; ``path`` is then only its name
    by_number: whether ``columns`` are numbers; None where they are if all of them look like it

    Rows with an empty text are left out. Raises FileError: no such file, empty, not text, no such column.
    """
    if len(columns) > 2:
        raise FileError(
            "{count} columns are named, but a text is one sentence or a pair: name one or two.",
            count=len(columns),
        )
    rows = read_columns(path, columns, data=data, by_number=by_number)
    rows = rows[(rows != "").all(axis=1)]
    if not len(rows):
        raise FileError("{path} holds no texts. Give one sentence a line at least.", path=path)
    return [row[0] if len(row) == 1 else (row[0], row[1]) for row in rows.itertuples(index=False, name=None)]


def read_columns(
    path: str, columns: Sequence[str] = (), *, data: bytes | None = None, by_number: bool | None = None
) -> pd.DataFrame:
    """Return the ``columns`` of a table as strings without outer blanks, or the lines of a text file as one column.

    Empty cells are empty strings. Arguments and errors as of `read_texts`.
    """
    data = read_file(path) if data is None else data
    if not is_table(path):
        return pd.DataFrame({"text": _lines(path, data)}, dtype=object)
    return _columns(path, columns, data, by_number)


def is_table(path: str) -> bool:
    """Whether a file is read by its columns, by the ending of its name."""
    return path.lower().endswith(TABLES)


def columns_of(path: str, data: bytes) -> list[str]:
    """Return the names of the columns of a table. Raises FileError."""
    return list(_frame(path, data, header=True).columns)


def whole_number(text: str) -> int | None:
    """Return the whole number that ``text`` spells, such as 7, -1 or 2.0, or None; of 18 digits at most."""
    found = re.fullmatch(r"(-?[0-9]{1,18})(\.0*)?", text)
    return int(found[1]) if found else None


def read_file(path: str) -> bytes:
    """Return what a local file holds, or one of a data set on the hub. Raises FileError."""
    if "://" in path and not path.startswith(HUB):
        raise FileError(
            "{path} is no file of the hub. Give a path such as {example}, or a local file.",
            path=path,
            example=f"{HUB}owner/name/file.parquet",
        )
    if path.startswith(HUB):
        return _from_hub(path)
    if not Path(path).is_file():
        raise FileError("There is no file {path}. Check the path.", path=path)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FileError(
            "{path} cannot be read: {reason}. Check its permissions.", path=path, reason=error.strerror
        ) from error


def _from_hub(path: str) -> bytes:
    import fsspec  # knows hf:// where huggingface_hub is installed

    try:
        with fsspec.open(path, "rb") as file:
            return file.read()
    except FileNotFoundError as error:
        raise FileError("There is no file {path} on the hub. Check the path.", path=path) from error
    except (
        Exception
    ) as error:  # the network and the hub fail in many ways, none of them the reader's business
        raise FileError(
            "{path} cannot be fetched: {reason}. Check the network and the path, or take a local file.",
            path=path,
            reason=first_line(error),
        ) from error


def _lines(path: str, data: bytes) -> list[str]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(
            "{path} is not a text file in UTF-8 ({reason}). Save it as text.", path=path, reason=error.reason
        ) from error
    if "\0" in text:
        raise FileError("{path} is not a text file: it holds NUL bytes. Save it as text.", path=path)
    return [line.strip() for line in io.StringIO(text, newline=None) if line.strip()]


def _columns(path: str, columns: Sequence[str], data: bytes, by_number: bool | None) -> pd.DataFrame:
    if by_number is None:
        by_number = bool(columns) and all(column.isascii() and column.isdigit() for column in columns)
    frame = _frame(path, data, header=not by_number)
    there = list(frame.columns)
    asked = [column.lstrip("0") or "0" for column in columns] if by_number else list(columns)
    missing = [name for name in asked if name not in there]
    if not asked or missing:
        raise FileError(
            "{path} has the columns {there}; {asked}. Name the column of the texts (two for pairs).",
            path=path,
            there=", ".join(there[:20]),
            asked=f"{missing[0]} is not among them" if missing else "none was named",
        )
    taken = [_cells(path, name, frame.iloc[:, there.index(name)]) for name in asked]
    return pd.DataFrame(dict(enumerate(taken)), dtype=object)


def _cells(path: str, name: str, column: pd.Series) -> list[str]:
    """Return the cells of a column as strings without outer blanks, the missing ones empty."""
    odd = [
        cell for cell in column if isinstance(cell, (bytes, bytearray, list, dict, tuple, set, np.ndarray))
    ]
    if odd:
        raise FileError(
            "The column {column} of {path} holds {kind}, not text. Name a column of texts.",
            column=name,
            path=path,
            kind=type(odd[0]).__name__,
        )
    return ["" if pd.isna(cell) else str(cell).strip() for cell in column]


def _frame(path: str, data: bytes, *, header: bool) -> pd.DataFrame:
    """Return a table with its names without outer blanks, or numbered from 0. Raises FileError for an empty one."""
    suffix = Path(path).suffix.lower()
    form = {".parquet": _parquet, ".jsonl": _json_lines}.get(suffix)
    try:
        frame = form(data) if form else _separated(data, tabs=suffix == ".tsv", header=header)
    except pd.errors.EmptyDataError:
        frame = pd.DataFrame()
    except Exception as error:  # each format's reader has errors of its own: none may reach the reader raw
        raise FileError(
            "{path} cannot be read as {form}: {reason}. Save it again in that form.",
            path=path,
            form=suffix[1:].upper(),
            reason=first_line(error)[:160].rstrip("."),
        ) from error
    if not frame.shape[1]:
        raise FileError("{path} holds no texts. Give one sentence a line at least.", path=path)
    names = [str(name).strip() for name in frame.columns] if header else map(str, range(frame.shape[1]))
    return frame.set_axis(list(names), axis=1)


def _parquet(data: bytes) -> pd.DataFrame:
    return pd.read_parquet(io.BytesIO(data), dtype_backend="numpy_nullable")  # a gap makes no 1 a 1.0


def _json_lines(data: bytes) -> pd.DataFrame:
    """Return a row a line; the values as they stand, as pandas' own reader rounds large numbers."""
    rows = []
    for number, line in enumerate(io.StringIO(data.decode("utf-8-sig"), newline=None), start=1):
        if line.strip():
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"line {number} is no object")
            rows.append(row)
    return pd.DataFrame(rows, dtype=object)


def _separated(data: bytes, *, tabs: bool, header: bool) -> pd.DataFrame:
    form = {"sep": "\t", "quoting": csv.QUOTE_NONE} if tabs else {}
    frame = pd.read_csv(
        io.BytesIO(data),
        header=0 if header else None,
        dtype=str,
        encoding="utf-8-sig",
        keep_default_na=False,
        **form,
    )
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes the first cells for names of rows
        raise ValueError("its rows have more cells than its first line has names")
    return frame
