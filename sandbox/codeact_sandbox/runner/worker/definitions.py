"""The functions, classes and imports of cells as a file, for processes that start with a new interpreter.

Such a process (`spawn`, `forkserver`) imports the main module, and the cells of a session are in no file.
"""

import ast
import os
import textwrap

from . import imports

_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
_ENCLOSES = (ast.If, ast.Try, ast.With, ast.For)


class Definitions:
    """What the cells of a session have defined, the newest for each name."""

    def __init__(self, namespace):
        self._namespace = namespace
        self._found = {}
        self._path = None

    def note(self, tree, text):
        """Remember what a cell defines; constants are those that are written as literals."""
        for node in _defining(tree.body):
            names = _names(node)
            for name in names:
                self._found.pop(name, None)
                self._found[name] = (text, node)

    def file(self):
        """Write the file, and return its path."""
        found = [found for name, found in self._found.items() if name.partition(".")[0] in self._namespace]
        texts = dict.fromkeys(_source(text, node) for text, node in found)
        if self._path is None:
            fd, self._path = imports.own_import("tempfile").mkstemp(".py", "session_definitions_")
            os.close(fd)
        # Replaced as a whole: a process that starts may be reading it.
        with open(self._path + ".new", "w", encoding="utf-8") as file:
            file.write("\n".join(texts) + "\n")
        os.replace(self._path + ".new", self._path)
        return self._path


def _defining(body):
    for node in body:
        if isinstance(node, _DEFINES) or (isinstance(node, ast.Assign) and _is_literal(node.value)):
            yield node
        elif isinstance(node, _ENCLOSES):
            for field in ("body", "orelse", "finalbody"):
                yield from _defining(getattr(node, field, ()))


def _is_literal(value):
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _names(node):
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name for alias in node.names]
    return [node.name]


def _source(text, node):
    decorators = getattr(node, "decorator_list", ())
    parts = ["@" + (ast.get_source_segment(text, each) or "") for each in decorators]
    return "\n".join([*parts, textwrap.dedent(ast.get_source_segment(text, node, padded=True) or "")])
