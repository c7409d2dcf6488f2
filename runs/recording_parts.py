"""Replaces the model clients, executors and workbenches of agents by ones that write to the log of a run, or answer from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

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


@contextmanager
def recording_parts(agent_or_team: ChatAgent | BaseTeam, log: LogWriter, history: RunHistory) -> Iterator[None]:
    """Write what the agents receive from models and code into the log, or answer them from what they have received before."""
    journals = {id(executor): JournalLog(number) for number, executor in enumerate(executors_of(agent_or_team))}
    with ExitStack() as replaced:
        for key, agent in agent_keys(agent_or_team):
            journal = journals.get(id(getattr(agent, "code_executor", None))) or JournalLog(-1)
            steps = AgentSteps(key, log, journal, history.agents.get(key))
            steps.note = history.notes.get(key)
            steps.is_empty = key in history.emptied
            steps.questions = history.questions
            _exchange(agent, steps, replaced)
        for key, policy in _selectors(agent_or_team):
            steps = AgentSteps(key, log, JournalLog(-1), history.agents.get(key))
            steps.questions = history.questions
            _replace(policy, MODEL_CLIENT, RecordedClient(getattr(policy, MODEL_CLIENT), steps, None), replaced)
        yield


def wrap_models(
    agent_or_team: ChatAgent | BaseTeam, wrap: Callable[[ChatCompletionClient], ChatCompletionClient]
) -> None:
    """Have the agents, and what chooses the speakers of teams, ask what `wrap` returns for their model clients."""
    holders = [*agent_keys(agent_or_team), *_selectors(agent_or_team)]
    for holder in {id(each): each for _, each in holders}.values():
        if isinstance(client := getattr(holder, MODEL_CLIENT, None), ChatCompletionClient):
            setattr(holder, MODEL_CLIENT, wrap(client))


def _exchange(agent: ChatAgent, steps: AgentSteps, replaced: ExitStack) -> None:
    if isinstance(agent, BaseCodeAgent):
        steps.begin(agent.journal)
        agent.use_steps(steps)
        replaced.callback(agent.use_steps, None)
    client, context = getattr(agent, MODEL_CLIENT, None), getattr(agent, MODEL_CONTEXT, None)
    if isinstance(client, ChatCompletionClient):
        recorded = RecordedClient(client, steps, context if isinstance(context, ChatCompletionContext) else None)
        _replace(agent, MODEL_CLIENT, recorded, replaced)
    if isinstance(agent, BaseCodeAgent):
        return
    if isinstance(executor := getattr(agent, EXECUTOR, None), CodeExecutor):
        _replace(agent, EXECUTOR, RecordedExecutor(executor, steps), replaced)
    if isinstance(workbenches := getattr(agent, WORKBENCHES, None), list):
        _replace(agent, WORKBENCHES, [RecordedWorkbench(each, steps) for each in workbenches], replaced)


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


def _replace(owner: object, name: str, part: object, replaced: ExitStack) -> None:
    replaced.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, part)
