"""How agents work together."""

from typing import TYPE_CHECKING

from codeact_sandbox.lazy import lazy_names

if __name__ == "teams":
    raise ModuleNotFoundError(f"No module named {__name__!r}", name=__name__)

if TYPE_CHECKING:
    from autogen_codeact.agents.budget import Budget as Budget
    from autogen_codeact.teams.factory import coder_executor_team as coder_executor_team
    from autogen_codeact.teams.graph import Graph as Graph
    from autogen_codeact.teams.loading import RefusedConfigError as RefusedConfigError
    from autogen_codeact.teams.loading import load_component as load_component
    from autogen_codeact.teams.selector import Selector as Selector
    from autogen_codeact.teams.speakers import Handoff as Handoff
    from autogen_codeact.teams.speakers import RoundRobin as RoundRobin
    from autogen_codeact.teams.team import Team as Team
    from autogen_codeact.teams.termination import FinalWordTermination as FinalWordTermination
_NAMES = {
    "autogen_codeact.agents.budget": "Budget",
    "autogen_codeact.teams.factory": "coder_executor_team",
    "autogen_codeact.teams.graph": "Graph",
    "autogen_codeact.teams.loading": "RefusedConfigError load_component",
    "autogen_codeact.teams.selector": "Selector",
    "autogen_codeact.teams.speakers": "Handoff RoundRobin",
    "autogen_codeact.teams.team": "Team",
    "autogen_codeact.teams.termination": "FinalWordTermination",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
