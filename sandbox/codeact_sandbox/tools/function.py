"""`HostTool`: a Python function of the host as a tool."""

from __future__ import annotations

import asyncio
import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from codeact_sandbox.host.threads import Threads
from codeact_sandbox.tools.answers import is_image_class, to_answer
from codeact_sandbox.tools.arguments import Arguments, result_of
from codeact_sandbox.tools.call_files import CallFiles
from codeact_sandbox.tools.names import checked_name
from codeact_sandbox.tools.payloads import is_small, offload
from codeact_sandbox.tools.rich_values import RichType, rich_type
from codeact_sandbox.tools.stub import Parameter, Stub, StubbedTool, write_stub
from codeact_sandbox.tools.type_text import TypeTexts, merged_definitions, note_of, shown_default
from codeact_sandbox.types.tool import ToolAnswer, ToolArgumentError, ToolImage

T = TypeVar("T")
_EMPTY = inspect.Parameter.empty
_RETURN = "return"


class HostTool(StubbedTool):
    """A typed function as a host tool. Give one where the function needs an option; other functions are passed as they are.

    A parameter whose class has `cancel()` and `link_future()`, such as AutoGen's `CancellationToken`, is not shown: each call
    gets a new object, which is cancelled with the call.

    Args:
        function: The function, sync or async; a `functools.partial` or a bound method will do, a lambda won't.
        idempotent: Whether calling it again does no harm, as with a search. A run log then does not wait for the disk before and
            after a call. Default: no.
        branch_safe: Whether a block of a branch may call it, although its effects can't be undone. Default: no.

    Raises:
        ValueError: The function can't be a tool; the message says why.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        idempotent: bool = False,
        branch_safe: bool = False,
    ) -> None:
        self.function = function
        self.idempotent = idempotent
        self.branch_safe = branch_safe
        self._threads = Threads()
        name = _name_of(function)
        self._is_async = _is_async(function)
        hints = _hints(function, name)
        parameters = _parameters(function, name)
        self._token = next(((p.name, hints[p.name]) for p in parameters if _is_token(hints.get(p.name))), None)
        shown = [p for p in parameters if self._token is None or p.name != self._token[0]]
        self._positional = [p for p in parameters if p.kind == p.POSITIONAL_ONLY]
        self._rich = {p.name: rich for p in shown if (rich := rich_type(hints.get(p.name))) is not None}
        self._rich_required = [p.name for p in shown if p.name in self._rich and p.default is _EMPTY]
        plain = [p for p in shown if p.name not in self._rich]
        self._arguments = Arguments(
            name,
            {each.name: hints.get(each.name, Any) for each in plain},
            {each.name: each.default for each in plain if each.default is not _EMPTY},
        )
        returned = hints.get(_RETURN)
        self._rich_result = rich_type(returned)
        if is_image_class(returned):
            returned = str  # its description
        self._result = result_of(returned) if _RETURN in hints and self._rich_result is None else None
        self.exchanges_files = bool(self._rich) or self._rich_result is not None
        """Whether `run` takes the files of the call."""
        super().__init__(self._write(name, shown, hints), f"the function {_location_of(function)}")

    async def fetch(self, arguments: Mapping[str, Any], files: CallFiles) -> dict[str, Any]:
        """Copy what the arguments name to the host, where code can't change it, and say what it contains, by argument."""
        return {
            name: await self._rich[name].fetch(name, arguments[name], files) for name in self._rich.keys() & arguments
        }

    async def run(self, arguments: Mapping[str, Any], files: CallFiles | None = None) -> ToolAnswer:
        """Validate the arguments and call the function."""
        if missing := [name for name in self._rich_required if name not in arguments]:
            raise ToolArgumentError("; ".join(f"{name} is missing" for name in missing))
        plain = {name: value for name, value in arguments.items() if name not in self._rich}
        values = {
            name: await self._rich[name].load(name, arguments[name], files) for name in self._rich.keys() & arguments
        }
        validate = self._arguments.validate
        values |= await offload(not is_small(plain), lambda: validate(plain))
        if self._token is None:
            value = await self._call(values)
        else:
            name, kind = self._token
            token = kind()
            try:
                value = await self._call({**values, name: token})
            except asyncio.CancelledError:
                token.cancel()
                raise
        images: tuple[ToolImage, ...] = ()
        if self._rich_result is not None:
            if self._rich_result.kind == "image":
                images = (await offload(True, lambda: to_answer(value, self.name))).images
            return ToolAnswer(await self._rich_result.dump(value, files), images)
        dump = self._result.dump if self._result is not None else None
        return await offload(not is_small(value), lambda: to_answer(value, self.name, dump))

    async def _call(self, values: dict[str, Any]) -> Any:
        positional = [values.pop(each.name, each.default) for each in self._positional]
        if self._is_async:
            value = await contained(self.function(*positional, **values))
        else:
            value = await self._threads.run(lambda: self.function(*positional, **values))
            if inspect.isawaitable(value):  # a sync function around an async one
                value = await contained(value)
        return value

    def _write(self, name: str, shown: list[inspect.Parameter], hints: Mapping[str, Any]) -> Stub:
        schema = self._arguments.schema
        result = self._result.schema if self._result is not None else {}
        texts = TypeTexts(merged_definitions(schema, result))
        properties = schema.get("properties", {})
        parameters = [
            _rich_parameter(each, self._rich[each.name])
            if each.name in self._rich
            else _parameter(
                each, properties[each.name], texts.of(properties[each.name], each.name), typed=each.name in hints
            )
            for each in shown
        ]
        description = inspect.getdoc(_plain(self.function)) or ""
        if self._rich_result is not None:
            text, kind = self._rich_result.text, self._rich_result.kind
            return write_stub(name, parameters, text, description, texts.classes, rich_result=kind)
        returned = texts.of(result, f"{name}_result") if _RETURN in hints else None
        return write_stub(name, parameters, returned, description, texts.classes)


