"""A Python function of the host as a tool."""

from __future__ import annotations

import ast
import asyncio
import enum
import functools
import inspect
import json
import operator
import types
import typing
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from autogen_core import CancellationToken, Image
from PIL.Image import Image as Picture
from pydantic import Base64Bytes, Field, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema

from autogen_codeact.sandbox.tools.answers import to_answer
from autogen_codeact.sandbox.tools.classes import MAX_DEFAULT_CHARS
from autogen_codeact.sandbox.tools.payloads import aside, is_small
from autogen_codeact.sandbox.tools.schema import Fields
from autogen_codeact.sandbox.tools.shapes import Names, Shapes, usable
from autogen_codeact.sandbox.tools.stub import Parameter, Stub, StubbedTool, write_stub
from autogen_codeact.sandbox.tools.threads import Threads
from autogen_codeact.sandbox.tools.tool import ToolAnswer

_EMPTY = inspect.Parameter.empty
_RETURN = "return"


class FunctionHostTool(StubbedTool):
    """A typed function, sync or async, as a host tool.

    Args:
        function: The function; a `functools.partial` or a bound method will do, a lambda won't.
        names: The names that all tools share.
        threads: Where a sync function runs.

    Raises:
        ValueError: It can't be described; the message says why.
    """

    def __init__(self, function: Callable[..., Any], names: Names, threads: Threads) -> None:
        self._function = function
        self._threads = threads
        self._name = _name_of(function)
        self._is_async = _is_async(function)
        names.tool(self._name, f"the function {_place_of(function)}")
        hints = _hints(function, self._name)
        self._parameters = _parameters(function, self._name, hints)
        self._token = next((p.name for p in self._parameters if hints.get(p.name) is CancellationToken), None)
        shown = [p for p in self._parameters if p.name != self._token]
        self._arguments = _argument_fields(self._name, shown, hints)
        self._result = _result_field(hints)
        self.stub = self._write(names, shown, hints)

    @property
    def function(self) -> Callable[..., Any]:
        """The function."""
        return self._function

    async def run(self, arguments: Mapping[str, Any], cancellation_token: CancellationToken) -> ToolAnswer:
        """Check the arguments and call the function.

        Raises:
            ToolArgumentError: They do not fit.
            Exception: What the function raised.
        """
        call = await aside(not is_small(arguments), lambda: self._bound(arguments, cancellation_token))
        if self._is_async:
            value = await survived(self._function(*call.args, **call.kwargs), cancellation_token)
        else:
            value = await self._threads.run(lambda: self._function(*call.args, **call.kwargs))
            if inspect.isawaitable(value):  # a sync function around an async one
                value = await survived(value, cancellation_token)
        return await aside(not is_small(value), lambda: self._answer(value))

    def _bound(self, arguments: Mapping[str, Any], token: CancellationToken) -> inspect.BoundArguments:
        values = self._arguments.check(arguments)
        if self._token is not None:
            values[self._token] = token
        given = OrderedDict((each.name, values[each.name]) for each in self._parameters if each.name in values)
        call = inspect.BoundArguments(inspect.Signature(self._parameters), given)
        if any(p.kind == p.POSITIONAL_ONLY and p.name not in values for p in self._parameters):
            call.apply_defaults()
        return call

    def _answer(self, value: Any) -> ToolAnswer:
        fields = self._result
        dump = None if fields is None else (lambda it: fields.dump({_RETURN: it})[_RETURN])
        return to_answer(value, self._name, dump)

    def _write(self, names: Names, shown: list[inspect.Parameter], hints: Mapping[str, Any]) -> Stub:
        fields = [each for each in (self._arguments, self._result) if each is not None]
        both = [each.schema(mode) for each in fields for mode in ("validation", "serialization")]
        shapes = Shapes(self._name, names, merged([each.get("$defs", {}) for each in both]), python=True)
        properties = both[0]["properties"]
        parameters = [
            _described(p, hints, shapes.of(properties[p.name], p.name) if p.name in hints else None, properties[p.name])
            for p in shown
        ]
        result = None
        if _RETURN in hints:
            result = shapes.of(both[-1]["properties"].get(_RETURN) if self._result else None, f"{self._name}_result")
        doc = inspect.getdoc(_plain(self._function)) or ""
        return write_stub(self._name, parameters, result, doc, shapes.classes.values())


async def survived(call: Any, token: CancellationToken) -> Any:
    """Await a tool; what would end the event loop, or look like a cancel when there was none, becomes a RuntimeError.

    Args:
        call: What to await.
        token: Tells whether there was a cancel.
    """
    me = asyncio.current_task()
    try:
        return await call
    except asyncio.CancelledError:
        if token.is_cancelled() or (me is not None and me.cancelling()):
            raise
        raise RuntimeError("the tool was cancelled on the host") from None
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(f"{type(error).__name__}: {error}".removesuffix(": ")) from error


