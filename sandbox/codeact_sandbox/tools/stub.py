"""Stubs: a host tool as the sandbox and the model see it, with signature and docstring.

The sandbox gets all of that as data, and builds a function from it (runner/worker/tool_values.py): names, types and texts
come from third-party schemas, and none of them may become code.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from codeact_sandbox.tools.names import parameter_name
from codeact_sandbox.tools.type_text import TypeTexts, is_nullable, note_of, required_by, shown_default
from codeact_sandbox.types.tool import HostToolProtocol

_KINDS = inspect.Parameter
_BYTES = re.compile(r"\bbytes\b")
SHARED = "_stubs"  # the name of the code that makes stubs in the module of host tools


@dataclass(frozen=True)
class Parameter:
    name: str  # its name in Python
    key: str  # its name for the host
    type: str | None  # its type as an annotation, or None where that is not known
    default: str | None = None  # its default as the signature shows it, or None if it is required
    values: tuple[Any, ...] = ()  # the default as the only item, a JSON value; empty if only the host knows it
    omitted: bool = False  # whether None counts as not given
    kind: inspect._ParameterKind = _KINDS.POSITIONAL_OR_KEYWORD  # how it may be passed
    description: str = ""  # what it means
    rich: str = ""  # its kind if it is more than JSON, see `rich_values`; empty if not


class Stub(NamedTuple):
    name: str
    signature: str  # its parameters and result
    description: str
    source: Mapping[str, Any]  # the function, as data


class StubbedTool:
    def __init__(self, stub: Stub, origin: str) -> None:
        self.name, self.signature, self.description, self.source = stub
        self.origin = origin


def sources(tools: Sequence[HostToolProtocol]) -> list[tuple[str, str | dict[str, Any]]]:
    """Write the definitions from which the sandbox makes tools."""
    written: dict[str, str | dict[str, Any]] = {}
    for tool in tools:
        if isinstance(tool.source, str):
            written[tool.name] = tool.source
        else:
            written.setdefault(SHARED, _stub_builder())
            written[tool.name] = dict(tool.source)
    return list(written.items())


@cache
def _stub_builder() -> str:
    runner = Path(__file__).parents[1] / "runner" / "worker"
    codec = (runner / "value_codec.py").read_text(encoding="utf-8")
    return f"{(runner / 'tool_values.py').read_text(encoding='utf-8')}\n_CODEC_SOURCE = {codec!r}\n"


def write_stub(
    name: str,
    parameters: Sequence[Parameter],
    result: str | None,
    description: str,
    classes: Sequence[str] = (),
    *,
    rich_result: str = "",
) -> Stub:
    # Those without a default come first, as Python requires, unless they are passed by keyword only.
    ordered = sorted(
        parameters, key=lambda each: (each.kind, each.kind != _KINDS.KEYWORD_ONLY and each.default is not None)
    )
    text = "\n\n".join(filter(None, [_with_parameters(description, ordered), *dict.fromkeys(classes)]))
    is_bytes = result in ("bytes", "bytes | None")
    if result is not None and not is_bytes:
        result = _BYTES.sub("str", result)  # within other values they arrive as base64
    data = {
        "doc": text,
        "parameters": list(map(_data, ordered)),
        "type": result,
        "bytes": is_bytes,
        "rich": rich_result,
    }
    return Stub(name, _signature(ordered, result), text, data)


def parameters_of(schema: Mapping[str, Any], texts: TypeTexts, tool: str) -> list[Parameter]:
    """Read the parameters of a tool from the schema of its arguments."""
    needed = required_by(schema)
    parameters = [
        _parameter(key, each if isinstance(each, Mapping) else {}, texts, needed=key in needed)
        for key, each in schema.get("properties", {}).items()
    ]
    for name, number in Counter(each.name for each in parameters).items():
        if number > 1:
            raise ValueError(
                f"Two parameters of the tool `{tool}` would both be `{name}` in Python; rename one of them."
            )
    return parameters


def _parameter(key: str, schema: Mapping[str, Any], texts: TypeTexts, *, needed: bool) -> Parameter:
    text = texts.of(schema, key)
    default = schema.get("default")
    return Parameter(
        name=parameter_name(key),
        key=key,
        type=text,
        default=None if needed else shown_default({"default": default}),
        values=(default,),
        omitted=not needed and default is None and ("default" not in schema or not is_nullable(text)),
        description=note_of(schema),
    )


def _data(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "key": parameter.key,
        "kind": parameter.kind.name,
        "type": parameter.type,
        "default": parameter.default,
        "values": parameter.values,
        "omitted": parameter.omitted,
        "bytes": bool(_BYTES.search(parameter.type or "")),
        "rich": parameter.rich,
    }


class _Text(str):
    """An annotation or a default, which a signature shows as it is."""

    __slots__ = ()
    __repr__ = str.__str__


def _text_or_empty(text: str | None) -> Any:
    return inspect.Parameter.empty if text is None else _Text(text)


def _signature(parameters: Sequence[Parameter], result: str | None) -> str:
    shown = [
        inspect.Parameter(
            each.name, each.kind, default=_text_or_empty(each.default), annotation=_text_or_empty(each.type)
        )
        for each in parameters
    ]
    return str(inspect.Signature(shown, return_annotation=_text_or_empty(result)))


def _with_parameters(description: str, parameters: Sequence[Parameter]) -> str:
    described = [each for each in parameters if each.description and each.description not in description]
    if not described or "Args:" in description or ":param " in description:
        return description
    lines = [f"    {each.name}: {' '.join(each.description.split())}" for each in described]
    return "\n".join([*([description, ""] if description else []), "Args:", *lines])