def _is_token(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "cancel") and hasattr(kind, "link_future")


async def contained(call: Awaitable[Any]) -> Any:
    """Await a tool; what would end the event loop, or look like a cancellation when there was none, becomes a RuntimeError."""
    task = asyncio.current_task()
    try:
        return await call
    except asyncio.CancelledError:
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("the tool was cancelled on the host") from None
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(f"{type(error).__name__}: {error}".removesuffix(": ")) from error


def _parameter(parameter: inspect.Parameter, schema: Mapping[str, Any], text: str, *, typed: bool) -> Parameter:
    required = parameter.default is _EMPTY
    return Parameter(
        name=parameter.name,
        key=parameter.name,
        type=text if typed else None,
        default=None if required else shown_default(schema),
        values=() if required or "default" not in schema else (schema["default"],),
        kind=parameter.kind,
        description=note_of(schema),
    )


def _rich_parameter(parameter: inspect.Parameter, rich: RichType) -> Parameter:
    required = parameter.default is _EMPTY
    return Parameter(
        name=parameter.name,
        key=parameter.name,
        type=rich.text,
        default=None if required else "None" if parameter.default is None else "...",
        values=(None,) if parameter.default is None else (),
        kind=parameter.kind,
        description=rich.note,
        rich=rich.kind,
    )


def _name_of(function: Callable[..., Any]) -> str:
    if inspect.isclass(function):
        raise ValueError(f"The class `{function.__name__}` can't be a tool; give a function or a method of an object.")
    name = getattr(_plain(function), "__name__", None)
    if name is None:
        raise ValueError(f"{function!r} has no name to call it by; give a function made with `def`.")
    if name == "<lambda>":
        raise ValueError("A `<lambda>` has no name to call it by; give a function made with `def`.")
    return checked_name(name)


def _plain(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _location_of(function: Callable[..., Any]) -> str:
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


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
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
                f"The tool `{name}` takes `{stars}{each.name}`, which does not say what to pass; name its parameters, or "
                "take a list or a dict."
            )
    # What a partial binds by keyword is its owner's, and may be a secret.
    bound = function.keywords if isinstance(function, functools.partial) else {}
    return [each for each in parameters if each.name not in bound]
