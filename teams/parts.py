"""The agents, teams, executors and models that an agent or a team is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, Workbench

from autogen_codeact.agents.code_runner import RunOptions
from autogen_codeact.teams.speakers import Speakers
from codeact_sandbox import AsyncSandbox, Sandbox

HOLDERS = (ChatAgent, BaseTeam, BaseTool, Workbench, RunOptions, Speakers)
"""What is looked into for further parts."""

# AutoGen's classes have no public names for most of their parts.
ATTRIBUTES = (
    *("_participants", "participants", "speakers", "_team", "_wrapped_agent", "_task_runner"),
    *("_model_client", "model_client", "_client", "_code_executor", "code_executor", "_executor"),
    *("_workbench", "_tools", "tools", "_options"),
)


def agents_of(agent_or_team: object) -> list[ChatAgent]:
    """Return an agent, or the agents of a team, with all that are nested in teams, agents and tools, each once."""
    return [part for part in _parts(agent_or_team) if isinstance(part, ChatAgent)]


def teams_of(agent_or_team: object) -> list[BaseTeam]:
    return [part for part in _parts(agent_or_team) if isinstance(part, BaseTeam)]


def executors_of(agent_or_team: object) -> list[object]:
    """Return the executors of code of all agents and of their tools, each once, by identity."""
    kinds = (CodeExecutor, AsyncSandbox, Sandbox)
    return [part for part in _parts(agent_or_team) if isinstance(part, kinds)]


def models_of(agent_or_team: object) -> list[ChatCompletionClient]:
    """Return the model clients of all agents, and of teams that let a model choose, each once."""
    return [part for part in _parts(agent_or_team) if isinstance(part, ChatCompletionClient)]


def wrap_models(
    agents_or_teams: Iterable[object], wrap: Callable[[ChatCompletionClient], ChatCompletionClient]
) -> Callable[[], None]:
    """Put what `wrap` returns in place of each model client of whoever asks one; return what undoes it."""
    wrapped: list[tuple[object, str, ChatCompletionClient, ChatCompletionClient]] = []
    for holder in _parts(*agents_or_teams):
        name = "_model_client" if hasattr(holder, "_model_client") else "model_client"
        client = getattr(holder, name, None)
        if isinstance(holder, HOLDERS) and isinstance(client, ChatCompletionClient):
            wrapped.append((holder, name, client, wrap(client)))
            setattr(holder, name, wrapped[-1][-1])

    def undo() -> None:
        for holder, name, before, now in wrapped:
            if getattr(holder, name) is now:
                setattr(holder, name, before)

    return undo


def _parts(*roots: object) -> list[object]:
    """Return everything that is found inside, each once, the outer ones first."""
    seen: dict[int, object] = {}
    waiting = list(reversed(roots))
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part
        waiting.extend(reversed(list(_inside(part))))
    return list(seen.values())


def _inside(part: object) -> Iterator[object]:
    if isinstance(part, HOLDERS):
        for name in ATTRIBUTES:
            found = getattr(part, name, None)
            yield from found if isinstance(found, list | tuple) else () if found is None else (found,)
