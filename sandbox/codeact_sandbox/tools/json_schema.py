"""JSON schemas of third-party tools: normalized and validated once; arguments are checked within limits.

The `jsonschema` library does the checks. Nothing is fetched. Regular expressions, and keywords that depend on them, are not
evaluated, because a check could take forever: the tool has to check them.
"""

from __future__ import annotations

import contextvars
import functools
import json
import logging
import math
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jsonschema import Draft3Validator, Draft4Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from codeact_sandbox.tools.payloads import offload

logger = logging.getLogger("codeact_sandbox")

MAX_SCHEMA_BYTES = 1024 * 1024
MAX_DEPTH = 60
MAX_SIMPLE_CHARS = 8 * 1024
MAX_SIMPLE_DEPTH = 16
# About a second in a thread, for arguments and a schema designed to take long.
MAX_STEPS = 400_000
# Limit for checks on the event loop.
MAX_STEPS_ON_LOOP = 2000
CHARS_A_STEP = 16
MAX_PROBLEMS = 6
MAX_MESSAGE = 300
TOO_LONG = "it would take too long to check the arguments against the tool's JSON schema: pass smaller arguments"

_UNCHECKED = frozenset(
    {
        "pattern",
        "patternProperties",
        "format",
        "unevaluatedProperties",
        "unevaluatedItems",
        "$dynamicRef",
        "$recursiveRef",
    }
)
_DATA = frozenset({"enum", "const", "default", "example", "examples"})
_BY_NAME = frozenset({"properties", "$defs", "definitions", "dependentSchemas", "dependencies", "schemas"})
_SCALARS: frozenset[type] = frozenset({str, int, float, bool, type(None)})
_KINDS = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_DRAFTS = frozenset({"http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"})
_EXCLUSIVE = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_steps: contextvars.ContextVar[list[int]] = contextvars.ContextVar("steps")


