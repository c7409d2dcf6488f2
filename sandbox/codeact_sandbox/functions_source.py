"""The source of functions as a module that code in the sandbox can import: the option `functions_source`.

Only source travels. A function that needs the host's values, keys or modules is a tool.
"""

from __future__ import annotations
import __future__

import ast
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SourceFunction:
    """A function for the module."""

    function: Any
    text: str | None = None  # its source, if it was made of text. Default: it is found
    imports: tuple[str, ...] = ()  # the import statements that it needs
    packages: tuple[str, ...] = ()  # the packages that it needs, as pip takes them

    @property
    def name(self) -> str:
        """Its name."""
        return str(getattr(self.function, "__name__", None) or repr(self.function))


def module_options(functions: Sequence[SourceFunction]) -> dict[str, Any]:
    """Return the options of a sandbox whose code can import functions: their source, and the packages that they need."""
    packages = dict.fromkeys(package for each in functions for package in each.packages)
    return {"functions_source": module_source(functions), "functions_packages": list(packages)}


def module_source(functions: Sequence[SourceFunction]) -> str:
    """Write the module: the imports that the functions ask for, then each function without its decorators."""
    listed = unique(functions)
    imports = _imports(listed)
    bound = {function.name for function in listed}.union(*map(_bound_names, imports))
    bodies = [_source(function, bound) for function in listed]
    parts = ["\n".join(imports), *bodies] if imports else bodies
    source = "\n\n\n".join(parts) + "\n"
    try:
        compile(source, "functions", "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise ValueError(f"The functions make no valid module: {error.msg} in `{line}`.") from None
    return source


def unique(functions: Sequence[SourceFunction]) -> list[SourceFunction]:
    """Return the functions, each once."""
    by_name: dict[str, SourceFunction] = {}
    for each in functions:
        if by_name.setdefault(each.name, each).function is not each.function:
            raise ValueError(f"Two functions are called `{each.name}`; rename one, since a module can hold only one.")
    return list(by_name.values())


def _imports(functions: Iterable[SourceFunction]) -> list[str]:
    """Write the import lines, each once and in the order given; those from `__future__` have to be first."""
    lines: list[str] = []
    for each in functions:
        lines += each.imports
        code = getattr(inspect.unwrap(each.function), "__code__", None)
        if code is not None and code.co_flags & __future__.annotations.compiler_flag:
            # Without it, annotations that are never evaluated on the host would be evaluated in the sandbox.
            lines.append("from __future__ import annotations")
    unique_lines = dict.fromkeys(lines)
    return sorted(unique_lines, key=lambda line: not line.startswith("from __future__ "))


def _bound_names(line: str) -> set[str]:
    try:
        (statement,) = ast.parse(line).body
    except (SyntaxError, ValueError):
        raise ValueError(f"`{line}` in global_imports is not one import statement.") from None
    assert isinstance(statement, ast.Import | ast.ImportFrom)
    return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}


def _source(function: SourceFunction, bound: set[str]) -> str:
    if function.text is not None:
        return function.text.strip("\r\n")
    definition = _definition(function)
    definition.decorator_list = []
    captured = [name for name in inspect.unwrap(function.function).__code__.co_freevars if name not in bound]
    if captured:
        raise ValueError(
            f"The function `{definition.name}` uses {', '.join(f'`{name}`' for name in captured)} from the function "
            "around it, and only its own source travels. Pass it as an argument, or give the function as a tool."
        )
    return ast.unparse(definition)


def _definition(function: SourceFunction) -> Definition:
    """Parse a function's source."""
    name, source = function.name, function.text
    if source is None:
        source = _written_source(inspect.unwrap(function.function), name)
    if source[:1] in {" ", "\t"}:
        source = "if True:\n" + source
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        nodes = []
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node
    raise ValueError(f"The source of `{name}` has no function of that name; give a plain function made with `def`.")


def _written_source(function: Any, name: str) -> str:
    if not isinstance(function, FunctionType):
        sentence = (
            f"`{name}` is a {type(function).__name__}, which has no source to send; give a function made with `def`."
        )
        raise ValueError(sentence)  # noqa: TRY004  -- AutoGen's users catch ValueError
    if function.__name__ == "<lambda>":
        raise ValueError("A `<lambda>` has no name to import it by; give a function made with `def`.")
    try:
        return inspect.getsource(function)
    except (OSError, SyntaxError):
        raise ValueError(
            f"The source of `{name}` can't be found; define it in a file, or use FunctionWithRequirements.from_str."
        ) from None
