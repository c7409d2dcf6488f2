"""Classes in the parameters and results of tools: their text for readers and their data for the sandbox."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autogen_codeact.sandbox.tools.shapes import Shape

MAX_DEFAULT_CHARS = 80
_BASES: Mapping[str | None, type] = {"str": str, "int": int, "float": float}


@dataclass(frozen=True)
class ClassText:
    """A class that stubs use.

    Args:
        name: Its name.
        shown: Its definition for a reader.
        data: Its definition for the sandbox, as data: sandbox/runner/tool_values.py builds the class from it.
    """

    name: str
    shown: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Field:
    """A field of a class.

    Args:
        attribute: Its name in Python.
        key: Its name for the host.
        shape: Its type.
        schema: Its schema.
        needed: Whether it is required.
        members: How the values of its enum are shown.
    """

    attribute: str
    key: str
    shape: Shape
    schema: Mapping[str, Any]
    needed: bool
    members: Mapping[str, str]

    @property
    def sent(self) -> str:
        """When it is sent to the host."""
        if self.schema.get("readOnly"):
            return "never"
        return "given" if not self.needed and self.schema.get("default") is None else "always"

    @property
    def signs(self) -> tuple[str, list[Any]] | None:
        """Its key and the values that distinguish its class from others."""
        values = self.schema.get("enum") or ([self.schema["const"]] if "const" in self.schema else None)
        return (self.key, list(values)) if values else None


def data_class(name: str, schema: Mapping[str, Any], fields: list[Field]) -> ClassText:
    """Describe a dataclass."""
    shown = ["@dataclass", f"class {name}:", *_docstring(schema.get("description"))]
    for field in fields:
        comment = _comment(field.schema.get("description"))
        default = "" if field.needed else f" = {_shown_default(field)}"
        shown.append(f"    {field.attribute}: {field.shape.text}{default}{comment}")
    return ClassText(name, "\n".join(shown), _data("dataclass", schema, fields))


def typed_dict(name: str, schema: Mapping[str, Any], fields: list[Field]) -> ClassText:
    """Describe a typed dict."""
    texts = {f.key: f.shape.text if f.needed else f"NotRequired[{f.shape.text}]" for f in fields}
    if all(key.isidentifier() and not keyword.iskeyword(key) for key in texts):
        doc = _docstring(schema.get("description"))
        shown = [f"class {name}(TypedDict):", *doc, *(f"    {key}: {text}" for key, text in texts.items())]
    else:
        shown = [f"{name} = TypedDict({name!r}, {{{', '.join(f'{key!r}: {text}' for key, text in texts.items())}}})"]
    return ClassText(name, "\n".join(shown), _data("typed_dict", schema, fields))


def _data(kind: str, schema: Mapping[str, Any], fields: list[Field]) -> dict[str, Any]:
    return {
        "kind": kind,
        "doc": str(schema.get("description") or ""),
        "fields": [[f.attribute, f.key, f.shape.spec, f.sent] for f in fields],
        "signs": [[f.key for f in fields if f.needed], [f.signs for f in fields if f.signs]],
        "types": [f.shape.text for f in fields],
        "defaults": [[] if f.needed else [f.schema.get("default")] for f in fields],
    }


def enum_class(name: str, schema: Mapping[str, Any], members: list[tuple[str, Any]], base: str | None) -> ClassText:
    """Describe an enum."""
    if base not in _BASES or not all(isinstance(value, _BASES[base]) for _, value in members):
        base = None
    head = f"class {name}({base}, Enum):" if base else f"class {name}(Enum):"
    doc = _docstring(schema.get("description"))
    return ClassText(
        name,
        "\n".join([head, *doc, *(f"    {member} = {value!r}" for member, value in members)]),
        {"kind": "enum", "doc": str(schema.get("description") or ""), "members": members, "base": base},
    )


def _docstring(text: Any) -> list[str]:
    return [f"    {docstring(str(text), 4)}"] if text else []


def docstring(text: str, margin: int) -> str:
    """Write a docstring.

    Args:
        text: The content.
        margin: Columns in front of each line but the first.
    """
    safe = text.strip().replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if safe.endswith('"'):
        safe = safe[:-1] + '\\"'
    lines = safe.splitlines()
    if len(lines) <= 1:
        return f'"""{safe}"""'
    return '"""' + "\n".join(
        [lines[0], *(" " * margin + line if line else "" for line in lines[1:]), " " * margin + '"""']
    )


def _comment(text: Any) -> str:
    return f"  # {' '.join(str(text).split())}" if text else ""


def _shown_default(field: Field) -> str:
    """Its default for a reader; `...` if only the host knows it."""
    text = shown_value(field.schema["default"]) if "default" in field.schema else "..."
    return field.members.get(text, text)


def shown_value(value: Any) -> str:
    """Write a default for a reader; `...` if it is long."""
    text = repr(value)
    return text if len(text) <= MAX_DEFAULT_CHARS else "..."
