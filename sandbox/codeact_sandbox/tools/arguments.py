"""Arguments and results of Python functions, validated and dumped by pydantic; its errors as sentences."""

from __future__ import annotations

import json
import re
import typing
import warnings
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.json_schema import PydanticJsonSchemaWarning
from pydantic_core import CoreSchema

from codeact_sandbox.tools.payloads import least_size
from codeact_sandbox.types.tool import ToolArgumentError

MAX_PROBLEMS = 5
MAX_LISTED = 500
T = TypeVar("T")
_PATH = re.compile(r'"format": "(file-|directory-)?path"')
_CONFIG = ConfigDict(
    extra="forbid",
    arbitrary_types_allowed=True,
    allow_inf_nan=False,
    val_json_bytes="base64",
    ser_json_bytes="base64",
)


class Arguments:
    """The parameters of a function."""

    def __init__(self, name: str, types: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        # Aliases, because not every name can be that of a model's field.
        fields: dict[str, Any] = {
            f"p{number}": (_described(kind), Field(defaults.get(each, ...), alias=each))
            for number, (each, kind) in enumerate(types.items())
        }
        self._names = dict(zip(fields, types, strict=True))
        try:
            self._model = create_model("Arguments", __config__=_CONFIG, **fields)
            self.schema = _schema_of(self._model)
        except Exception:
            for each, kind in types.items():
                _check_type(name, each, kind)
            raise
        refuse_paths(name, self.schema)

    def validate(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Convert JSON values to Python values by name, without the defaults."""
        made = validated(lambda given: self._model.model_validate_json(json.dumps(given)), values)
        return {name: getattr(made, field) for field, name in self._names.items() if field in made.model_fields_set}


class Result:
    """The result of a function."""

    def __init__(self, kind: Any) -> None:
        try:
            self._adapter = TypeAdapter[Any](kind, config=_CONFIG)
        except PydanticUserError:  # a type with a configuration of its own
            self._adapter = TypeAdapter[Any](kind)
        self.schema = self._adapter.json_schema(mode="serialization")

    def dump(self, value: Any) -> Any:
        """Convert a result to JSON values."""
        return self._adapter.dump_python(value, mode="json", by_alias=True, warnings="error")


def result_of(kind: Any) -> Result | None:
    """Return what dumps results of a type; None for one that pydantic does not know."""
    try:
        return Result(kind)
    except Exception:  # noqa: BLE001 - a type of the author's own: each value is converted by its own type
        return None


def refuse_paths(name: str, schema: Mapping[str, Any]) -> None:
    """Refuse paths in the types of arguments: each would be a file of the host that the code names."""
    if _PATH.search(json.dumps(schema, default=str)):
        raise ValueError(
            f"The tool `{name}` takes a path within another type, or through a class of tools. Give a function with a parameter "
            "of the type Path, which gets a copy of a file from the sandbox."
        )


def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)  # a default that JSON can't represent
        return model.model_json_schema()


def _check_type(name: str, parameter: str, kind: Any) -> None:
    try:
        _schema_of(create_model("Argument", __config__=_CONFIG, value=(_described(kind), ...)))
    except Exception as error:
        why = str(error).partition("\n")[0]
        raise ValueError(
            f"The parameter `{parameter}` of the tool `{name}` is of a type that can't be checked ({kind}): {why} Take a plain "
            "value, a dataclass or a pydantic model."
        ) from error


class _StopAtFirst:
    """Makes pydantic stop at the first invalid item of a list, because reporting all takes long.

    Its own `FailFast` can't be applied to the members of a union.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: CoreSchema = _with_fail_fast(handler(source))
        return schema


def _with_fail_fast(schema: Any) -> Any:
    if isinstance(schema, list | tuple):
        return type(schema)(map(_with_fail_fast, schema))
    if not isinstance(schema, dict):
        return schema
    more = {"fail_fast": True} if schema.get("type") in ("list", "set", "frozenset") else {}
    return {key: item if key in _OPAQUE else _with_fail_fast(item) for key, item in schema.items()} | more


_OPAQUE = frozenset({"default", "metadata", "expected", "serialization"})


def _described(kind: Any) -> Any:
    """Return the type with its strings in `Annotated` as description."""
    words: list[Any] = [_StopAtFirst()]
    if typing.get_origin(kind) is Annotated:
        kind, *more = typing.get_args(kind)
        words = [Field(description=each) if isinstance(each, str) else each for each in more] + words
    return Annotated[(kind, *words)]


def validated(validate: Callable[[dict[str, Any]], T], arguments: Mapping[str, Any]) -> T:
    try:
        return validate(dict(arguments))
    except ValidationError as error:
        # Listing thousands would take long.
        if (count := error.error_count()) > MAX_LISTED:
            raise ToolArgumentError(f"{count:,} values do not fit the tool's annotations") from None
        raise ToolArgumentError(problems_of(error)) from None
    except ValueError as error:
        raise ToolArgumentError(problems_of(error)) from None


def problems_of(error: Exception) -> str:
    """Return what is wrong with arguments, as sentences."""
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_context=False)
    lines = [_sentence(item) for item in found[:MAX_PROBLEMS]]
    more = [f"and {len(found) - MAX_PROBLEMS} more"] if len(found) > MAX_PROBLEMS else []
    return "; ".join(lines + more)


def _sentence(item: Any) -> str:
    path = _path(item["loc"])
    if item["type"] in ("missing", "missing_argument"):
        return f"{path} is missing"
    if item["type"] == "extra_forbidden":
        return f"{path} is not known"
    return f"{path}: {item['msg']}, not {_shown(item['input'])}"


def _path(location: tuple[int | str, ...]) -> str:
    first, *rest = location or ("the arguments",)
    return str(first) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)


def _shown(value: object) -> str:
    if isinstance(value, str):
        value = value[:100]
    text = repr(value) if least_size(value, 1000) <= 1000 else f"a long {type(value).__name__}"
    return text if len(text) <= 100 else text[:99] + "…"
