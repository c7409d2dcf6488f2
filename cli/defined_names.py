"""Lists the names that code defines in a session."""

from __future__ import annotations

import ast
from collections.abc import Iterable

MAX_NAMES = 30


def defined_names(codes: Iterable[str]) -> list[str]:
    """Return the names that Python code binds at its top level, in order, without those of modules."""
    names: dict[str, None] = {}
    for code in codes:
        try:
            tree = ast.parse(code[:100_000])
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for statement in tree.body:
            for name in _bound(statement):
                names[name] = None
    found = [name for name in names if not name.startswith("_")]
    more = len(found) - MAX_NAMES
    return [*found[:MAX_NAMES], *([f"and {more} more"] if more > 0 else [])]


def _bound(statement: ast.stmt) -> Iterable[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif not isinstance(statement, ast.Import | ast.ImportFrom):
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
