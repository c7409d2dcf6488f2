"""Events as lines of JSON; a large event is a file of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from autogen_codeact.runs.events import Event
from autogen_codeact.runs.folder import FileStore
from codeact_sandbox.types.result import ErrorInfo, NetworkConnection

LARGE_LINE = 64 * 1024
_KEPT = ("schema_version", "seq", "time", "monotonic", "type", "agent", "number")
"""Fields that the line of a large event has, too: they say what it is."""


def event_line(event: Event, store: FileStore, clean: Callable[[bytes], bytes]) -> bytes:
    """Return the line of an event, with `clean` applied; it names the file of an event that is large."""
    fields = fields_of(event)
    line = clean(_dumped(fields))
    if len(line) <= LARGE_LINE:
        return line
    kept = {name: fields[name] for name in _KEPT if name in fields}
    return _dumped({**kept, "stored": store.put(line, "json", clean=False)})


def fields_of(model: Any) -> dict[str, Any]:
    """Return the fields of a model or a dataclass that are written."""
    return {name: value for name, value in vars(model).items() if name != "mac"}


def _dumped(value: Any) -> bytes:
    try:
        return to_json(value, inf_nan_mode="constants", fallback=_described)
    except PydanticSerializationError:  # lone surrogates
        return to_json(_well_formed(value), inf_nan_mode="constants", fallback=_described)


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
