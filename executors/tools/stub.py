"""What the sandbox and the model see of a host tool: a function with signature and docstring, and the classes it needs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .shapes import ClassText, Shape, docstring
from .tool import HostTool

_KINDS = inspect.Parameter
_OWN = frozenset({"_build", "_call", "_given", "_with_base64"})


@dataclass(frozen=True)
class Parameter:
    """A parameter of a tool.

    Args:
        name: Its name in Python.
        key: Its name for the host.
        shape: Its type, or None where that is not known.
        default: Its default as the signature shows it, or None where it must be given.
        value: The default as Python source, or None where only the host knows it.
        omitted: Whether None counts as not given.
        kind: How it may be given.
        description: What it means.
    """

    name: str
    key: str
    shape: Shape | None
    default: str | None = None
    value: str | None = None
    omitted: bool = False
    kind: inspect._ParameterKind = _KINDS.POSITIONAL_OR_KEYWORD
    description: str = ""


@dataclass(frozen=True)
class Stub:
    """A tool as it looks from the sandbox.

    Args:
        name: Its name.
        signature: Its parameters and result.
        description: Its docstring.
        classes: What classes it needs.
        function: Source of the function alone.
    """

    name: str
    signature: str
    description: str
    classes: tuple[ClassText, ...]
    function: str

    @property
    def source(self) -> str:
        """Python 3.8 source that defines the function and all that it needs, given `_call`."""
        return "\n\n\n".join([values_source(), *(each.source for each in self.classes), self.function]) + "\n"


@cache
def values_source() -> str:
    """What every stub needs, the same for all."""
    return (Path(__file__).parents[1] / "runner" / "tool_values.py").read_text(encoding="utf-8").rstrip()


def module_source(tools: Iterable[HostTool]) -> str:
    """Join the sources of tools, with what they share once.

    Args:
        tools: The tools.

    Returns:
        Python 3.8 source that defines all of them, given `_call`.
    """
    parts: dict[str, None] = {}
    for tool in tools:
        stub = getattr(tool, "stub", None)
        if isinstance(stub, Stub):
            parts |= dict.fromkeys([values_source(), *(each.source for each in stub.classes), stub.function])
        else:
            parts[tool.source.rstrip()] = None
    return "\n\n\n".join(parts) + "\n"


def write_stub(
    name: str, parameters: Sequence[Parameter], result: Shape | None, description: str, classes: Iterable[ClassText]
) -> Stub:
    """Write a tool's stub.

    Args:
        name: Its name in Python.
        parameters: Its parameters.
        result: The type of its result, or None where that is not known.
        description: What it does; the meaning of parameters is added where it isn't told.
        classes: What classes it needs.

    Raises:
        ValueError: A parameter has a name that the stub needs itself.
    """
    for parameter in parameters:
        if parameter.name in _OWN:
            raise ValueError(
                f"The tool `{name}` has a parameter `{parameter.name}`, which is a name of ours; rename it."
            )
    ordered = _ordered(parameters)
    arrow = f" -> {result.text}" if result is not None else ""
    text = _with_parameters(description, ordered)
    return Stub(
        name, f"({_listed(ordered, _shown)}){arrow}", text, tuple(classes), _function(name, ordered, result, text)
    )


def _ordered(parameters: Sequence[Parameter]) -> list[Parameter]:
    """Python wants those without a default ahead of the others, unless they are given by keyword only."""
    return sorted(
        parameters, key=lambda each: (each.kind, each.kind != _KINDS.KEYWORD_ONLY and each.default is not None)
    )


def _function(name: str, parameters: Sequence[Parameter], result: Shape | None, description: str) -> str:
    arrow = f" -> {result.text!r}" if result is not None else ""
    given = ", ".join(f"{each.key!r}: {_sent(each)}" for each in parameters)
    omitted = tuple(each.key for each in parameters if each.omitted)
    lines = [f"def {name}({_listed(parameters, _defined)}){arrow}:"]
    if description:
        lines.append(f"    {docstring(description, 4)}")
    call = f"_call({name!r}, _given({{{given}}}{f', {omitted!r}' if omitted else ''}))"
    spec = result.spec if result is not None else None
    lines.append(f"    return {call if spec is None else f'_build({spec!r}, {call})'}")
    return "\n".join([*lines, "", "", f"_resolve({name})"])


def _listed(parameters: Sequence[Parameter], write: object) -> str:
    assert callable(write)
    words = []
    for number, each in enumerate(parameters):
        before = parameters[number - 1].kind if number else None
        if before == _KINDS.POSITIONAL_ONLY and each.kind != before:
            words.append("/")
        if each.kind == _KINDS.KEYWORD_ONLY and before != each.kind:
            words.append("*")
        words.append(write(each))
    if parameters and parameters[-1].kind == _KINDS.POSITIONAL_ONLY:
        words.append("/")
    return ", ".join(words)


def _shown(parameter: Parameter) -> str:
    if parameter.shape is None:
        return parameter.name if parameter.default is None else f"{parameter.name}={parameter.default}"
    default = "" if parameter.default is None else f" = {parameter.default}"
    return f"{parameter.name}: {parameter.shape.text}{default}"


def _defined(parameter: Parameter) -> str:
    annotation = f": {parameter.shape.text!r}" if parameter.shape is not None else ""
    if parameter.default is None:
        return f"{parameter.name}{annotation}"
    if parameter.omitted:
        return f"{parameter.name}{annotation} = None"
    value = f", {parameter.value}" if parameter.value is not None else ""
    return f"{parameter.name}{annotation} = _Default({parameter.default!r}{value})"


def _sent(parameter: Parameter) -> str:
    has_bytes = parameter.shape is not None and "'base64'" in repr(parameter.shape.spec)
    return f"_with_base64({parameter.name})" if has_bytes else parameter.name


def _with_parameters(description: str, parameters: Sequence[Parameter]) -> str:
    described = [each for each in parameters if each.description and each.description not in description]
    if not described or "Args:" in description or ":param " in description:
        return description
    lines = [f"    {each.name}: {' '.join(each.description.split())}" for each in described]
    return "\n".join([*([description, ""] if description else []), "Args:", *lines])
