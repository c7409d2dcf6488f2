"""Events as JSON, written piece by piece: no other thread runs while C code serializes a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from autogen_codeact.runs.events import HostCallStarted
from autogen_codeact.runs.folder import FileStore
from autogen_codeact.runs.results import CallRecord, StoredFile
from codeact_sandbox.types.result import ErrorInfo, NetworkConnection

LARGE_LINE = 64 * 1024
LARGE_TEXT = 16 * 1024
MAX_TEXTS = 100  # strings of one event that are moved one by one; with more of them, whole fields are
PIECE = 16 * 1024
PIECE_ITEMS = 500
_NUMBERS = frozenset({int, float, bool, type(None)})
_OF_CALLS = frozenset({"arguments", "result"})
_WITH_FIELDS = BaseModel, ErrorInfo, NetworkConnection


def small_json(value: Any) -> bytes | None:
    """Return a small value as JSON, or None if it may be large."""
    left, todo = PIECE, [value]
    while todo and left >= 0:
        item = todo.pop()
        if isinstance(item, _WITH_FIELDS):
            item = vars(item)
        if isinstance(item, str):
            left -= len(item)
        elif isinstance(item, dict | list | tuple):
            left -= 8 * len(item)
            # Most long lists have only numbers, which are already counted.
            if left >= 0 and (isinstance(item, dict) or not _NUMBERS.issuperset(map(type, item))):
                todo.extend(item.values() if isinstance(item, dict) else item)
        elif isinstance(item, Iterable):
            return None
    return _dumped(value) if left >= 0 else None


class EventWriter:
    """Writes one event as JSON."""

    def __init__(self, store: FileStore, clean: Callable[[bytes], bytes]) -> None:
        self._store = store
        self._clean = clean
        self._moves = False
        self._moved: dict[str, StoredFile] = {}

    def line(self, fields: dict[str, Any]) -> bytes:
        """Return the line of an event. If it is large, large strings, values of calls and fields are put into files."""
        pieces: list[bytes] = []
        size = 0
        for piece in self.pieces(fields):
            pieces.append(piece)
            size += len(piece)
            if size > LARGE_LINE:
                break
        else:
            return self._clean(b"".join(pieces))
        self._moves = True
        written: dict[str, bytes] = {}
        for name, value in fields.items():
            pointer = _pointer("", name)
            text = self._clean(b"".join(self._part(value, pointer)))
            if len(text) > LARGE_LINE:
                # What was moved out of it stays outside, with its own pointer.
                self._moved[pointer] = self._store.put(text, "json", clean=False)
                text = b"null"
            written[name] = text
        written["stored"] = _dumped(self._moved)
        return b"{" + b",".join(_dumped(name) + b":" + text for name, text in written.items()) + b"}"

    def pieces(self, value: Any, at: str = "") -> Iterator[bytes]:
        """Serialize a value piece by piece."""
        if (text := small_json(value)) is not None:
            yield text
        elif isinstance(value, _WITH_FIELDS):
            of_call = self._moves and isinstance(value, CallRecord | HostCallStarted)
            yield from self._object(fields_of(value), at, _OF_CALLS if of_call else frozenset())
        elif isinstance(value, dict):
            yield from self._object(value, at)
        elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
            yield from self._list(value, at)
        else:
            yield _dumped(value)

    def _object(self, values: dict[Any, Any], at: str, moved: frozenset[str] = frozenset()) -> Iterator[bytes]:
        before = b"{"
        for key, each in values.items():
            pointer = _pointer(at, key)
            yield before + _dumped({key: 0})[1:-2]
            if key in moved and not isinstance(each, str) and small_json(each) is None:
                data = self._clean(b"".join(self.pieces(each, pointer)))
                self._moved[pointer] = self._store.put(data, "json", clean=False)
                yield b"null"
            else:
                yield from self._part(each, pointer)
            before = b","
        yield b"{}" if before == b"{" else b"}"

    def _list(self, values: Iterable[Any], at: str) -> Iterator[bytes]:
        before, number, items = b"[", 0, iter(values)
        while part := list(islice(items, PIECE_ITEMS if isinstance(values, list | tuple) else 1)):
            if len(part) > 1 and (text := small_json(part)) is not None:
                yield before + text[1:-1]
            else:
                for offset, each in enumerate(part):
                    yield before
                    yield from self._part(each, _pointer(at, number + offset))
                    before = b","
            before, number = b",", number + len(part)
        yield b"[]" if before == b"[" else b"]"

    def _part(self, value: Any, at: str) -> Iterator[bytes]:
        if isinstance(value, str) and len(value) > LARGE_TEXT and self._moves and len(self._moved) < MAX_TEXTS:
            self._moved[at] = self._store.put(self._clean(value.encode("utf-8", "replace")), "text", clean=False)
            yield b"null"
        else:
            yield from self.pieces(value, at)


def fields_of(model: Any) -> dict[str, Any]:
    """Return the fields of a model or a dataclass that are written."""
    return {name: value for name, value in vars(model).items() if name != "mac"}


def _dumped(value: Any) -> bytes:
    try:
        return to_json(value, inf_nan_mode="constants", fallback=_described)
    except PydanticSerializationError:  # lone surrogates
        return to_json(_well_formed(value), inf_nan_mode="constants", fallback=_described)


def _pointer(at: str, key: object) -> str:
    return f"{at}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _described(value: object) -> str:
    return f"<{type(value).__name__}>"


def _well_formed(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        case BaseModel() | ErrorInfo() | NetworkConnection():
            return _well_formed(fields_of(value))
        case dict():
            return {_well_formed(key): _well_formed(each) for key, each in value.items()}
        case list() | tuple():
            return [_well_formed(each) for each in value]
    return value
