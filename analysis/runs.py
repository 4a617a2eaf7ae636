"""The record of an experiment: a folder that is written as it goes, so that a killed run can be resumed.

``run.json`` says what was asked, of which weights and data (by their hashes), and the command that repeats it.
``units/`` holds what is finished, a file a unit; each is written whole under another name and then renamed, so
that a unit is either there or not.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.messages import HeadroomError

LIBRARIES = ("torch", "transformers", "numpy", "scipy")
FORMAT = 1


class RunError(HeadroomError):
    """A run folder that cannot be written, or cannot be resumed."""


@dataclass(frozen=True)
class Run:
    """A run folder and what its ``run.json`` says."""

    folder: Path
    facts: dict[str, object]

    def has(self, unit: str) -> bool:
        """Whether a unit is finished."""
        return self._path(unit).is_file()

    def keep(self, unit: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write a finished unit. Raises RunError where the folder cannot be written."""

        def write(path: Path) -> None:
            with open(path, "wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
                file.flush()
                os.fsync(file.fileno())

        write_whole(self._path(unit), write)

    def read(self, unit: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
        """Return a finished unit. Raises RunError where it is not what was written."""
        try:
            with np.load(self._path(unit), allow_pickle=False) as file:
                found = {name: file[name] for name in file.files}
        except Exception as error:  # a broken archive can fail in any way
            raise RunError(
                "The unit {unit} of {folder} is damaged. Delete its file, and it is computed again.",
                unit=unit,
                folder=str(self.folder),
            ) from error
        if {name: table.shape for name, table in found.items()} != dict(shapes):
            raise RunError(
                "The unit {unit} of {folder} belongs to another run. Start a new one.",
                unit=unit,
                folder=str(self.folder),
            )
        return found

    def _path(self, unit: str) -> Path:
        return self.folder / "units" / f"{unit}.npz"


def begin(folder: Path, facts: Mapping[str, object]) -> Run:
    """Start a run in a new or empty folder. Raises RunError for one that holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(
            "{folder} is not empty. Name another folder, or resume the run in it.", folder=str(folder)
        )
    try:
        (folder / "units").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(folder, error) from error
    whole = {
        "format": FORMAT,
        "begun": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": platform.python_version(),
        "versions": _versions(),
        **facts,
    }
    text = json.dumps(whole, indent=1, ensure_ascii=False)
    write_whole(folder / "run.json", lambda path: path.write_text(text, encoding="utf-8"))
    return Run(folder, json.loads(text))


def resume(folder: Path) -> Run:
    """Open the run in ``folder`` to go on with it. Raises RunError for a folder that holds none, or a damaged one."""
    path = folder / "run.json"
    if not path.is_file():
        raise RunError("{folder} holds no run: it has no run.json. Check the path.", folder=str(folder))
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts["format"] != FORMAT:
            raise ValueError(facts["format"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunError(
            "The run.json of {folder} is damaged or of another version. Start the run anew.",
            folder=str(folder),
        ) from error
    try:
        (folder / "units").mkdir(exist_ok=True)
        for left in (folder / "units").glob("*.part"):
            left.unlink()
    except OSError as error:
        raise _not_writable(folder / "units", error) from error
    return Run(folder, facts)


def root() -> Path:
    """Return the folder of all runs: ``runs`` where the program was started, or what HEADROOM_RUNS says."""
    return Path(os.environ.get("HEADROOM_RUNS") or "runs")


def folder_for(name: str) -> Path:
    """Return a new folder's path for a run: its time and its name, counted up where there is one already."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-")
    wanted = root() / f"{time.strftime('%Y%m%d-%H%M%S')}-{plain}"
    others = (wanted.with_name(f"{wanted.name}-{number}") for number in count(2))
    return wanted if not wanted.exists() else next(other for other in others if not other.exists())


def find(facts: Mapping[str, object]) -> Path | None:
    """Return the folder of the newest run with these facts, or None; what cannot be read is passed over."""
    wanted = json.loads(json.dumps(facts))
    for path in sorted(root().glob("*/run.json"), reverse=True):
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(said, dict) and said.get("format") == FORMAT:
            there = {name: said.get(name) for name in wanted}
            if there == wanted and said.get("versions") == _versions():
                return path.parent
    return None


def listing() -> pd.DataFrame:
    """Return a row a run, the newest first: folder, begun, task, protocol, replacement, model, examples, finished."""
    rows = []
    for path in sorted(root().glob("*/run.json"), reverse=True):
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            options = said["options"]
            row = {name: options[name] for name in ("task", "protocol", "replacement")}
            row |= {"model": said["model"], "examples": said["examples"], "begun": said["begun"]}
        except (OSError, ValueError, TypeError, KeyError):
            continue
        finished = (path.parent / "result.csv").is_file()
        rows.append({"folder": str(path.parent), **row, "finished": finished})
    return pd.DataFrame(
        rows,
        columns=["folder", "begun", "task", "protocol", "replacement", "model", "examples", "finished"],
    )


def _versions() -> dict[str, str]:
    return {name: version(name) for name in LIBRARIES}


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file, or of all safetensors of a folder by their names."""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(path.glob("*.safetensors")):
        with open(file, "rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def hash_of_texts(*parts: object) -> str:
    """Return the SHA-256 of data as it was read."""
    return hashlib.sha256(
        json.dumps(parts, ensure_ascii=False, default=str).encode("utf-8", "replace")
    ).hexdigest()


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a file beside ``path``, and put it there in one step. Raises RunError where that fails."""
    part = path.with_name(path.name + ".part")
    try:
        write(part)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise _not_writable(path.parent, error) from error


def _not_writable(folder: Path, error: OSError) -> RunError:
    free = shutil.disk_usage(folder.anchor or ".").free / 1e9
    return RunError(
        "{folder} cannot be written: {reason} ({free:.1f} GB free). Choose another place, and resume.",
        folder=str(folder),
        reason=error.strerror or str(error),
        free=free,
    )
