"""AutoGen's `functions=[…]`: their source becomes a module that code in the sandbox can import.

Only source travels. A function that needs the host's values, keys or modules is a tool.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from autogen_core.code_executor import Alias, FunctionWithRequirements, FunctionWithRequirementsStr, ImportFromModule

CodeFunction = FunctionWithRequirements[Any, Any] | FunctionWithRequirementsStr | Callable[..., Any]


def module_options(functions: Sequence[CodeFunction]) -> dict[str, Any]:
    """Return the options of a sandbox whose code can import functions: their source, and the packages that they need."""
    # Annotations that are never evaluated on the host are not evaluated in the sandbox either.
    imports, packages = {"from __future__ import annotations": None}, dict[str, None]()
    sources: dict[str, str] = {}
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
    source = "\n\n\n".join(["\n".join(imports), *sources.values()]) + "\n"
    try:
        compile(source, "functions", "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise ValueError(f"The functions make no valid module: {error.msg} in `{line}`.") from None
    return {"functions_source": source, "functions_packages": list(packages)}


def _source(function: Any, name: str) -> str:
    function = inspect.unwrap(function) if callable(function) else function
    if not isinstance(function, FunctionType) or name == "<lambda>":
        raise ValueError(
            f"`{name}` is a {type(function).__name__} without source to send; give a function made with `def`."
        )
    try:
        source = inspect.getsource(function)
        # Not dedented: that would change strings of several lines.
        (definition,) = ast.parse(f"if True:\n{source}" if source[:1] in {" ", "\t"} else source).body
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


def _import_line(wanted: str | Alias | ImportFromModule) -> str:
    if isinstance(wanted, ImportFromModule):
        return f"from {wanted.module} import {', '.join(map(_imported, wanted.imports))}"
    return f"import {_imported(wanted)}"


def _imported(wanted: str | Alias) -> str:
    return f"{wanted.name} as {wanted.alias}" if isinstance(wanted, Alias) else wanted
