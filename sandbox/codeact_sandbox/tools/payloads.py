"""Calls and answers as JSON: parsed as untrusted input, serialized within limits, and large ones not on the event loop.

The C code that parses and serializes JSON lets no other thread run meanwhile, so large values are processed in Python.
"""

from __future__ import annotations

import asyncio
import builtins
import json
import re
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic_core import from_json

from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.text import check_parts

T = TypeVar("T")
SMALL_BYTES = 16 * 1024
# A list or dict can take a hundred times as much memory as its JSON.
MOST_CONTAINERS = 50_000
# A validator reports each argument that it does not know, in C code that no other thread can interrupt.
MAX_ARGUMENTS = 1_000
TYPE_LIMIT = 200
MESSAGE_LIMIT = 16 * 1024
# One thread for all: each such thread delays the event loop through the interpreter lock, and several are not faster.
_EXECUTOR = ThreadPoolExecutor(1, thread_name_prefix="tool-values")
_NUMBERS = frozenset({int, float, bool, type(None)})
_ADDRESS = re.compile(r"(?<= at )0x[0-9a-fA-F]+")


@dataclass(frozen=True)
class Request:
    name: str
    copies: tuple[dict[str, Any], ...]  # copies of the arguments by name; each may be changed by its user


async def read_call(payload: bytes, copies: int) -> Request:
    return await offload(len(payload) > SMALL_BYTES, lambda: _read_call(payload, copies))


def _read_call(payload: bytes, copies: int) -> Request:
    try:
        call = _decode(payload)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"invalid JSON in a tool call: {error}") from None
    match call:
        case {"name": str(), "arguments": dict()}:
            pass
        case _:
            raise ValueError("the call is not an object with a name and arguments by name")
    if (count := len(call["arguments"])) > MAX_ARGUMENTS:
        raise ValueError(f"the call has {count:,} arguments; at most {MAX_ARGUMENTS:,} can be sent")
    more = (_decode(payload)["arguments"] for _ in range(copies - 1))
    return Request(call["name"], (call["arguments"], *more))


def _decode(payload: bytes) -> Any:
    """Parse JSON with a limited number of lists and objects."""
    check_parts(payload, b"[{", MOST_CONTAINERS)
    return from_json(payload)


async def write_answer(value: Any, limit: int) -> tuple[bytes, Any]:
    return await offload(not is_small(value), lambda: _write_answer(value, limit))


def _write_answer(value: Any, limit: int) -> tuple[bytes, Any]:
    if least_size(value, limit) > limit:
        raise ValueError(
            f"the result is larger than the {limit:,} bytes that can be sent: return less, or a part of it"
        )
    try:
        text = json_text(value, (",", ":"))
        if "\\ud" in text:
            # A lone surrogate, as in a file name that is not UTF-8, can't be encoded.
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()
        data = text.encode()
        copy = from_json(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"the tool's result can't be written as JSON: {error}") from None
    if len(data) > limit:
        raise ValueError(
            f"the result has {len(data):,} bytes; at most {limit:,} can be sent: return less, or a part of it"
        )
    return b'{"value":' + data + b"}", copy


def json_text(value: Any, separators: tuple[str, str] | None = None) -> str:
    """Write a value as JSON; call it in a thread if that is not small. In Python, so that other threads run meanwhile."""
    return "".join(json.JSONEncoder(separators=separators).iterencode(value))


def is_small(value: Any) -> bool:
    """Whether it is plain JSON, and small enough to be checked and serialized without a thread."""
    return least_size(value, SMALL_BYTES, of_others=SMALL_BYTES + 1) <= SMALL_BYTES


def least_size(value: Any, enough: int, of_others: int = 1) -> int:
    """A lower bound of the size of something as JSON; stops when it is above `enough`."""
    size, todo = 0, [value]
    while todo and size <= enough:
        item = todo.pop()
        if isinstance(item, str):
            size += len(item) + 2
        elif isinstance(item, Mapping):
            size += 2 + 4 * len(item)
            todo.extend(item.values())
        elif isinstance(item, list | tuple):
            size += 2 + len(item)
            # Most long lists contain only numbers, which are already counted.
            if size <= enough and not _NUMBERS.issuperset(map(type, item)):
                todo.extend(item)
        else:
            size += 1 if item is None or isinstance(item, int | float) else of_others
    return size


def write_error(kind: str, message: str, bases: list[str], *, refused: bool = False) -> bytes:
    error = {"name": kind, "message": message, "bases": bases, "refused": refused}
    return json.dumps({"error": error}, separators=(",", ":")).encode()


def describe_error(error: BaseException) -> tuple[str, str, list[str]]:
    """The name, the message and the builtin classes of an exception, whatever its own methods do."""
    kind = type(error)
    bases = [base.__name__ for base in kind.__mro__[:-3] if getattr(builtins, base.__name__, None) is base]
    try:
        message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        message = _ADDRESS.sub("0x…", message)
        message.encode()
    except UnicodeEncodeError:
        message = message.encode("utf-8", "replace").decode()
    except BaseException:  # noqa: BLE001 - whatever its __str__ raises
        message = "its message could not be shown"
    return kind.__name__[:TYPE_LIMIT], message[:MESSAGE_LIMIT], bases


def traceback_of(error: BaseException) -> str:
    """The traceback of an exception for a log, with a limited length and without control characters."""
    text = "".join(traceback.format_exception(error, limit=-20))
    if len(text) > MESSAGE_LIMIT:
        text = f"{text[: MESSAGE_LIMIT // 2]}\n[…]\n{text[-MESSAGE_LIMIT // 2 :]}"
    return printable(text.rstrip(), keep="\n")


async def offload(needed: bool, work: Callable[[], T]) -> T:
    """Run a function, in a thread if that is needed because it may take long."""
    return await asyncio.get_running_loop().run_in_executor(_EXECUTOR, work) if needed else work()
