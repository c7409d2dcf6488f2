"""AutoGen's `functions=[…]`: their source becomes a module that code in the sandbox can import.

Only source travels. A function that needs the host's values, keys or modules belongs into `tools=[…]`.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from string import Template
from types import FunctionType
from typing import Any, TypeGuard

from autogen_core.code_executor import Alias, FunctionWithRequirements, FunctionWithRequirementsStr, ImportFromModule

from autogen_codeact.sandbox.options import check_module_name

WithRequirements = FunctionWithRequirements[Any, Any] | FunctionWithRequirementsStr
CodeFunction = WithRequirements | Callable[..., Any]
Definition = ast.FunctionDef | ast.AsyncFunctionDef

FUNCTION_PROMPT_TEMPLATE = """The module `$module_name` holds the functions below. Import what you need from it by \
name, for example `from $module_name import foo` for a function `foo`, and call it; don't define it again.

$functions"""
"""A `string.Template` with the fields `$module_name` and `$functions`."""


def build_functions_source(functions: Sequence[CodeFunction]) -> str:
    """Write the module: the imports that the functions ask for, then each function without its decorators.

    Args:
        functions: Plain functions, or AutoGen's functions with requirements.

    Returns:
        Python source; the same functions in the same order give the same source.

    Raises:
        ValueError: Something is no function, has no source, or needs values that don't travel; the message names it.
    """
    unique = _unique(functions)
    imports = _imports(unique)
    bound = {_name(function) for function in unique}.union(*map(_bound_names, imports))
    bodies = [_source(function, bound) for function in unique]
    parts = ["\n".join(imports), *bodies] if imports else bodies
    source = "\n\n\n".join(parts) + "\n"
    try:
        compile(source, "functions", "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise ValueError(f"The functions make no valid module: {error.msg} in `{line}`.") from None
    return source


def required_packages(functions: Sequence[CodeFunction]) -> list[str]:
    """Collect the packages that the functions ask for.

    Args:
        functions: Plain functions, or AutoGen's functions with requirements.

    Returns:
        Requirements as pip takes them, each once, in the order given.
    """
    return list(dict.fromkeys(package for f in functions if _has_requirements(f) for package in f.python_packages))


def to_stub(function: CodeFunction) -> str:
    """Write a function's signature and docstring, with `...` for its body.

    Args:
        function: A plain function, or one of AutoGen's functions with requirements.

    Returns:
        Python source, with annotations and defaults as their author wrote them.

    Raises:
        ValueError: It is no function or has no source; the message names it.
    """
    definition, _ = _definition(function)
    lines = ast.get_docstring(definition)
    definition.body = [ast.Expr(ast.Constant(...))]
    if lines:
        # ast.unparse indents only the first line of a docstring.
        indented = textwrap.indent(lines, "    ").removeprefix("    ")
        definition.body.insert(0, ast.Expr(ast.Constant(indented)))
    definition.decorator_list = []
    return ast.unparse(ast.fix_missing_locations(definition))


def functions_prompt(functions: Sequence[CodeFunction], module: str, template: str = FUNCTION_PROMPT_TEMPLATE) -> str:
    """Tell a model which functions its code can import.

    Args:
        functions: Plain functions, or AutoGen's functions with requirements.
        module: Name of the module that they are in.
        template: A `string.Template` with the fields `$module_name` and `$functions`.

    Returns:
        The template, filled.

    Raises:
        ValueError: The module's name is no identifier, or one of the functions can't be used.
        KeyError: The template has another field.
    """
    stubs = "\n\n".join(to_stub(function) for function in _unique(functions))
    return Template(template).substitute(module_name=check_module_name(module), functions=stubs)


def _has_requirements(function: CodeFunction) -> TypeGuard[WithRequirements]:
    return isinstance(function, FunctionWithRequirements | FunctionWithRequirementsStr)


def _plain(function: CodeFunction) -> Any:
    if isinstance(function, FunctionWithRequirementsStr):
        return function.compiled_func
    return function.func if isinstance(function, FunctionWithRequirements) else function


def _name(function: CodeFunction) -> str:
    plain = _plain(function)
    return str(getattr(plain, "__name__", None) or repr(plain))


def _unique(functions: Sequence[CodeFunction]) -> list[CodeFunction]:
    by_name: dict[str, CodeFunction] = {}
    for function in functions:
        name = _name(function)
        if _plain(by_name.setdefault(name, function)) is not _plain(function):
            raise ValueError(f"Two functions are called `{name}`; rename one, since a module can hold only one.")
    return list(by_name.values())


def _imports(functions: Iterable[CodeFunction]) -> list[str]:
    """Write the import lines, each once and in the order given; those from `__future__` have to be first."""
    lines = []
    for function in functions:
        if _has_requirements(function):
            lines += [_import_line(wanted) for wanted in function.global_imports]
        code = getattr(inspect.unwrap(_plain(function)), "__code__", None)
        if code is not None and code.co_flags & __future__.annotations.compiler_flag:
            # Without it, annotations that are never evaluated on the host would be evaluated in the sandbox.
            lines.append("from __future__ import annotations")
    unique = dict.fromkeys(lines)
    return sorted(unique, key=lambda line: not line.startswith("from __future__ "))


def _import_line(wanted: str | Alias | ImportFromModule) -> str:
    if isinstance(wanted, ImportFromModule):
        return f"from {wanted.module} import {', '.join(map(_imported, wanted.imports))}"
    return f"import {_imported(wanted)}"


def _imported(wanted: str | Alias) -> str:
    return f"{wanted.name} as {wanted.alias}" if isinstance(wanted, Alias) else wanted


def _bound_names(line: str) -> set[str]:
    try:
        (statement,) = ast.parse(line).body
    except (SyntaxError, ValueError):
        raise ValueError(f"`{line}` in global_imports is not one import statement.") from None
    assert isinstance(statement, ast.Import | ast.ImportFrom)
    return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}


def _source(function: CodeFunction, bound: set[str]) -> str:
    if isinstance(function, FunctionWithRequirementsStr):
        return function.func.strip("\r\n")
    definition, lines = _definition(function)
    captured = [name for name in inspect.unwrap(_plain(function)).__code__.co_freevars if name not in bound]
    if captured:
        raise ValueError(
            f"The function `{definition.name}` uses {', '.join(f'`{name}`' for name in captured)} from the function "
            "around it, and only its own source travels. Pass it as an argument, or give the function as a tool."
        )
    return _dedented(definition, lines)


def _definition(function: CodeFunction) -> tuple[Definition, list[str]]:
    """Parse a function's source: its definition, and the lines that its line numbers count."""
    name = _name(function)
    if isinstance(function, FunctionWithRequirementsStr):
        source = function.func
    else:
        source = _written_source(inspect.unwrap(_plain(function)), name)
    if source[:1] in {" ", "\t"}:
        source = "if True:\n" + source
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        nodes = []
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node, source.split("\n")
    raise ValueError(f"The source of `{name}` has no function of that name; give a plain function made with `def`.")


