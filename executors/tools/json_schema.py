"""Checking a tool's arguments against a JSON schema: the keywords that tools use; others are left to the tool."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

MAX_DEPTH = 50
MAX_SHOWN_CHARS = 100

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
    ),
}
_LIMITS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (lambda value, limit: value >= limit, "must be at least {}"),
    "maximum": (lambda value, limit: value <= limit, "must be at most {}"),
    "exclusiveMinimum": (lambda value, limit: value > limit, "must be above {}"),
    "exclusiveMaximum": (lambda value, limit: value < limit, "must be below {}"),
}
_LENGTHS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minLength": (lambda value, limit: len(value) >= limit, "must have at least {} characters"),
    "maxLength": (lambda value, limit: len(value) <= limit, "must have at most {} characters"),
    "pattern": (lambda value, pattern: _matches(pattern, value), "must match {}"),
}
_COUNTS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minItems": (lambda value, limit: len(value) >= limit, "must have at least {} items"),
    "maxItems": (lambda value, limit: len(value) <= limit, "must have at most {} items"),
}


def find_complaints(  # noqa: PLR0911 - one for each kind of value
    schema: Any, value: Any, definitions: Mapping[str, Any], place: str = "", depth: int = 0
) -> list[str]:
    """Check a value.

    Args:
        schema: The schema, or a boolean.
        value: What JSON held.
        definitions: The `$defs` that the schema refers to; what is not there is not checked.
        place: Where the value stands.
        depth: How deep that is.

    Returns:
        What is wrong with it, in words; nothing where it fits.
    """
    if schema is False:
        return [f"{place or 'the arguments'} is not allowed"]
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return []
    if "$ref" in schema:
        referred = definitions.get(str(schema["$ref"]).rpartition("/")[2])
        return find_complaints(referred, value, definitions, place, depth + 1)
    complaints = _of_kind(schema, value, place) or _of_choice(schema, value, definitions, place, depth)
    if complaints:
        return complaints
    if isinstance(value, Mapping):
        return _of_object(schema, value, definitions, place, depth)
    if isinstance(value, list):
        return _bounded(_COUNTS, schema, value, place) + _of_items(schema, value, definitions, place, depth)
    if isinstance(value, str):
        return _bounded(_LENGTHS, schema, value, place)
    if _TYPES["number"](value):
        return _bounded(_LIMITS, schema, value, place)
    return []


def _of_kind(schema: Mapping[str, Any], value: Any, place: str) -> list[str]:
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    known = [_TYPES[kind] for kind in kinds if kind in _TYPES]
    absent = value is None and schema.get("nullable")
    if known and len(known) == len(kinds) and not any(fits(value) for fits in known) and not absent:
        return [f"{place or 'the arguments'} must be of type {' or '.join(kinds)}, not {_shown(value)}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{place} must be one of {', '.join(map(repr, schema['enum']))}, not {_shown(value)}"]
    if "const" in schema and value != schema["const"]:
        return [f"{place} must be {schema['const']!r}, not {_shown(value)}"]
    return []


def _of_choice(
    schema: Mapping[str, Any], value: Any, definitions: Mapping[str, Any], place: str, depth: int
) -> list[str]:
    for each in schema.get("allOf", ()):
        if complaints := find_complaints(each, value, definitions, place, depth + 1):
            return complaints
    choices = schema.get("anyOf") or schema.get("oneOf")
    if not choices:
        return []
    found = [find_complaints(each, value, definitions, place, depth + 1) for each in choices]
    if all(found):
        return [f"{place} fits none of its types: " + "; or ".join(each[0] for each in found)]
    return []


def _of_object(
    schema: Mapping[str, Any], value: Mapping[str, Any], definitions: Mapping[str, Any], place: str, depth: int
) -> list[str]:
    properties = schema.get("properties", {})
    complaints = [f"{_within(place, key)} is missing" for key in schema.get("required", ()) if key not in value]
    others = schema.get("additionalProperties", True)
    for key, item in value.items():
        if key in properties:
            complaints += find_complaints(properties[key], item, definitions, _within(place, key), depth + 1)
        elif others is False and not schema.get("patternProperties"):
            complaints.append(f"{_within(place, key)} is not known")
        else:
            complaints += find_complaints(others, item, definitions, _within(place, key), depth + 1)
    return complaints


def _of_items(
    schema: Mapping[str, Any], value: list[Any], definitions: Mapping[str, Any], place: str, depth: int
) -> list[str]:
    first = schema.get("prefixItems", [])
    rest = schema.get("items", True)
    complaints: list[str] = []
    for number, item in enumerate(value):
        each = first[number] if number < len(first) else rest
        complaints += find_complaints(each, item, definitions, f"{place}[{number}]", depth + 1)
        if complaints:
            break  # the next ten thousand are wrong in the same way
    return complaints


def _bounded(
    limits: Mapping[str, tuple[Callable[[Any, Any], bool], str]], schema: Mapping[str, Any], value: Any, place: str
) -> list[str]:
    for keyword, (fits, words) in limits.items():
        if keyword in schema and not fits(value, schema[keyword]):
            return [f"{place} {words.format(schema[keyword])}, not {_shown(value)}"]
    return []


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return True  # a dialect of its own; the tool will judge


def _within(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 1] + "…"
