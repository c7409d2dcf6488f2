"""JSON schemas of Python types, with what JSON schema alone would lose about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, NotRequired, TypeVar

import typing_extensions
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from autogen_codeact.sandbox.tools.payloads import least_size
from autogen_codeact.sandbox.tools.tool import ToolArgumentError

PYTHON = "x-python"
"""Keyword of ours in a schema: what an object or a string is in Python."""

MAX_COMPLAINTS = 5
MOST_LISTED = 500
FIRST_ITEMS = 10
T = TypeVar("T")


class PythonSchema(GenerateJsonSchema):
    """JSON schema that remembers enums' members, types of keys, and which objects are typed dicts."""

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """As pydantic's, with the names of the members."""
        result = super().enum_schema(schema)
        members = [[member.name, value] for member, value in zip(schema["members"], result["enum"], strict=True)]
        base = next((base.__name__ for base in (str, int, float) if issubclass(schema["cls"], base)), None)
        return {**result, PYTHON: {"kind": "enum", "members": members, "base": base}}

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """A string, both ways."""
        return {"type": "string", "format": "decimal"}

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """As pydantic's, with the type of the keys."""
        result = super().dict_schema(schema)
        keys = self.generate_inner(schema["keys_schema"]) if "keys_schema" in schema else {}
        return {**result, PYTHON: {"kind": "dict", "keys": keys}}

    def frozenset_schema(self, schema: core_schema.FrozenSetSchema) -> JsonSchemaValue:
        """As pydantic's, told from a set."""
        return {**super().frozenset_schema(schema), PYTHON: {"kind": "frozenset"}}

    def tuple_schema(self, schema: core_schema.TupleSchema) -> JsonSchemaValue:
        """As pydantic's, told from a list."""
        return {**super().tuple_schema(schema), PYTHON: {"kind": "tuple"}}

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """As pydantic's, told from a model."""
        return {**super().typed_dict_schema(schema), PYTHON: {"kind": "typed_dict"}}


class Fields:
    """Named values with types of their own, checked and written as JSON.

    Args:
        types: The types by name.
        optional: Names that may be missing.

    Raises:
        Exception: pydantic can't describe one of the types; which exception is up to pydantic and the type.
    """

    def __init__(self, types: Mapping[str, Any], optional: frozenset[str] = frozenset()) -> None:
        # A typed dict, not a model: a model can't have every name as a field.
        items = {name: NotRequired[kind] if name in optional else kind for name, kind in types.items()}
        # Not typing's own: pydantic wants this one on Python 3.11.
        make: Any = typing_extensions.TypedDict
        shape: Any = make("Fields", items)
        shape.__pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)
        self._adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(shape)

    def schema(self, mode: JsonSchemaMode) -> dict[str, Any]:
        """Describe all of them as one object."""
        return self._adapter.json_schema(schema_generator=PythonSchema, mode=mode)

    def check(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Make Python values out of what JSON held.

        Raises:
            ToolArgumentError: They are invalid.
        """
        return dict(checked(lambda given: self._adapter.validate_json(json.dumps(given)), values))

    def dump(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Write values as JSON has them.

        Raises:
            Exception: One is not of its type.
        """
        return dict(self._adapter.dump_python(dict(values), mode="json", by_alias=True, warnings="error"))


def model_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Describe what a model takes, `$defs` included."""
    return model.model_json_schema(schema_generator=PythonSchema, mode="validation")


def checked(check: Callable[[dict[str, Any]], T], arguments: Mapping[str, Any]) -> T:
    """Check arguments.

    Args:
        check: Checks them; raises pydantic's `ValidationError`.
        arguments: JSON values by name.

    Returns:
        Its result.

    Raises:
        ToolArgumentError: They are invalid.
    """
    try:
        return check(dict(arguments))
    except ValidationError as error:
        if error.error_count() <= MOST_LISTED:
            raise ToolArgumentError(complaint(error)) from None
        count = error.error_count()
    except ValueError as error:
        raise ToolArgumentError(complaint(error)) from None
    # Listing all errors would take long, so only the first items are checked again.
    try:
        check(_first_of(dict(arguments), 0))
    except (ValidationError, ValueError) as error:
        raise ToolArgumentError(f"{complaint(error)}; in all {count:,} values don't fit") from None
    raise ToolArgumentError(f"{count:,} values do not fit the tool's annotations")


def _first_of(value: Any, depth: int) -> Any:
    # All arguments are needed at the top level.
    most = None if depth == 0 else FIRST_ITEMS
    if isinstance(value, dict):
        return {key: _first_of(item, depth + 1) for key, item in islice(value.items(), most)}
    return [_first_of(item, depth + 1) for item in value[:most]] if isinstance(value, list) else value


def complaint(error: Exception) -> str:
    """Put into words what is wrong with arguments.

    Args:
        error: What checking them raised.
    """
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_context=False)
    lines = [_sentence(item) for item in found[:MAX_COMPLAINTS]]
    more = [f"and {len(found) - MAX_COMPLAINTS} more"] if len(found) > MAX_COMPLAINTS else []
    return "; ".join(lines + more)


def _sentence(item: Any) -> str:
    place = _place(item["loc"])
    if item["type"] in ("missing", "missing_argument"):
        return f"{place} is missing"
    if item["type"] == "extra_forbidden":
        return f"{place} is not known"
    return f"{place}: {item['msg']}, not {_shown(item['input'])}"


def _place(location: tuple[int | str, ...]) -> str:
    first, *rest = location or ("the arguments",)
    return str(first) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)


def _shown(value: object) -> str:
    if isinstance(value, str):
        value = value[:100]
    text = repr(value) if least_size(value, 1000) <= 1000 else f"a long {type(value).__name__}"
    return text if len(text) <= 100 else text[:99] + "…"