def _written_source(function: Any, name: str) -> str:
    if not isinstance(function, FunctionType):
        sentence = f"`{name}` is {_kind(function)}, which has no source to send; give a function made with `def`."
        raise ValueError(sentence)  # noqa: TRY004  -- AutoGen's users catch ValueError
    if function.__name__ == "<lambda>":
        raise ValueError("A `<lambda>` has no name to import it by; give a function made with `def`.")
    try:
        return inspect.getsource(function)
    except (OSError, SyntaxError):
        raise ValueError(
            f"The source of `{name}` can't be found; define it in a file, or use FunctionWithRequirements.from_str."
        ) from None


def _kind(thing: Any) -> str:
    if inspect.isbuiltin(thing):
        return "a builtin"
    if inspect.ismethod(thing):
        return "a method"
    return "a class" if inspect.isclass(thing) else f"of type {type(thing).__name__}"


def _dedented(definition: Definition, lines: list[str]) -> str:
    """Cut a definition out and move it to the margin, without a change to the text inside its strings."""
    assert definition.end_lineno is not None
    first, last = definition.lineno, definition.end_lineno
    inside = {
        number
        for node in ast.walk(definition)
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
        for number in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
    }
    margin = lines[first - 1][: definition.col_offset]
    return "\n".join(
        line if number in inside else line.removeprefix(margin)
        for number, line in enumerate(lines[first - 1 : last], start=first)
    )
