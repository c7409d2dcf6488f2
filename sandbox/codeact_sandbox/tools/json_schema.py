"""Arguments checked against JSON schemas of third parties, with the library `jsonschema`, in a thread, within a time.

Nothing is fetched. Regular expressions, and keywords that depend on them, are not evaluated, because a check could take forever:
the tool has to check them.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry

from codeact_sandbox.tools.payloads import least_size, offload

logger = logging.getLogger("codeact_sandbox")

MAX_SCHEMA_BYTES = 1024 * 1024
MAX_DEPTH = 60
MAX_ARGUMENTS = 1024 * 1024  # the size of what is checked
MAX_SECONDS = 0.5  # of the processor
MAX_PROBLEMS = 5
MAX_MESSAGE = 300
TOO_LONG = "it would take too long to check the arguments against the tool's JSON schema: pass smaller arguments"

_UNCHECKED = frozenset(
    {
        "pattern",
        "patternProperties",
        "format",
        "uniqueItems",
        "unevaluatedProperties",
        "unevaluatedItems",
        "$dynamicRef",
        "$recursiveRef",
    }
)
_DATA = frozenset({"enum", "const", "default", "example", "examples"})
_BY_NAME = frozenset({"properties", "$defs", "definitions", "dependentSchemas", "dependencies", "schemas"})


def plain_schema(schema: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Copy a schema as plain JSON values."""
    try:
        text = json.dumps(schema)
        if len(text) > MAX_SCHEMA_BYTES:
            raise ValueError(f"it has {len(text):,} bytes, and {MAX_SCHEMA_BYTES:,} are allowed")  # noqa: TRY301
        plain: Any = json.loads(text)
        level: list[Any] = [plain]
        for _ in range(MAX_DEPTH):
            level = [item for each in level for item in _items(each)]
        if not isinstance(plain, dict) or not isinstance(plain.get("properties", {}), dict):
            raise ValueError("its properties are not an object")  # noqa: TRY301, TRY004
        if level:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH}")  # noqa: TRY301
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"The JSON schema of {origin} can't be used: {error}. Make it smaller, or correct it."
        ) from None
    return plain


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


class ArgumentSchema:
    """Checks arguments against a schema, which is itself looked at when it is first used."""

    def __init__(self, schema: Mapping[str, Any], origin: str) -> None:
        self._schema = schema
        self._origin = origin

    async def problems(self, arguments: Mapping[str, Any]) -> list[str]:
        if least_size(arguments, MAX_ARGUMENTS) > MAX_ARGUMENTS:
            return [TOO_LONG]
        return await offload(True, lambda: self._problems(arguments))

    @functools.cached_property
    def _validator(self) -> Any:
        schema = {**_adapted(self._schema), "type": "object"}
        # Not checked itself, which takes seconds if it is large: what is wrong with it is seen when it is used.
        return _bounded(validator_for(schema, default=Draft202012Validator))(schema, registry=Registry())

    def _problems(self, arguments: Mapping[str, Any]) -> list[str]:
        found: dict[str, None] = {}
        _Deadline.at = time.thread_time() + MAX_SECONDS
        try:
            for error in self._validator.iter_errors(arguments):
                found[_sentence(error)] = None
                if len(found) >= MAX_PROBLEMS:
                    break
        except (RecursionError, TimeoutError):
            return [TOO_LONG]
        except Exception as error:  # noqa: BLE001 - whatever a malformed schema or a missing definition makes of the library
            logger.warning(
                "the JSON schema of %s is not valid, so arguments are not checked: %s",
                self._origin,
                repr(error)[:MAX_MESSAGE],
            )
        return list(found)


class _Deadline:
    """When the check ends that runs in the one thread of such checks."""

    at = 0.0


def _adapted(schema: Any) -> Any:
    """Remove what is not checked, and convert what OpenAPI 3.0 has of its own."""
    if isinstance(schema, list):
        return list(map(_adapted, schema))
    if not isinstance(schema, dict):
        return schema
    adapted: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _BY_NAME and isinstance(value, dict):
            adapted[key] = {name: _adapted(each) for name, each in value.items()}
        elif key not in _UNCHECKED:
            adapted[key] = value if key in _DATA else _adapted(value)
    if "patternProperties" in schema:
        adapted.pop("additionalProperties", None)  # which properties are additional depends on the patterns
    if not str(schema.get("$ref", "#")).startswith("#"):
        del adapted["$ref"]
    for exclusive in ("exclusiveMinimum", "exclusiveMaximum"):
        if isinstance(adapted.get(exclusive), bool) and "draft-04" not in str(schema.get("$schema")):
            del adapted[exclusive]
    return {"anyOf": [adapted, {"type": "null"}]} if schema.get("nullable") is True else adapted


@functools.cache
def _bounded(kind: Any) -> Any:
    """The same validator with a deadline; NaN and infinity are not numbers, because JSON does not have them."""
    known = kind.TYPE_CHECKER
    finite = known.redefine(
        "number",
        lambda checker, value: known.is_type(value, "number") and (isinstance(value, int) or math.isfinite(value)),
    )
    make: Any = extend
    return make(kind, {name: _timed(check) for name, check in kind.VALIDATORS.items()}, type_checker=finite)


def _timed(check: Callable[..., Any]) -> Callable[..., Iterator[ValidationError]]:
    def timed(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if time.thread_time() > _Deadline.at:
            raise TimeoutError
        yield from check(validator, value, instance, schema) or ()

    return timed


def _sentence(error: Any) -> str:
    said = error.message if len(error.message) <= MAX_MESSAGE else f"{error.message[:100]} … {error.message[-200:]}"
    if error.validator in ("anyOf", "oneOf") and error.context:
        first = {each.schema_path[0]: _sentence(each) for each in reversed(error.context)}
        said = f"fits none of its types: {'; or '.join(first[key] for key in sorted(first))}"
    path = error.json_path.removeprefix("$").removeprefix(".")[:MAX_MESSAGE]
    return f"{path}: {said}" if path else str(said)
