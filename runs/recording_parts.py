"""Replaces the model clients, executors and workbenches of agents by ones that write to the log of a run, or answer from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_core.code_executor import CodeExecutor
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents.base_agent import BaseCodeAgent
from autogen_codeact.runs.agent_history import RunHistory
from autogen_codeact.runs.agents import agent_keys
from autogen_codeact.runs.recorded_client import RecordedClient
from autogen_codeact.runs.recorded_executor import RecordedExecutor
from autogen_codeact.runs.recorded_workbench import RecordedWorkbench
from autogen_codeact.runs.steps import AgentSteps, JournalLog
from autogen_codeact.runs.writer import LogWriter
from autogen_codeact.teams.parts import executors_of, teams_of

MODEL_CLIENT, MODEL_CONTEXT = "_model_client", "_model_context"
EXECUTOR, WORKBENCHES = "_code_executor", "_workbench"
"""Attributes of AutoGen's agents, which have no public names for these parts."""
SELECTOR = "{team}.selector"
"""Name in the log of the model that chooses the speakers of a team. No agent has it: it is not an identifier."""


def insert_recording_parts(
    agent_or_team: ChatAgent | BaseTeam, log: LogWriter, history: RunHistory | None = None
) -> Callable[[], None]:
    """Write what the agents receive from models and code into the log, until the returned function is called.

    Args:
        agent_or_team: The agent, or the team with all its agents.
        history: What the agents have received, if the run is resumed.
    """
    history = history or RunHistory()
    journals = {id(executor): JournalLog(number) for number, executor in enumerate(executors_of(agent_or_team))}
    with ExitStack() as undo:
        for key, agent in agent_keys(agent_or_team):
            journal = journals.get(id(getattr(agent, "code_executor", None))) or JournalLog(-1)
            steps = AgentSteps(key, log, journal, history.agents.get(key))
            steps.note = history.notes.get(key)
            steps.is_empty = key in history.emptied
            undo.callback(_exchange(agent, steps))
        for key, policy in _selectors(agent_or_team):
            steps = AgentSteps(key, log, JournalLog(-1), history.agents.get(key))
            client = RecordedClient(getattr(policy, MODEL_CLIENT), steps, None)
            undo.callback(_replace(policy, {MODEL_CLIENT: client}))
        return undo.pop_all().close


def wrap_models(
    agent_or_team: ChatAgent | BaseTeam, wrap: Callable[[ChatCompletionClient], ChatCompletionClient]
) -> None:
    """Have the agents, and what chooses the speakers of teams, ask what `wrap` returns for their model clients.

    Args:
        agent_or_team: The agent, or the team with all its agents.
        wrap: Returns a client that forwards to the one that it is given.
    """
    holders = [*agent_keys(agent_or_team), *_selectors(agent_or_team)]
    for holder in {id(each): each for _, each in holders}.values():
        if isinstance(client := getattr(holder, MODEL_CLIENT, None), ChatCompletionClient):
            _replace(holder, {MODEL_CLIENT: wrap(client)})


def _exchange(agent: ChatAgent, steps: AgentSteps) -> Callable[[], None]:
    client = getattr(agent, MODEL_CLIENT, None)
    context = getattr(agent, MODEL_CONTEXT, None)
    recorded = None
    if isinstance(client, ChatCompletionClient):
        recorded = RecordedClient(client, steps, context if isinstance(context, ChatCompletionContext) else None)
    exchanged: dict[str, object] = {MODEL_CLIENT: recorded} if recorded is not None else {}
    if isinstance(agent, BaseCodeAgent):
        steps.begin(agent.journal)
        agent.use_steps(steps)
        with ExitStack() as undo:
            undo.callback(agent.use_steps, None)
            undo.callback(_replace(agent, exchanged))
            return undo.pop_all().close
    if isinstance(executor := getattr(agent, EXECUTOR, None), CodeExecutor):
        exchanged[EXECUTOR] = RecordedExecutor(executor, steps)
    if isinstance(workbenches := getattr(agent, WORKBENCHES, None), list):
        exchanged[WORKBENCHES] = [RecordedWorkbench(each, steps) for each in workbenches]
    return _replace(agent, exchanged)


def _selectors(agent_or_team: ChatAgent | BaseTeam) -> list[tuple[str, object]]:
    """Return what chooses the speakers of teams with a model, with names for the log."""
    found: list[tuple[str, object]] = []
    for team in teams_of(agent_or_team):
        policy = getattr(team, "speakers", team)
        if isinstance(getattr(policy, MODEL_CLIENT, None), ChatCompletionClient):
            name = SELECTOR.format(team=team.name)
            count = sum(key.partition("#")[0] == name for key, _ in found)
            found.append((f"{name}#{count + 1}" if count else name, policy))
    return found


def _replace(owner: object, attributes: dict[str, object]) -> Callable[[], None]:
    before = {name: getattr(owner, name) for name in attributes}

    def set_all(values: dict[str, object]) -> None:
        for name, value in values.items():
            setattr(owner, name, value)

    set_all(attributes)
    return lambda: set_all(before)