def merged(definitions: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Join what a class takes with what it gives: fields that it only gives are read-only.

    Args:
        definitions: `$defs`, those for taking ahead of those for giving.
    """
    joined: dict[str, Any] = {}
    for each in definitions:
        for name, schema in each.items():
            known = joined.setdefault(name, schema)
            more = {k: v for k, v in schema.get("properties", {}).items() if k not in known.get("properties", {k: v})}
            if more:
                added = {key: {**value, "readOnly": True} for key, value in more.items()}
                joined[name] = {**known, "properties": {**known["properties"], **added}}
    return joined


def _name_of(function: Callable[..., Any]) -> str:
    if inspect.isclass(function):
        raise ValueError(f"The class `{function.__name__}` can't be a tool; give a function or a method of an object.")
    name = getattr(_plain(function), "__name__", None)
    if name is None:
        raise ValueError(f"{function!r} has no name to call it by; give a function made with `def`.")
    if name == "<lambda>":
        raise ValueError("A `<lambda>` has no name to call it by; give a function made with `def`.")
    return checked_name(name)


def checked_name(name: str) -> str:
    """Return the name that a tool was given by its author, if it can be used.

    Raises:
        ValueError: It can't.
    """
    if name.startswith("_"):
        raise ValueError(
            f"A tool can't be called `{name}`: names that begin with an underscore are private; rename it."
        )
    if not usable(name):
        raise ValueError(
            f"A tool can't be called `{name}`: in the sandbox that is a keyword or builtin of Python, or no identifier; "
            "rename it."
        )
    return name


def _plain(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _place_of(function: Callable[..., Any]) -> str:
    plain = _plain(function)
    return f"{getattr(plain, '__module__', None) or '?'}.{getattr(plain, '__qualname__', plain)}"


def _is_async(function: Callable[..., Any]) -> bool:
    plain = inspect.unwrap(_plain(function))
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(_plain(function))


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    plain = _plain(function)
    if not hasattr(inspect.unwrap(plain), "__annotations__"):
        return {}  # a builtin
    try:
        return typing.get_type_hints(plain, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise ValueError(
            f"The annotations of `{name}` can't be read: {error}. What they name must be there when the program runs, in "
            "the function's module."
        ) from None


def _parameters(function: Callable[..., Any], name: str, hints: Mapping[str, Any]) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        raise ValueError(
            f"`{name}` has no signature that Python can tell; wrap it in a function made with `def`."
        ) from None
    for each in parameters:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            stars = "*" if each.kind == each.VAR_POSITIONAL else "**"
            raise ValueError(
                f"The tool `{name}` takes `{stars}{each.name}`, which tells nobody what to give; name its parameters, or "
                "take a list or a dict."
            )
    # What a partial binds by keyword is its owner's, and may be a secret.
    bound = function.keywords if isinstance(function, functools.partial) else {}
    return [each for each in parameters if each.name not in bound]


def _argument_fields(name: str, parameters: list[inspect.Parameter], hints: Mapping[str, Any]) -> Fields:
    types = {each.name: _transported(hints.get(each.name, Any)) for each in parameters}
    for each, kind in types.items():
        try:
            TypeAdapter(kind).json_schema()
        except Exception as error:
            why = str(error).partition("\n")[0]
            raise ValueError(
                f"The parameter `{each}` of the tool `{name}` is of a type that can't be checked ({kind}): {why} Take a plain "
                "value, a dataclass or a pydantic model."
            ) from error
    return Fields(types, frozenset(each.name for each in parameters if each.default is not _EMPTY))


def _result_field(hints: Mapping[str, Any]) -> Fields | None:
    if _RETURN not in hints:
        return None
    try:
        fields = Fields({_RETURN: _transported(hints[_RETURN])})
        fields.schema("serialization")
    except Exception:  # noqa: BLE001 - a type of the author's own: the value is written as what it is
        return None
    return fields


class _StopAtFirst:
    """Makes pydantic stop at the first invalid item, because reporting all takes long. Its `FailFast` can't be in a union."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(source)
        return {**schema, "fail_fast": True} if schema["type"] in ("list", "set", "frozenset") else schema


_STOP_AT_FIRST = _StopAtFirst()


def _transported(kind: Any) -> Any:  # noqa: PLR0911 - one for each kind of type
    """The type as it travels: bytes as base64, a picture as words about it, a bare string in Annotated as description."""
    if kind is bytes:
        return Base64Bytes
    if kind in (Image, Picture):
        return str
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        words = [Field(description=each) if isinstance(each, str) else each for each in arguments[1:]]
        return Annotated[_transported(arguments[0]), *words]
    if origin in (types.UnionType, typing.Union):
        # Beside text, base64 could not be told from it.
        return functools.reduce(
            operator.or_, (each if each is bytes and str in arguments else _transported(each) for each in arguments)
        )
    if origin in (list, set, frozenset):
        return Annotated[origin[tuple(map(_transported, arguments))], _STOP_AT_FIRST]
    if origin in (tuple, dict):
        return origin[tuple(map(_transported, arguments))]
    return kind


def _described(
    parameter: inspect.Parameter, hints: Mapping[str, Any], shape: Any, schema: Mapping[str, Any]
) -> Parameter:
    shown, values = (None, ()) if parameter.default is _EMPTY else _default(parameter.default)
    return Parameter(
        name=parameter.name,
        key=parameter.name,
        shape=shape,
        default=shown,
        values=values,
        kind=parameter.kind,
        description=str(schema.get("description", "")) if parameter.name in hints and "$ref" not in schema else "",
    )


def _default(default: Any) -> tuple[str, tuple[Any, ...]]:
    """The text of a default, and its value if JSON can represent it exactly."""
    if isinstance(default, enum.Enum):
        return f"{type(default).__name__}.{default.name}", ()
    text = repr(default)
    if not _is_literal(text, default):
        return "...", ()
    try:
        same = repr(json.loads(json.dumps(default))) == text
    except (TypeError, ValueError):
        same = False
    return text, (default,) if same else ()


def _is_literal(text: str, value: Any) -> bool:
    try:
        return len(text) <= MAX_DEFAULT_CHARS and bool(ast.literal_eval(text) == value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
