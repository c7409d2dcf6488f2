"""Stubs: a host tool as the sandbox and the model see it, with signature, docstring and the classes it uses.

The sandbox gets all of that as data, and builds functions and classes from it (sandbox/runner/tool_values.py): names, types
and texts come from third-party schemas, and none of them may become code.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autogen_codeact.sandbox.tools.classes import ClassText
from autogen_codeact.sandbox.tools.shapes import Shape

_KINDS = inspect.Parameter
SHARED = "_stubs"
"""The name of the code that makes stubs in the module of host tools."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a tool.

    Args:
        name: Its name in Python.
        key: Its name for the host.
        shape: Its type, or None where that is not known.
        default: Its default as the signature shows it, or None if it is required.
        values: The default as the only item, a JSON value; empty if only the host knows it.
        omitted: Whether None counts as not given.
        kind: How it may be passed.
        description: What it means.
    """

    name: str
    key: str
    shape: Shape | None
    default: str | None = None
    values: tuple[Any, ...] = ()
    omitted: bool = False
    kind: inspect._ParameterKind = _KINDS.POSITIONAL_OR_KEYWORD
    description: str = ""


@dataclass(frozen=True)
class Stub:
    """A tool as the sandbox sees it.

    Args:
        name: Its name.
        signature: Its parameters and result.
        description: Its docstring.
        classes: The classes that it uses.
        data: The function, as data.
    """

    name: str
    signature: str
    description: str
    classes: tuple[ClassText, ...]
    data: dict[str, Any]


class StubbedTool:
    """A host tool that has a stub."""

    stub: Stub

    @property
    def name(self) -> str:
        """Its name in Python."""
        return self.stub.name

    @property
    def signature(self) -> str:
        """Its parameters and result."""
        return self.stub.signature

    @property
    def description(self) -> str:
        """Its docstring."""
        return self.stub.description

    @property
    def classes(self) -> tuple[ClassText, ...]:
        """The classes that it uses."""
        return self.stub.classes

    @property
    def source(self) -> Stub:
        """Its definition for the sandbox."""
        return self.stub


@cache
def values_source() -> str:
    """The code that makes stubs, the same for all of them."""
    return (Path(__file__).parents[1] / "runner" / "tool_values.py").read_text(encoding="utf-8")


def write_stub(
    name: str, parameters: Sequence[Parameter], result: Shape | None, description: str, classes: Iterable[ClassText]
) -> Stub:
    """Write a tool's stub.

    Args:
        name: Its name in Python.
        parameters: Its parameters.
        result: The type of its result, or None where that is not known.
        description: What it does; the meaning of parameters is added where it isn't told.
        classes: The classes that it uses.
    """
    ordered = _ordered(parameters)
    arrow = f" -> {result.text}" if result is not None else ""
    text = _with_parameters(description, ordered)
    data = {
        "kind": "function",
        "doc": text,
        "parameters": list(map(_data, ordered)),
        "type": result.text if result is not None else None,
        "spec": result.spec if result is not None else None,
    }
    return Stub(name, f"({_listed(ordered)}){arrow}", text, tuple(classes), data)


def _ordered(parameters: Sequence[Parameter]) -> list[Parameter]:
    """Python wants those without a default ahead of the others, unless they are given by keyword only."""
    return sorted(
        parameters, key=lambda each: (each.kind, each.kind != _KINDS.KEYWORD_ONLY and each.default is not None)
    )


def _data(parameter: Parameter) -> dict[str, Any]:
    shape = parameter.shape
    return {
        "name": parameter.name,
        "key": parameter.key,
        "kind": parameter.kind.name,
        "type": shape.text if shape is not None else None,
        "default": parameter.default,
        "values": parameter.values,
        "omitted": parameter.omitted,
        "bytes": shape is not None and "'base64'" in repr(shape.spec),
    }


def _listed(parameters: Sequence[Parameter]) -> str:
    words = []
    for number, each in enumerate(parameters):
        before = parameters[number - 1].kind if number else None
        if before == _KINDS.POSITIONAL_ONLY and each.kind != before:
            words.append("/")
        if each.kind == _KINDS.KEYWORD_ONLY and before != each.kind:
            words.append("*")
        words.append(_shown(each))
    if parameters and parameters[-1].kind == _KINDS.POSITIONAL_ONLY:
        words.append("/")
    return ", ".join(words)


def _shown(parameter: Parameter) -> str:
    if parameter.shape is None:
        return parameter.name if parameter.default is None else f"{parameter.name}={parameter.default}"
    default = "" if parameter.default is None else f" = {parameter.default}"
    return f"{parameter.name}: {parameter.shape.text}{default}"


def _with_parameters(description: str, parameters: Sequence[Parameter]) -> str:
    described = [each for each in parameters if each.description and each.description not in description]
    if not described or "Args:" in description or ":param " in description:
        return description
    lines = [f"    {each.name}: {' '.join(each.description.split())}" for each in described]
    return "\n".join([*([description, ""] if description else []), "Args:", *lines])
