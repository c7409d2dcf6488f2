"""Which agents, teams, executors and models an agent or a team is made of."""

from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.agents import (
    ApprovalResponse,
    AssistantAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.agents import CodeExecutorAgent as AutoGenCodeExecutorAgent
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_ext.models.replay import ReplayChatCompletionClient
from autogen_ext.tools.code_execution import PythonCodeExecutionTool

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.teams import Team
from autogen_codeact.teams.parts import agents_of, executors_of, models_of, teams_of


@pytest.fixture
def model() -> Callable[[], ReplayChatCompletionClient]:
    info: Any = {"vision": False, "function_calling": True, "json_output": False, "structured_output": False}
    return lambda: ReplayChatCompletionClient([""], model_info={**info, "family": "unknown"})


Model = Callable[[], ReplayChatCompletionClient]


def test_an_agent_has_itself_its_executor_and_its_model(model: Model) -> None:
    client, executor = model(), BubblewrapCommandLineCodeExecutor(mode="session")
    agent = CodeActAgent("coder", executor, model_client=client)
    assert agents_of(agent) == [agent]
    assert teams_of(agent) == []
    assert executors_of(agent) == [executor]
    assert models_of(agent) == [client]


def test_nested_teams_and_agents_count_each_once(model: Model) -> None:
    client, executor = model(), BubblewrapCommandLineCodeExecutor()
    coder = AssistantAgent("coder", client)
    runner = CodeExecutorAgent("runner", executor)
    theirs = AutoGenCodeExecutorAgent(
        "theirs", executor, approval_func=lambda _: ApprovalResponse(approved=True, reason="")
    )
    inner = RoundRobinGroupChat([runner, theirs])
    chosen = SelectorGroupChat([AssistantAgent("a", client), UserProxyAgent("person")], model_client=model())
    society = SocietyOfMindAgent("society", chosen, model())
    filtered = MessageFilterAgent("filtered", coder, MessageFilterConfig(per_source=[]))
    team = Team([filtered, inner, society])
    assert [agent.name for agent in agents_of(team)] == [
        *("filtered", "coder", "runner", "theirs", "society", "a", "person"),
    ]
    assert teams_of(team) == [team, inner, chosen]
    assert executors_of(team) == [executor]
    assert models_of(team) == [client, chosen._model_client, society._model_client]


def test_agents_teams_and_executors_inside_tools_count(model: Model) -> None:
    executor = BubblewrapCommandLineCodeExecutor()
    helper = AssistantAgent("helper", model())
    others = RoundRobinGroupChat([AssistantAgent("other", model())])
    tools: Any = [
        AgentTool(helper),
        TeamTool(others, name="others", description="Others."),
        PythonCodeExecutionTool(executor),
    ]
    assistant = AssistantAgent("main", model(), tools=tools)
    assert [agent.name for agent in agents_of(assistant)] == ["main", "helper", "other"]
    assert executors_of(assistant) == [executor]
    own = BubblewrapCommandLineCodeExecutor(mode="session")
    ours = CodeActAgent("ours", own, model_client=model(), tools=[AgentTool(helper)])
    assert [agent.name for agent in agents_of(ours)] == ["ours", "helper"]
    assert models_of(ours) == [ours.model_client, helper._model_client]


def test_a_team_that_contains_itself_through_a_tool_ends(model: Model) -> None:
    tools: list[Any] = [PythonCodeExecutionTool(BubblewrapCommandLineCodeExecutor())]
    agent = AssistantAgent("agent", model(), tools=tools)
    team = RoundRobinGroupChat([agent])
    agent._tools.append(TeamTool(team, name="again", description="The same team."))
    assert agents_of(team) == [agent]
    assert teams_of(team) == [team]
