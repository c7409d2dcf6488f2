"""How agents work together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogen_codeact.sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.teams.budget import Budget
    from autogen_codeact.teams.config import TeamConfig
    from autogen_codeact.teams.errors import GraphError, HandoffTargetError, SelectionError, SpeakerError
    from autogen_codeact.teams.factory import coder_executor_team
    from autogen_codeact.teams.graph import Graph
    from autogen_codeact.teams.handoff import Handoff
    from autogen_codeact.teams.loading import RefusedConfigError, load_component
    from autogen_codeact.teams.selector import Selector
    from autogen_codeact.teams.speakers import Conversation, Position, RoundRobin, Speakers
    from autogen_codeact.teams.team import Team
    from autogen_codeact.teams.termination import FinalWordTermination, FinalWordTerminationConfig

_HOME = {
    "Budget": "budget",
    "Conversation": "speakers",
    "FinalWordTermination": "termination",
    "FinalWordTerminationConfig": "termination",
    "Graph": "graph",
    "GraphError": "errors",
    "Handoff": "handoff",
    "HandoffTargetError": "errors",
    "Position": "speakers",
    "RefusedConfigError": "loading",
    "RoundRobin": "speakers",
    "SelectionError": "errors",
    "Selector": "selector",
    "SpeakerError": "errors",
    "Speakers": "speakers",
    "Team": "team",
    "TeamConfig": "config",
    "coder_executor_team": "factory",
    "load_component": "loading",
}

__all__ = [
    "Budget",
    "Conversation",
    "FinalWordTermination",
    "FinalWordTerminationConfig",
    "Graph",
    "GraphError",
    "Handoff",
    "HandoffTargetError",
    "Position",
    "RefusedConfigError",
    "RoundRobin",
    "SelectionError",
    "Selector",
    "SpeakerError",
    "Speakers",
    "Team",
    "TeamConfig",
    "coder_executor_team",
    "load_component",
]


__getattr__, __dir__ = lazy_names(__name__, _HOME)
