"""Events as lines of JSON; the large values of a large event are put into files."""

from __future__ import annotations

from collections.abc import Callable
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
_WITH_FIELDS = BaseModel, ErrorInfo, NetworkConnection


class EventWriter:
    """Writes one event as JSON."""

    def __init__(self, store: FileStore, clean: Callable[[bytes], bytes]) -> None:
        self._store = store
        self._clean = clean
        self._moved: dict[str, StoredFile] = {}

    def line(self, fields: dict[str, Any]) -> bytes:
        """Return the line of an event. If it is large, large strings, values of calls and fields are put into files."""
        texts = {name: self._clean(_dumped(value)) for name, value in fields.items()}
        if sum(map(len, texts.values())) > LARGE_LINE:
            texts = {
                name: text if len(text) <= LARGE_TEXT else self._field(fields[name], _pointer("", name))
                for name, text in texts.items()
            }
            texts["stored"] = self._clean(_dumped(self._moved))
        return b"{" + b",".join(_dumped(name) + b":" + text for name, text in texts.items()) + b"}"

    def _field(self, value: Any, at: str) -> bytes:
        """Return a field without its large values; null if it is still large, and is in a file itself."""
        text = self._clean(_dumped(self._without_large(value, at)))
        if len(text) <= LARGE_LINE:
            return text
        # What was moved out of it stays outside, with its own pointer.
        self._moved[at] = self._store.put(text, "json", clean=False)
        return b"null"

    def _without_large(self, value: Any, at: str) -> Any:
        if isinstance(value, str):
            if len(value) <= LARGE_TEXT or len(self._moved) >= MAX_TEXTS:
                return value
            self._moved[at] = self._store.put(self._clean(value.encode("utf-8", "replace")), "text", clean=False)
            return None
        if isinstance(value, CallRecord | HostCallStarted):
            return {name: self._of_call(name, each, _pointer(at, name)) for name, each in vars(value).items()}
        if isinstance(value, _WITH_FIELDS):
            value = vars(value)
        if isinstance(value, dict):
            return {key: self._without_large(each, _pointer(at, key)) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._without_large(each, _pointer(at, number)) for number, each in enumerate(value)]
        return value

    def _of_call(self, name: str, value: Any, at: str) -> Any:
        """Return a field of a call; large arguments and results are in files of their own, which a reader need not hold."""
        if name not in ("arguments", "result") or isinstance(value, str):
            return self._without_large(value, at)
        text = self._clean(_dumped(value))
        if len(text) <= LARGE_TEXT:
            return value
        self._moved[at] = self._store.put(text, "json", clean=False)
        return None


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
