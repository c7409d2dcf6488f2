"""OpenTelemetry spans of agents, teams, model calls, blocks of code and host tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogen_codeact.sandbox.lazy import lazy_names

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


__getattr__, __dir__ = lazy_names(__name__, _HOME)
