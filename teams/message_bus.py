"""A new message bus for a nested AutoGen team whose run was cut short: the old one is blocked for good."""

from __future__ import annotations

import asyncio

from autogen_agentchat.agents import SocietyOfMindAgent
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.teams import BaseGroupChat
from autogen_core import SingleThreadedAgentRuntime


def renew(participant: ChatAgent | BaseTeam) -> bool:
    """Cancel what runs on the message buses of a participant and its nested teams, and give each a new one.

    AutoGen's teams offer no way to do it, so this uses their private attributes. What the team remembers is lost; its saved state
    can be loaded afterwards. A team with a runtime of the user's is left as it is.

    Args:
        participant: An agent or team.

    Returns:
        Whether there was one. Then its run has to be cancelled twice: the first time, it waits for the old bus.
    """
    if isinstance(participant, SocietyOfMindAgent):
        return renew(participant._team)
    if not isinstance(participant, BaseGroupChat):
        return False
    for nested in participant._participants:
        renew(nested)
    runtime = participant._runtime
    if not isinstance(runtime, SingleThreadedAgentRuntime) or not participant._embedded_runtime:
        return False
    for task in list(runtime._background_tasks):
        task.cancel()
    if runtime._run_context is not None:
        runtime._run_context._run_task.cancel()
    participant._runtime = SingleThreadedAgentRuntime(ignore_unhandled_exceptions=False)
    participant._output_message_queue = asyncio.Queue()
    participant._initialized = participant._is_running = False
    return True
