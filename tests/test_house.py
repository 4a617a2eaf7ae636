"""The house rules: data flows one way, every public thing says what it is, no file grows too long."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

ANALYSIS = ROOT / "analysis"
FILES = sorted(ANALYSIS.rglob("*.py"))
SCREEN = {"dashboard", "streamlit", "plotly"}
LONGEST = 320


def listed() -> list[str]:
    """Return the modules of analysis in the order of its docstring."""
    text = ast.get_docstring(ast.parse((ANALYSIS / "__init__.py").read_text(encoding="utf-8")))
    order = text[text.index("One direction of data") :]
    return re.findall(r"^ {4}(\w+) {2,}\S", order, flags=re.MULTILINE)


def imported(path: Path) -> set[str]:
    """Return the full names of all that a file imports, also inside functions and for types only."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = path.relative_to(ROOT).with_suffix("").parts[: -node.level] if node.level else ()
            base = ".".join([*parent, *([node.module] if node.module else [])])
            names.add(base)
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def test_the_list_names_every_module():
    assert sorted(listed()) == sorted(path.stem for path in ANALYSIS.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_module_imports_from_those_above_it_only(path):
    order = listed()
    own = {name.split(".")[1] for name in imported(path) if name.startswith("analysis.")}
    above = set() if path.stem == "__init__" else set(order[: order.index(path.stem)])
    assert own & set(order) <= above
    assert own <= above | {
        name for name in own if name not in order and not (ANALYSIS / f"{name}.py").exists()
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_computing_does_not_know_the_screen(path):
    assert not {name.split(".")[0] for name in imported(path)} & SCREEN


def test_the_package_itself_imports_nothing():
    assert imported(ANALYSIS / "__init__.py") == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_public_thing_has_a_docstring(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    silent = [
        node.name
        for node in tree.body
        if isinstance(node, kinds) and not node.name.startswith("_") and not ast.get_docstring(node)
    ]
    assert silent == []


@pytest.mark.parametrize(
    "path",
    [*FILES, *sorted((ROOT / "dashboard").rglob("*.py"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_file_grows_too_long(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


def test_only_one_place_listens_to_the_boxes():
    """`boxes.draw` hears only what a person chose. A callback of its own beside it would hear stale values too."""
    found = {
        (path.relative_to(ROOT).as_posix(), ast.unparse(word.value))
        for path in (ROOT / "dashboard").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg == "on_change" and ast.unparse(word.value) != "'rerun'"
    }
    assert found == {
        ("dashboard/boxes.py", "keep"),
        ("dashboard/corpus.py", "_forget_error"),  # these two choose nothing
        ("dashboard/ablation_controls.py", "_forget_error"),
        ("dashboard/learn/by_hand.py", "take"),  # a table: its key changes with what it shows
    }
