"""AutoGen's `functions=[…]`: their source becomes a module that code in the sandbox can import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autogen_core.code_executor import Alias, FunctionWithRequirements, FunctionWithRequirementsStr, ImportFromModule

from codeact_sandbox.functions_source import SourceFunction

CodeFunction = FunctionWithRequirements[Any, Any] | FunctionWithRequirementsStr | Callable[..., Any]


def source_function(function: CodeFunction) -> SourceFunction:
    """Return a function as the sandbox library takes it."""
    if not isinstance(function, FunctionWithRequirements | FunctionWithRequirementsStr):
        return SourceFunction(function)
    imports, packages = tuple(map(_import_line, function.global_imports)), tuple(function.python_packages)
    if isinstance(function, FunctionWithRequirementsStr):
        return SourceFunction(function.compiled_func, function.func, imports, packages)
    return SourceFunction(function.func, imports=imports, packages=packages)


def _import_line(wanted: str | Alias | ImportFromModule) -> str:
    if isinstance(wanted, ImportFromModule):
        return f"from {wanted.module} import {', '.join(map(_imported, wanted.imports))}"
    return f"import {_imported(wanted)}"


def _imported(wanted: str | Alias) -> str:
    return f"{wanted.name} as {wanted.alias}" if isinstance(wanted, Alias) else wanted