def plain_schema(schema: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Copy a schema as plain JSON values."""
    try:
        plain = json.loads(text) if (text := simple_text(schema)) else _checked(json.dumps(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"The JSON schema of {origin} can't be used: {error}. Make it smaller, or correct it."
        ) from None
    return dict(plain)


def simple_text(schema: Any) -> str:
    """Return a schema as JSON if it is certainly valid and small, as nearly all are; else an empty text.

    What such a schema needs can be made when it is first used: nothing about it can be wrong. It has only the commonest
    keywords, each with a value that every draft allows.
    """
    if not _is_simple(schema, 0):
        return ""
    text = json.dumps(schema)
    return text if len(text) <= MAX_SIMPLE_CHARS else ""


def _is_simple(schema: Any, depth: int) -> bool:
    if type(schema) is not dict or depth > MAX_SIMPLE_DEPTH:
        return False
    for key, value in schema.items():
        if key in _TEXTS:  # most of all
            if type(value) is not str:
                return False
            continue
        check = _SIMPLE.get(key)
        if check is None or not check(value, depth + 1):
            return False
    return True


def _are_simple(schemas: Iterable[Any], depth: int) -> bool:
    for each in schemas:  # noqa: SIM110 - a generator would take twice as long
        if not _is_simple(each, depth):
            return False
    return True


def _is_list_of(kinds: frozenset[type], value: Any) -> bool:
    return type(value) is list and all(type(each) in kinds for each in value)


_TEXTS = frozenset({"description", "title", "format"})
_SIMPLE: dict[str, Callable[[Any, int], bool]] = {
    "type": lambda value, _: type(value) is str and value in _KINDS,
    "default": lambda value, _: type(value) in _SCALARS or value in ([], {}),
    "enum": lambda value, _: _is_list_of(_SCALARS, value),
    "required": lambda value, _: _is_list_of(frozenset({str}), value) and len(set(value)) == len(value),
    "properties": lambda value, depth: type(value) is dict and _are_simple(value.values(), depth),
    "items": _is_simple,
    "anyOf": lambda value, depth: type(value) is list and bool(value) and _are_simple(value, depth),
    "additionalProperties": lambda value, depth: type(value) is bool or _is_simple(value, depth),
    "minimum": lambda value, _: type(value) in (int, float),
    "maximum": lambda value, _: type(value) in (int, float),
    "$schema": lambda value, depth: depth == 1 and type(value) is str and value in _DRAFTS,
}


class ArgumentSchema:
    """Checks arguments against a schema, which is looked at when it is first used if it is a simple one."""

    def __init__(self, schema: Mapping[str, Any], origin: str, text: str | None = None) -> None:
        self._text = simple_text(schema) if text is None else text
        if not self._text:
            self._validator = _validator_of(schema, origin)

    @functools.cached_property
    def _validator(self) -> Any:
        schema = _adapted(json.loads(self._text), current=True)
        return _bounded(validator_for(schema, default=Draft202012Validator))({**schema, "type": "object"})

    async def problems(self, arguments: Mapping[str, Any]) -> list[str]:
        """Check arguments, in a thread if that takes long."""
        try:
            return self._problems(arguments, MAX_STEPS_ON_LOOP)
        except _TooManySteps:
            return await offload(True, lambda: self._all_problems(arguments))

    def _all_problems(self, arguments: Mapping[str, Any]) -> list[str]:
        try:
            return self._problems(arguments, MAX_STEPS)
        except _TooManySteps:
            return [TOO_LONG]

    def _problems(self, arguments: Mapping[str, Any], steps: int) -> list[str]:
        _steps.set([steps])
        found: dict[str, None] = {}
        try:
            for error in self._validator.iter_errors(arguments):
                found[_sentence(error)] = None
                if len(found) >= MAX_PROBLEMS:
                    break
        except (RecursionError, _TooManySteps):
            raise _TooManySteps from None
        except Exception as error:  # noqa: BLE001 - definitions are not checked before
            return [f"the arguments can't be checked against the tool's JSON schema: {reprlib.repr(str(error))}"]
        return list(found)


def _validator_of(schema: Mapping[str, Any], origin: str) -> Any:
    try:
        kind: Any = validator_for(schema, default=Draft202012Validator)
        current = kind not in (Draft3Validator, Draft4Validator)
        schema = {**_adapted(schema, current=current), "type": "object"}
        kind.check_schema(schema, format_checker=None)
        _drop_unknown_references(schema, origin)
    except Exception as error:  # noqa: BLE001 - whatever a malformed schema makes of the libraries
        raise ValueError(
            f"The JSON schema of {origin} is not valid: {_describe_schema_error(error)}. Correct it there."
        ) from None
    return _bounded(kind)(schema, registry=Registry())


class _TooManySteps(Exception):
    """Checking takes too many steps."""


def _checked(text: str) -> Any:
    if len(text) > MAX_SCHEMA_BYTES:
        raise ValueError(f"it has {len(text):,} bytes, and {MAX_SCHEMA_BYTES:,} are allowed")
    schema = json.loads(text)
    level: list[Any] = [schema]
    for _ in range(MAX_DEPTH):
        level = [item for each in level for item in _items(each)]
        if not level:
            return schema
    raise ValueError(f"it is nested deeper than {MAX_DEPTH}")


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _adapted(schema: Any, *, current: bool) -> Any:
    """Remove keywords that are not checked, and convert those of OpenAPI 3.0 and draft 4 to current JSON schema."""
    if isinstance(schema, list):
        return [_adapted(each, current=current) for each in schema]
    if not isinstance(schema, dict):
        return schema
    adapted: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _BY_NAME and isinstance(value, dict):
            adapted[key] = {name: _adapted(each, current=current) for name, each in value.items()}
        elif key not in _UNCHECKED:
            adapted[key] = value if key in _DATA else _adapted(value, current=current)
    if "patternProperties" in schema and not isinstance(adapted.get("additionalProperties"), dict):
        adapted.pop("additionalProperties", None)  # which properties are additional depends on the patterns
    elif "patternProperties" in schema:
        adapted["additionalProperties"] = True
    for exclusive, bound in _EXCLUSIVE.items() if current else ():
        if isinstance(adapted.get(exclusive), bool) and adapted.pop(exclusive) and bound in adapted:
            adapted[exclusive] = adapted.pop(bound)
    return _with_null(adapted) if schema.get("nullable") is True else adapted


def _with_null(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema.get("enum"), list):
        schema["enum"] = [*schema["enum"], None]
    if isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    if schema.keys() & {"$ref", "allOf", "anyOf", "oneOf", "const"}:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema


def _drop_unknown_references(schema: dict[str, Any], origin: str) -> None:
    """Skip the check of references to definitions outside the schema; nothing is fetched."""
    # Crawled once here; otherwise each reference to an anchor would do it.
    resolver = Registry().with_resource("", DRAFT202012.create_resource(schema)).crawl().resolver("")
    unknown: set[str] = set()
    todo: list[Any] = [schema]
    while todo:
        each = todo.pop()
        todo.extend(_items(each))
        reference = each.get("$ref") if isinstance(each, dict) else None
        if not isinstance(reference, str):
            continue
        try:
            resolver.lookup(reference)
        except Exception:  # noqa: BLE001 - whatever a malformed one makes of the library
            unknown.add(reprlib.repr(reference))
            del each["$ref"]
    if unknown:
        logger.warning(
            "the JSON schema of %s refers to definitions outside it (%s): these arguments are not checked",
            origin,
            ", ".join(sorted(unknown)[:MAX_PROBLEMS]),
        )


@functools.cache
def _bounded(kind: Any) -> Any:
    """The same validator, counting its steps; NaN and infinity are not numbers, because JSON does not have them."""
    known = kind.TYPE_CHECKER
    finite = known.redefine(
        "number",
        lambda checker, value: known.is_type(value, "number") and (isinstance(value, int) or math.isfinite(value)),
    )
    keywords = {**kind.VALIDATORS, "uniqueItems": _unique_items}
    make: Any = extend
    return make(
        kind,
        {name: _counted(check, 20 if name == "$ref" else 1) for name, check in keywords.items()},
        type_checker=finite,
    )


def _counted(check: Callable[..., Any], cost: int) -> Callable[..., Iterator[ValidationError]]:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        of_value = len(value) if isinstance(value, list | dict) else 0
        _spend(cost + of_value + (len(instance) // 10 if isinstance(instance, list | dict) else 0))
        for error in check(validator, value, instance, schema) or ():
            _spend(len(error.message) // CHARS_A_STEP)
            yield error

    return counted


def _spend(steps: int) -> None:
    left = _steps.get()
    left[0] -= steps
    if left[0] < 0:
        raise _TooManySteps


def _unique_items(validator: Any, unique: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # The library compares all pairs if the items can't be sorted.
    if unique and isinstance(instance, list):
        _spend(len(instance))
        if len({json.dumps(item, sort_keys=True) for item in instance}) < len(instance):
            yield ValidationError("must hold each item once")


def _sentence(error: Any) -> str:
    said = error.message if len(error.message) <= MAX_MESSAGE else f"{error.message[:100]} … {error.message[-200:]}"
    if error.validator in ("anyOf", "oneOf") and error.context:
        first = {each.schema_path[0]: _sentence(each) for each in reversed(error.context)}
        said = f"fits none of its types: {'; or '.join(first[key] for key in sorted(first))}"
    return f"{path}: {said}" if (path := _path(error)) else str(said)


def _describe_schema_error(error: Exception) -> str:
    if not isinstance(error, SchemaError):
        return "it refers to itself" if isinstance(error, RecursionError) else f"it is malformed: {str(error)[:200]}"
    return f"{_path(error) or 'the schema'}: {error.message[:200]}"


def _path(error: Any) -> str:
    path = ""
    for part in error.absolute_path:
        path = f"{path}[{part}]" if isinstance(part, int) else _within(path, part)
    return path


def _within(path: str, key: Any) -> str:
    shown = str(key)[:100]
    return f"{path}.{shown}" if path else shown
