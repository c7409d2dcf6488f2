"""How agents work together."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autogen_codeact.teams.factory import coder_executor_team
    from autogen_codeact.teams.loading import RefusedConfigError, load_component
    from autogen_codeact.teams.team import Team, TeamConfig
    from autogen_codeact.teams.termination import FinalWordTermination, FinalWordTerminationConfig

_HOME = {
    "FinalWordTermination": "termination",
    "FinalWordTerminationConfig": "termination",
    "RefusedConfigError": "loading",
    "Team": "team",
    "TeamConfig": "team",
    "coder_executor_team": "factory",
    "load_component": "loading",
}

__all__ = [
    "FinalWordTermination",
    "FinalWordTerminationConfig",
    "RefusedConfigError",
    "Team",
    "TeamConfig",
    "coder_executor_team",
    "load_component",
]


def __getattr__(name: str) -> Any:
    # AutoGen takes over a second to import; the command line must answer --help without it.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
