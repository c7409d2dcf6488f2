"""The agent or team of an attempt, which a function of the caller makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_core.code_executor import CodeExecutor

from autogen_codeact.batch.errors import UnusableAgentError
from autogen_codeact.batch.tasks import Task

AgentOrTeam = ChatAgent | BaseTeam
MakeAgent = Callable[..., Any]
"""Called with an executor, and with the `Task` if it takes a second argument; returns an agent or a team, or awaits one."""


async def call_make_agent(make: MakeAgent, executor: CodeExecutor, task: Task) -> AgentOrTeam:
    """Have the caller's function make an agent or a team."""
    made = make(executor, task) if _takes_task(make) else make(executor)
    if inspect.isawaitable(made):
        made = await made
    if not isinstance(made, ChatAgent | BaseTeam):
        raise UnusableAgentError(f"make_agent has to return an agent or a team, not a {type(made).__name__}")
    return made


def _takes_task(make: MakeAgent) -> bool:
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return False
    by_position = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    required = [each for each in by_position if each.default is each.empty]
    return (
        len(required) > 1
        or any(each.kind == each.VAR_POSITIONAL for each in parameters)
        or (len(by_position) > 1 and by_position[1].name == "task")
    )
