"""Replaces the message bus of a nested AutoGen team whose run was interrupted: the old one stays blocked."""

from __future__ import annotations

import asyncio

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.teams import BaseGroupChat
from autogen_core import SingleThreadedAgentRuntime

from autogen_codeact.teams.parts import teams_of


def renew(participant: ChatAgent | BaseTeam) -> bool:
    """Cancel what runs on the message buses of AutoGen's teams in a participant, and give each a new one.

    AutoGen's teams offer no way to do it, so this uses their private attributes. What the team remembers is lost; its saved state
    can be loaded afterwards. A team with a runtime of the user's is left as it is.

    Returns True where there was one: then the run has to be cancelled twice, because the first time it waits for the old bus.
    """
    renewed = False
    for team in teams_of(participant):
        runtime = getattr(team, "_runtime", None)
        if not isinstance(team, BaseGroupChat) or not isinstance(runtime, SingleThreadedAgentRuntime):
            continue
        if not team._embedded_runtime:
            continue
        for task in list(runtime._background_tasks):
            task.cancel()
        if runtime._run_context is not None:
            runtime._run_context._run_task.cancel()
        team._runtime = SingleThreadedAgentRuntime(ignore_unhandled_exceptions=False)
        team._output_message_queue = asyncio.Queue()
        team._initialized = team._is_running = False
        renewed = True
    return renewed
