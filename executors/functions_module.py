"""AutoGen's `functions=[…]`: their source becomes a module that code in the sandbox can import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

from autogen_core.code_executor import Alias, FunctionWithRequirements, FunctionWithRequirementsStr, ImportFromModule

from autogen_codeact.sandbox.functions_source import PROMPT_TEMPLATE, SourceFunction, describe, module_source

WithRequirements = FunctionWithRequirements[Any, Any] | FunctionWithRequirementsStr
CodeFunction = WithRequirements | Callable[..., Any]


def build_functions_source(functions: Sequence[CodeFunction]) -> str:
    """Write the module of plain functions and AutoGen's functions with requirements.

    Raises:
        ValueError: Something is not a function, has no source, or needs values that don't travel; the message names it.
    """
    return module_source([_described(function) for function in functions])


def required_packages(functions: Sequence[CodeFunction]) -> list[str]:
    """Collect the packages that the functions ask for: requirements as pip takes them, each once, in the order given."""
    packages = (package for each in functions if _has_requirements(each) for package in each.python_packages)
    return list(dict.fromkeys(packages))


def functions_prompt(functions: Sequence[CodeFunction], module: str, template: str = PROMPT_TEMPLATE) -> str:
    """Tell a model which functions its code can import; see `functions_source.describe`."""
    return describe([_described(function) for function in functions], module, template)


def _has_requirements(function: CodeFunction) -> TypeGuard[WithRequirements]:
    return isinstance(function, FunctionWithRequirements | FunctionWithRequirementsStr)


def _described(function: CodeFunction) -> SourceFunction:
    if not _has_requirements(function):
        return SourceFunction(function)
    imports = tuple(map(_import_line, function.global_imports))
    if isinstance(function, FunctionWithRequirementsStr):
        return SourceFunction(function.compiled_func, function.func, imports)
    return SourceFunction(function.func, imports=imports)


def _import_line(wanted: str | Alias | ImportFromModule) -> str:
    if isinstance(wanted, ImportFromModule):
        return f"from {wanted.module} import {', '.join(map(_imported, wanted.imports))}"
    return f"import {_imported(wanted)}"


def _imported(wanted: str | Alias) -> str:
    return f"{wanted.name} as {wanted.alias}" if isinstance(wanted, Alias) else wanted
