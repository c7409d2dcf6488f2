"""OpenTelemetry spans of agents, teams, model calls, blocks of code and host tools."""

from typing import TYPE_CHECKING

from codeact_sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.telemetry.instrumentation import instrument as instrument

_NAMES = {"autogen_codeact.telemetry.instrumentation": "instrument"}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
