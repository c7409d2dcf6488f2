"""OpenTelemetry spans of agents, teams, model calls, blocks of code and host tools."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autogen_codeact.telemetry.content import Redact
    from autogen_codeact.telemetry.instrumentation import Instrumentation, instrument

_HOME = {
    "Instrumentation": "instrumentation",
    "Redact": "content",
    "instrument": "instrumentation",
}

__all__ = [
    "Instrumentation",
    "Redact",
    "instrument",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
