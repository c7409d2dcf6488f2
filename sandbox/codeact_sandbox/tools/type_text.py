"""JSON schemas as text for readers: Python annotations, and the keys of the dicts that they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from codeact_sandbox.tools.names import class_name

MAX_DEPTH = 50
# Definitions that refer to each other could expand to a text larger than memory.
MAX_TYPE_CHARS = 2000
MAX_CLASSES = 100
MAX_KEYS = 200
MAX_NAME_CHARS = 80
MAX_DEFAULT_CHARS = 80
BASE64 = "base64url"  # the `format` of a string that contains bytes

_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


class TypeTexts:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._named: dict[str, str] = {}
        self._classes: dict[str, tuple[Mapping[str, Any], str]] = {}
        self._depth = 0

    @property
    def classes(self) -> list[str]:
        """The descriptions of the dicts, each with its keys on lines of their own."""
        return [text for _, text in self._classes.values()]

    def of(self, schema: Any, hint: str = "Value") -> str:
        if not isinstance(schema, Mapping) or self._depth >= MAX_DEPTH:
            return "Any"
        self._depth += 1
        try:
            text = self._of(schema, hint)
        finally:
            self._depth -= 1
        return text if len(text) <= MAX_TYPE_CHARS else "Any"

    def _of(self, schema: Mapping[str, Any], hint: str) -> str:  # noqa: PLR0911 - one for each form of a schema
        if "$ref" in schema:
            return self._referenced(str(schema["$ref"]).rpartition("/")[2])
        for several in ("anyOf", "oneOf"):
            if schema.get(several) and isinstance(schema[several], list):
                return _union([self.of(each, hint) for each in schema[several]])
        if isinstance(schema.get("allOf"), list) and len(schema["allOf"]) == 1:
            return self.of(schema["allOf"][0], hint)
        if "const" in schema:
            return _literal([schema["const"]])
        if isinstance(schema.get("enum"), list):
            return _literal(schema["enum"])
        kind = schema.get("type")
        if isinstance(kind, list):
            return _union([self.of({**schema, "type": each}, hint) for each in kind])
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema, hint)
        if kind == "array":
            return self._array(schema, hint)
        if kind == "string" and schema.get("format") == BASE64:
            return "bytes"
        return _SCALARS.get(kind, "Any") if isinstance(kind, str) else "Any"

    def _referenced(self, name: str) -> str:
        schema = self._definitions.get(name)
        if not isinstance(schema, Mapping):  # McpWorkbench leaves the definitions out
            return "dict[str, Any]"
        if name not in self._named:
            self._named[name] = "Any"  # for an alias that refers to itself
            self._named[name] = self.of(schema, name)
        return self._named[name]

    def _object(self, schema: Mapping[str, Any], hint: str) -> str:
        properties = schema.get("properties")
        if not properties or not isinstance(properties, Mapping) or len(self._classes) >= MAX_CLASSES:
            return f"dict[str, {self.of(schema.get('additionalProperties', True), hint)}]"
        base = class_name(str(schema.get("title") or hint))[:MAX_NAME_CHARS]
        name, number = base, 1
        while name in self._classes and self._classes[name][0] != schema:
            number += 1
            name = f"{base}{number}"
        if name not in self._classes:
            self._named.update((key, name) for key, each in self._definitions.items() if each is schema)
            self._classes[name] = (schema, "")  # before the classes of its keys, and for recursive references
            self._classes[name] = (schema, self._described(name, schema, properties))
        return name

    def _described(self, name: str, schema: Mapping[str, Any], properties: Mapping[str, Any]) -> str:
        words = _one_line(schema.get("description"))
        lines = [f"{name}, a dict: {words}" if words else f"{name}, a dict:"]
        needed = required_by(schema)
        for key, each in list(properties.items())[:MAX_KEYS]:
            note = note_of(each)
            default = "" if key in needed else _optional(each)
            lines.append(f"    {_one_line(key)}: {self.of(each, key)}{default}{f'  # {note}' if note else ''}")
        if len(properties) > MAX_KEYS:
            lines.append(f"    … and {len(properties) - MAX_KEYS:,} more")
        return "\n".join(lines)

    def _array(self, schema: Mapping[str, Any], hint: str) -> str:
        items = schema.get("prefixItems")
        if items and isinstance(items, list):
            return f"tuple[{', '.join(self.of(each, hint) for each in items)}]"
        return f"list[{self.of(schema.get('items', True), hint)}]"


def _definitions_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definitions that a schema may refer to, by name."""
    found: dict[str, Any] = {}
    for key in ("definitions", "$defs"):
        if isinstance(schema.get(key), Mapping):
            found |= schema[key]
    return found


def merged_definitions(arguments: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the definitions of two schemas: a class in both also has the keys that only results have."""
    of_arguments, of_result = _definitions_of(arguments), _definitions_of(result)
    merged = {**of_result, **of_arguments}
    for name in of_arguments.keys() & of_result.keys():
        if "properties" in of_arguments[name]:
            more = of_result[name].get("properties", {})
            merged[name] = {**of_arguments[name], "properties": {**more, **of_arguments[name]["properties"]}}
    return merged


def is_nullable(text: str) -> bool:
    """Return whether None is a value of a type."""
    return text in ("Any", "None") or text.endswith(" | None")


def required_by(schema: Mapping[str, Any]) -> set[str]:
    needed = schema.get("required")
    return {each for each in needed if isinstance(each, str)} if isinstance(needed, list | tuple) else set()


def note_of(schema: Any) -> str:
    """Return a schema's description and format, in one line."""
    if not isinstance(schema, Mapping):
        return ""
    format_ = schema.get("format")
    words = [_one_line(schema.get("description")) if "$ref" not in schema else ""]
    words += [f"format: {_one_line(format_)}"] if isinstance(format_, str) and format_ != BASE64 else []
    return "; ".join(filter(None, words))


def shown_default(schema: Any) -> str:
    """Return the text of a schema's default; `...` if it has none or a long one."""
    if not isinstance(schema, Mapping) or "default" not in schema:
        return "..."
    text = repr(schema["default"])
    return text if len(text) <= MAX_DEFAULT_CHARS else "..."


def _optional(schema: Any) -> str:
    has_default = isinstance(schema, Mapping) and "default" in schema
    return f" = {shown_default(schema)}" if has_default else " (optional)"


def _one_line(text: Any) -> str:
    return " ".join(str(text).split()) if text else ""


def _literal(values: list[Any]) -> str:
    if not all(value is None or isinstance(value, str | int | bool) for value in values):
        return "Any"
    some = [repr(value) for value in values if value is not None]
    return _union([*([f"Literal[{', '.join(some)}]"] if some else []), *(["None"] if len(some) < len(values) else [])])


def _union(texts: list[str]) -> str:
    parts = dict.fromkeys(text.removesuffix(" | None") for text in texts)
    nullable = "None" in parts or any(text.endswith(" | None") for text in texts)
    if "Any" in parts:
        return "Any"
    return " | ".join([*(part for part in parts if part != "None"), *(["None"] if nullable else [])])
