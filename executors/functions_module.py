"""AutoGen's `functions=[…]`: their source becomes a module that code in the sandbox can import.

Only source travels. A function that needs the host's values, keys or modules is a tool.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import FunctionType
from typing import Any

from autogen_core.code_executor import Alias, FunctionWithRequirements, FunctionWithRequirementsStr, ImportFromModule

CodeFunction = FunctionWithRequirements[Any, Any] | FunctionWithRequirementsStr | Callable[..., Any]


def module_options(functions: Sequence[CodeFunction]) -> dict[str, Any]:
    """Return the options of a sandbox whose code can import functions: their source, and the packages that they need."""
    imports, packages = dict[str, None](), dict[str, None]()
    sources: dict[str, str] = {}
    captured: dict[str, Sequence[str]] = {}
    for each in functions:
        function: Any = each
        if isinstance(each, FunctionWithRequirements | FunctionWithRequirementsStr):
            function = each.func if isinstance(each, FunctionWithRequirements) else each.compiled_func
            imports |= dict.fromkeys(map(_import_line, each.global_imports))
            packages |= dict.fromkeys(each.python_packages)
        name = str(getattr(function, "__name__", None) or repr(function))
        source = each.func.strip("\r\n") if isinstance(each, FunctionWithRequirementsStr) else _source(function, name)
        if sources.setdefault(name, source) != source:
            raise ValueError(f"Two functions are called `{name}`; rename one, since a module can hold only one.")
        code = getattr(inspect.unwrap(function), "__code__", None)
        captured[name] = code.co_freevars if code is not None else ()
        if code is not None and code.co_flags & __future__.annotations.compiler_flag:
            # Without it, annotations that are never evaluated on the host would be evaluated in the sandbox.
            imports = {"from __future__ import annotations": None, **imports}
    _check_captured(captured, {*sources, *re.findall(r"\w+", " ".join(imports))})
    parts = ["\n".join(imports), *sources.values()] if imports else [*sources.values()]
    source = "\n\n\n".join(parts) + "\n"
    try:
        compile(source, "functions", "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise ValueError(f"The functions make no valid module: {error.msg} in `{line}`.") from None
    return {"functions_source": source, "functions_packages": list(packages)}


def _check_captured(captured: Mapping[str, Sequence[str]], bound: Collection[str]) -> None:
    for name, variables in captured.items():
        if missing := [f"`{each}`" for each in variables if each not in bound]:
            raise ValueError(
                f"The function `{name}` uses {', '.join(missing)} from the function around it, and only its own source "
                "travels. Pass it as an argument, or give the function as a tool."
            )


def _source(function: Any, name: str) -> str:
    function = inspect.unwrap(function) if callable(function) else function
    if not isinstance(function, FunctionType) or name == "<lambda>":
        raise ValueError(
            f"`{name}` is a {type(function).__name__} without source to send; give a function made with `def`."
        )
    try:
        (definition,) = ast.parse(_at_margin(inspect.getsource(function))).body
    except (OSError, SyntaxError, ValueError):
        raise ValueError(
            f"The source of `{name}` can't be found; define it in a file, or use FunctionWithRequirements.from_str."
        ) from None
    if isinstance(definition, ast.If):
        (definition,) = definition.body
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef) or definition.name != function.__name__:
        raise ValueError(f"The source of `{name}` has no function of that name; give a plain function made with `def`.")
    definition.decorator_list = []
    return ast.unparse(definition)


def _at_margin(source: str) -> str:
    # Not dedented: that would change strings of several lines.
    return f"if True:\n{source}" if source[:1] in {" ", "\t"} else source


def _import_line(wanted: str | Alias | ImportFromModule) -> str:
    if isinstance(wanted, ImportFromModule):
        return f"from {wanted.module} import {', '.join(map(_imported, wanted.imports))}"
    return f"import {_imported(wanted)}"


def _imported(wanted: str | Alias) -> str:
    return f"{wanted.name} as {wanted.alias}" if isinstance(wanted, Alias) else wanted
