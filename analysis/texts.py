"""Texts from a file: one a line, or the columns of a table (CSV, TSV, JSONL, Parquet), and those that ship."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.messages import HeadroomError

Text = str | tuple[str, str]
SAMPLES = Path(__file__).parent / "samples"
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")


class FileError(HeadroomError):
    """A file that holds no texts that can be read."""


def sample(language: str = "en") -> list[Text]:
    """Return the texts that ship with the project, sentences and pairs, in English or Indonesian."""
    name = {"en": "english", "id": "indonesian"}[language]
    frame = pd.read_csv(
        SAMPLES / f"{name}.tsv", sep="\t", quoting=csv.QUOTE_NONE, keep_default_na=False, encoding="utf-8"
    )
    return [(text, pair) if pair else text for text, pair in zip(frame["text"], frame["pair"], strict=True)]


def read_texts(path: str, columns: Sequence[str] = ()) -> list[Text]:
    """Return the texts of a file: every line that is not blank, or the one or two ``columns`` of a table.

    A column is a name (then the first row is the header) or a number from 0 (then there is none). Rows with
    an empty text are left out. Raises FileError: no such file, empty, not text, no such column.
    """
    if len(columns) > 2:
        raise FileError(
            "{count} columns are named, but a text is one sentence or a pair: name one or two.",
            count=len(columns),
        )
    suffix = Path(path).suffix.lower()
    if "://" not in path and not Path(path).is_file():
        raise FileError("There is no file {path}. Check the path.", path=path)
    texts = _columns(path, suffix, columns) if suffix in TABLES else list(_lines(path))
    if not texts:
        raise FileError("{path} holds no texts. Give a file with one sentence a line at least.", path=path)
    return texts


def _lines(path: str) -> list[Text]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (UnicodeDecodeError, OSError) as error:
        raise FileError(
            "{path} is not a text file in UTF-8 ({reason}). Save it as text.", path=path, reason=error
        ) from error
    if any("\0" in line for line in lines[:100]):
        raise FileError("{path} is not a text file: it holds NUL bytes. Save it as text.", path=path)
    return [line.strip() for line in lines if line.strip()]


def _columns(path: str, suffix: str, columns: Sequence[str]) -> list[Text]:
    by_number = bool(columns) and all(column.isdigit() for column in columns)
    frame = _frame(path, suffix, header=not by_number)
    names = [int(column) if by_number else column for column in columns]
    missing = [name for name in names if name not in frame.columns]
    if not names or missing:
        raise FileError(
            "{path} has the columns {there}; {asked}. Name the column of the texts (two for pairs).",
            path=path,
            there=", ".join(map(str, frame.columns[:20])),
            asked=f"{missing[0]} is not among them" if missing else "none was named",
        )
    rows = frame[names].fillna("").astype(str).apply(lambda column: column.str.strip())
    rows = rows[(rows != "").all(axis=1)]
    return [row[0] if len(names) == 1 else (row[0], row[1]) for row in rows.itertuples(index=False)]


def _frame(path: str, suffix: str, *, header: bool) -> pd.DataFrame:
    first = 0 if header else None
    try:
        if suffix == ".parquet":
            frame = pd.read_parquet(path)
        elif suffix == ".jsonl":
            frame = pd.read_json(path, lines=True, dtype=False)
        elif suffix == ".tsv":
            frame = pd.read_csv(
                path, sep="\t", quoting=csv.QUOTE_NONE, header=first, dtype=str, encoding="utf-8"
            )
        else:
            frame = pd.read_csv(path, header=first, dtype=str, encoding="utf-8")
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    except (
        Exception
    ) as error:  # each format's reader has errors of its own, and none may reach the reader raw
        raise FileError(
            "{path} cannot be read as {form}: {reason}. Save it again in that form.",
            path=path,
            form=suffix[1:].upper(),
            reason=(str(error).splitlines() or [type(error).__name__])[0][:160].rstrip("."),
        ) from error
    return frame if header else frame.set_axis(range(frame.shape[1]), axis=1)
