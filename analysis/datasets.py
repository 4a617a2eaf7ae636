"""Data for the tasks: texts with what is to be found of them, from files and from what ships; and its split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.messages import Message, message
from analysis.texts import SAMPLES, FileError, Text, is_table, read_columns, whole_number

COLUMNS = {  # how many columns a task reads: the texts, then what is to be found of them
    "similarity": (3,),
    "classification": (2, 3),
    "masked": (1,),
    "fidelity": (1, 2),
}
SHIPPED = {
    ("similarity", "en"): ("graded-english.tsv", ("text", "pair", "score")),
    ("similarity", "id"): ("graded-indonesian.tsv", ("text", "pair", "score")),
    ("classification", "en"): ("labelled-english.tsv", ("text", "label")),
    ("masked", "en"): ("labelled-english.tsv", ("text",)),
    ("masked", "id"): ("graded-indonesian.tsv", ("text",)),
    ("fidelity", "en"): ("graded-english.tsv", ("text",)),
    ("fidelity", "id"): ("graded-indonesian.tsv", ("text",)),
}
FEWEST = 4  # examples: with fewer, no interval says anything


@dataclass(frozen=True, eq=False)
class Data:
    """Texts, and what is to be found of each.

    gold: [example] the grade of a pair, or the number of a label; None where nothing is to be found
    labels: the names of the labels, in the order of their numbers
    """

    name: str
    texts: tuple[Text, ...]
    gold: np.ndarray | None = None
    labels: tuple[str, ...] = ()
    notes: tuple[Message, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, places: Sequence[int] | np.ndarray) -> Data:
        """Return the examples at ``places``."""
        gold = None if self.gold is None else self.gold[np.asarray(places, dtype=np.int64)]
        return replace(self, texts=tuple(self.texts[int(i)] for i in places), gold=gold)


def shipped(task: str, language: str = "en") -> Data:
    """Return the data that ships for a task, in English or Indonesian. Raises FileError where there is none."""
    if (task, language) not in SHIPPED:
        raise FileError(
            "No data for {task} ships in {language}. Give a file of your own.", task=task, language=language
        )
    name, columns = SHIPPED[task, language]
    return read_data(str(SAMPLES / name), task, columns, name=name.removesuffix(".tsv"))


def read_data(
    path: str,
    task: str,
    columns: Sequence[str],
    *,
    data: bytes | None = None,
    by_number: bool | None = None,
    name: str | None = None,
) -> Data:
    """Return the data of a file for a task: its ``columns`` are the text or the pair, then the grade or label.

    path, columns, data, by_number: see `analysis.texts.read_texts`

    Rows with an empty cell are left out, and it is said how many. Raises FileError: another number of columns
    than the task reads, a grade that is no number, too few examples.
    """
    count = len(columns) if is_table(path) else 1
    if count not in COLUMNS[task]:
        raise FileError(
            "{task} reads {wanted} columns, but {count} are named ({given}). Name the text or the pair, then the "
            "grade or label, if there is one.",
            task=task,
            wanted=" or ".join(map(str, COLUMNS[task])),
            count=count,
            given=", ".join(columns) or "-",
        )
    table = read_columns(path, columns, data=data, by_number=by_number)
    full = table[(table != "").all(axis=1)]
    if len(full) < FEWEST:
        raise FileError(
            "{path} has {count} whole examples, too few to measure anything. Give {fewest} at least.",
            path=path,
            count=len(full),
            fewest=FEWEST,
        )
    left_out = len(table) - len(full)
    notes = (message("{count} rows with an empty cell are left out.", count=left_out),) if left_out else ()
    has_gold = task in ("similarity", "classification")
    texts = _texts(full.iloc[:, :-1] if has_gold else full)
    found = Data(name or path, texts, notes=notes)
    if task == "similarity":
        return replace(found, gold=_grades(path, full.iloc[:, -1]))
    if task == "classification":
        return _labelled(found, full.iloc[:, -1])
    return found


def split(data: Data, *, seed: int = 0, share: float = 0.5) -> tuple[Data, Data]:
    """Return two parts of the data that share no example: a random ``share`` of it, and the rest.

    On the first importance, means and probes are estimated; the second is reported on.
    """
    order = np.random.default_rng(seed).permutation(len(data))
    cut = round(len(data) * share)
    if min(cut, len(data) - cut) < FEWEST:
        raise FileError(
            "{name} has {count} examples, too few to estimate on one half and report on the other. Give {fewest} at least.",
            name=data.name,
            count=len(data),
            fewest=2 * FEWEST,
        )
    return data.take(np.sort(order[:cut])), data.take(np.sort(order[cut:]))


def _texts(table: pd.DataFrame) -> tuple[Text, ...]:
    rows = table.itertuples(index=False, name=None)
    return tuple(row[0] if len(row) == 1 else (row[0], row[1]) for row in rows)


def _grades(path: str, column: pd.Series) -> np.ndarray:
    grades = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(grades))
    if len(wrong):
        raise FileError(
            "Example {row} of {path} has the grade {grade}, which is no number. Give numbers such as 3.5.",
            row=int(column.index[wrong[0]]) + 1,  # those with an empty cell are counted too
            path=path,
            grade=str(column.iloc[wrong[0]]),
        )
    return grades


def _labelled(found: Data, column: pd.Series) -> Data:
    """Number the labels: by themselves where they are whole numbers, else in the order of the alphabet."""

    def place(name: str) -> tuple[bool, int, str]:
        number = whole_number(name)
        return number is None, number or 0, name

    names = sorted(column.unique(), key=place)
    numbers = {name: i for i, name in enumerate(names)}
    return replace(found, gold=column.map(numbers).to_numpy(dtype=np.int64), labels=tuple(names))
