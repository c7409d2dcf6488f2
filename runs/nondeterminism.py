"""Finds variables of a session that get other values if their code runs again: they depend on random numbers or time."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

MODULES = frozenset({"random", "secrets", "uuid"})
ATTRIBUTES = frozenset(
    {
        *("random", "default_rng", "RandomState", "urandom", "getpid", "getrandbits", "now", "today", "utcnow"),
        *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "ctime"),
        *("localtime", "gmtime", "id", "hash"),
    }
)
"""Names that give another value each time, such as `time` in `time.time()`; `id` and `hash` are built in."""
BUILT_IN = frozenset({"id", "hash"})
ROUNDS = 20


def nondeterministic_variables(codes: Iterable[str]) -> list[str]:
    """Return the global variables that may have other values if the code runs again, sorted.

    Only the code itself is examined, not the functions of libraries that it calls.

    Args:
        codes: Python code, block by block.
    """
    bodies = [tree.body for code in codes if (tree := _parse(code)) is not None]
    names = _Names()
    for _ in range(ROUNDS):
        before = len(names.tainted)
        for body in bodies:
            names.read(body, is_random=False)
        if len(names.tainted) == before:
            break
    return sorted(names.tainted - names.sources)


def _parse(code: str) -> ast.Module | None:
    python_lines = "\n".join(line for line in code.splitlines() if not line.lstrip().startswith(("%", "!")))
    try:
        return ast.parse(python_lines)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Names:
    def __init__(self) -> None:
        self.sources = set(BUILT_IN)  # modules and functions whose values are random or depend on the time
        self.imported: set[str] = set()
        self.tainted = set(BUILT_IN)

    def read(self, body: Sequence[ast.stmt], *, is_random: bool) -> None:
        for statement in body:
            match statement:
                case ast.Import() | ast.ImportFrom():
                    self._imported(statement)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    if self._uses(statement):
                        self._add_source(statement.name)
                case _:
                    self._statement(statement, is_random=is_random)

    def _imported(self, statement: ast.Import | ast.ImportFrom) -> None:
        module = getattr(statement, "module", None) or ""
        self.imported |= {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
        for alias in statement.names:
            name = alias.asname or alias.name
            if isinstance(statement, ast.Import):
                if alias.name in MODULES:
                    self._add_source(name)
            elif module in MODULES or alias.name in ATTRIBUTES - BUILT_IN:
                self._add_source(name)

    def _add_source(self, name: str) -> None:
        self.sources.add(name)
        self.tainted.add(name)

    def _statement(self, statement: ast.stmt, *, is_random: bool) -> None:
        bodies = [each for each in _bodies(statement) if each]
        heads = [each for each in ast.iter_child_nodes(statement) if isinstance(each, ast.expr | ast.withitem)]
        is_random = is_random or any(map(self._uses, heads))
        if is_random:
            self._taint(name for head in heads for name in _assigned(head))
        for call in (each for head in heads for each in ast.walk(head) if isinstance(each, ast.Call)):
            if self._uses(call):
                # Such as `shuffle(values)` and `values.append(random())`, but not the function of `str(drawn)`.
                owner = [call.func] if isinstance(call.func, ast.Attribute) else []
                self._taint(root for each in (*owner, *call.args) if (root := _root(each)) is not None)
        for body in bodies:
            self.read(body, is_random=is_random)

    def _taint(self, names: Iterable[str]) -> None:
        self.tainted |= set(names) - self.imported

    def _uses(self, node: ast.AST) -> bool:
        return any(
            (isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each.id in self.tainted)
            or (isinstance(each, ast.Attribute) and each.attr in ATTRIBUTES - BUILT_IN)
            for each in ast.walk(node)
        )


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for each in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield each.body


def _assigned(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name | ast.Attribute | ast.Subscript) and isinstance(each.ctx, ast.Store):
            root = _root(each)
            if root is not None:
                yield root


def _root(node: ast.AST) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
