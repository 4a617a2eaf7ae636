"""A function as a reader sees it: its own source, without the docstring, so that it cannot drift."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import lru_cache


@lru_cache
def code_of(thing: object) -> str:
    """Return the source of a function, method or class without docstrings."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(thing)))  # type: ignore[arg-type]
    lines = source.splitlines()
    for node in reversed(list(ast.walk(ast.parse(source)))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            said = node.body[0]
            assert said.end_lineno is not None
            following = lines[said.end_lineno :]
            gap = 1 if following and not following[0].strip() else 0
            del lines[said.lineno - 1 : said.end_lineno + gap]
    return "\n".join(lines).strip()
