"""All English sentences that a catalogue must translate, read from the source and from the tables of definitions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

FILES = sorted([*(ROOT / "analysis").glob("*.py"), *(ROOT / "dashboard").rglob("*.py")])
SHELL = {"shell.py", "shell_ablate.py", "shell_prune.py", "__main__.py"}  # the shell speaks English


def messages() -> dict[str, str]:
    """Return every sentence with the place where it stands."""
    found: dict[str, str] = {}
    for path in FILES:
        for text, line in sentences(path):
            found.setdefault(text, f"{path.relative_to(ROOT)}:{line}")
    for text in definitions():
        found.setdefault(text, "a table of definitions")
    return found


def sentences(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the first argument of every call of `_`, `message` and of the errors, where it is written there."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and speaks(node, path) and node.args:
            for text in constants(node.args[0]):
                yield text, node.lineno


def speaks(node: ast.Call, path: Path) -> bool:
    """Whether a call makes something that is shown."""
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name == "_":
        return True
    is_message = name in ("message", "Message") or (name.endswith("Error") and name[:-5] in OWN)
    return is_message and path.name not in SHELL


OWN = {"Headroom", "Model", "Text", "Option", "File", "Run", "Save", "Onnx"}


def constants(node: ast.expr) -> list[str]:
    """Return the strings that an expression may be: itself, or either side of a choice."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.IfExp):
        return constants(node.body) + constants(node.orelse)
    return []


def unread(path: Path) -> list[int]:
    """Return the lines of calls whose first argument is not written there, so that it must stand in a table."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and speaks(node, path) and node.args and not constants(node.args[0])
    ]


def definitions() -> list[str]:
    """Return the sentences that stand in tables."""
    from analysis.control import DOES
    from analysis.findings import MEASURES
    from dashboard.naming import INDUCTION

    return [*MEASURES.values(), *INDUCTION.values(), *(one.template for row in DOES for one in row)]
