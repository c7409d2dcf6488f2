"""Puts into the agents of a run what keeps their steps in its log, or answers from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents.base_agent import BaseCodeAgent
from autogen_codeact.runs.agents import agent_keys
from autogen_codeact.runs.past import RunPast
from autogen_codeact.runs.recorded_client import recorded_client
from autogen_codeact.runs.recorded_workbench import RecordedWorkbench
from autogen_codeact.runs.steps import AgentSteps, JournalLog
from autogen_codeact.runs.writer import LogWriter
from autogen_codeact.teams.parts import executors_of

MODEL_CLIENT, MODEL_CONTEXT, WORKBENCHES = "_model_client", "_model_context", "_workbench"
"""Attributes of AutoGen's agents, which have no public names for these parts."""


def exchange_parts(
    agent_or_team: ChatAgent | BaseTeam, log: LogWriter, past: RunPast | None = None
) -> Callable[[], None]:
    """Have the log keep what the agents get from their models and their code, until the returned function is called.

    Args:
        agent_or_team: The agent, or the team with all its agents.
        log: The log.
        past: What the agents have got already, in a run that is continued.
    """
    past = past or RunPast()
    journals = {id(executor): JournalLog(number) for number, executor in enumerate(executors_of(agent_or_team))}
    with ExitStack() as undo:
        for key, agent in agent_keys(agent_or_team):
            journal = journals.get(id(getattr(agent, "code_executor", None))) or JournalLog(-1)
            steps = AgentSteps(key, log, journal, past.agents.get(key))
            steps.note = past.notes.get(key)
            steps.is_empty = key in past.emptied
            undo.callback(_exchange(agent, steps))
        return undo.pop_all().close


def _exchange(agent: ChatAgent, steps: AgentSteps) -> Callable[[], None]:
    client = getattr(agent, MODEL_CLIENT, None)
    context = getattr(agent, MODEL_CONTEXT, None)
    recorded = None
    if isinstance(client, ChatCompletionClient):
        recorded = recorded_client(client, steps, context if isinstance(context, ChatCompletionContext) else None)
    if isinstance(agent, BaseCodeAgent):
        steps.begin(agent.journal)
        agent.use_steps(steps, recorded)
        return lambda: agent.use_steps(None, client)
    if recorded is None:
        return lambda: None
    exchanged: dict[str, object] = {MODEL_CLIENT: recorded}
    workbenches = getattr(agent, WORKBENCHES, None)
    if isinstance(workbenches, list):
        exchanged[WORKBENCHES] = [RecordedWorkbench(each, steps) for each in workbenches]
    before = {name: getattr(agent, name) for name in exchanged}
    vars(agent).update(exchanged)
    return lambda: vars(agent).update(before)
