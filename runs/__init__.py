"""What happened in a run: its log, written as it happens."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autogen_codeact.runs.events import RunEvent
    from autogen_codeact.runs.writer import LogLocked

_HOME = {
    "LogLocked": "writer",
    "RunEvent": "events",
}

__all__ = [
    "LogLocked",
    "RunEvent",
]


def __getattr__(name: str) -> Any:
    # AutoGen takes over a second to import; the command line must answer --help without it.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
