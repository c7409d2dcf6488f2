"""The agent as configuration: nothing is lost on the way through JSON, and nothing foreign gets in."""

import inspect
import json
from typing import Any

import pytest
from autogen_agentchat.agents import CodeExecutorAgent as UpstreamAgent
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.code_executor import CodeExecutor
from autogen_core.model_context import BufferedChatCompletionContext

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.agents.config import CodeExecutorAgentConfig
from tests.agents.support import WORKS, scripted

pytestmark = pytest.mark.filterwarnings(
    # AutoGen's local executor warns that it is no sandbox; the code here is ours.
    "ignore:Using LocalCommandLineCodeExecutor:UserWarning"
)


def through_json(agent: CodeExecutorAgent) -> CodeExecutorAgent:
    text = agent.dump_component().model_dump_json(exclude_none=True)
    loaded = ChatAgent.load_component(json.loads(text))  # type: ignore[attr-defined]
    assert type(loaded) is CodeExecutorAgent
    return loaded


def config_of(agent: CodeExecutorAgent) -> dict[str, Any]:
    return agent.dump_component().config


ARGUMENTS: dict[str, Any] = {
    "model_client_stream": True,
    "max_retries_on_error": 4,
    "description": "runs things",
    "system_message": "Be brief.",
    "sources": ["coder"],
    "supported_languages": ["py", "bash"],
    "stream_output": True,
    "describe_environment": False,
    "context_budget": 50_000,
}
OURS = {"stream_output", "tools", "approve_tool", "describe_environment", "context_budget"}
"""Arguments that AutoGen's agent does not have."""


@pytest.mark.parametrize(("argument", "value"), ARGUMENTS.items())
def test_every_argument_survives_a_round_trip(executor: CodeExecutor, argument: Any, value: Any) -> None:
    agent = CodeExecutorAgent("coder", executor, model_client=scripted(), **{argument: value})
    default = CodeExecutorAgent("coder", executor, model_client=scripted())

    assert config_of(agent)[argument] == value
    assert config_of(default).get(argument) != value
    assert config_of(through_json(agent)) == config_of(agent)


def test_parts_survive_a_round_trip(executor: CodeExecutor) -> None:
    context = BufferedChatCompletionContext(buffer_size=3)
    agent = CodeExecutorAgent("coder", executor, model_client=scripted(WORKS), model_context=context)

    config = config_of(through_json(agent))

    assert config["model_context"]["config"] == {"buffer_size": 3}
    assert config["model_client"]["config"]["chat_completions"][0]["content"] == WORKS
    assert config["code_executor"]["config"]["timeout"] == 20
    assert "model_client" not in config_of(through_json(CodeExecutorAgent("runner", executor)))


def test_every_argument_is_in_the_configuration() -> None:
    arguments = set(inspect.signature(CodeExecutorAgent).parameters)
    assert arguments == set(inspect.signature(UpstreamAgent).parameters) | OURS
    fields = set(CodeExecutorAgentConfig.model_fields) - {"structured_message_factory"}
    assert arguments == fields
    parts = {"approval_func", "approve_tool"}  # policies; functions have no configuration
    tested = {"name", "code_executor", "model_client", "model_context", "tools", *parts, *ARGUMENTS}
    assert fields == tested


@pytest.mark.parametrize("system_message", [None, "", "Be brief."])
async def test_the_system_message_survives_in_a_team_too(executor: CodeExecutor, system_message: str | None) -> None:
    agent = CodeExecutorAgent("coder", executor, model_client=scripted("ok"), system_message=system_message)
    team = RoundRobinGroupChat([agent], termination_condition=MaxMessageTermination(2))

    text = team.dump_component().model_dump_json(exclude_none=True)
    config = RoundRobinGroupChat.load_component(json.loads(text)).dump_component().config

    assert config["participants"][0]["config"]["system_message"] == system_message


def test_a_config_without_a_system_message_has_the_default_one(executor: CodeExecutor) -> None:
    model = CodeExecutorAgent("runner", executor).dump_component()
    del model.config["system_message"]
    agent = CodeExecutorAgent.load_component(model)
    assert config_of(agent)["system_message"] == CodeExecutorAgent.DEFAULT_SYSTEM_MESSAGE


def test_provider_is_public_and_a_subclass_has_its_own(executor: CodeExecutor) -> None:
    assert CodeExecutorAgent("a", executor).dump_component().provider == "autogen_codeact.agents.CodeExecutorAgent"
    assert Sub("a", executor).dump_component().provider.endswith(".Sub")


class Sub(CodeExecutorAgent):
    """One that somebody derived."""


def test_invalid_arguments_are_refused(executor: CodeExecutor) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        CodeExecutorAgent("coder", executor, model_client=scripted(), max_retries_on_error=-1)
    with pytest.raises(ValueError, match="needs a model_client"):
        CodeExecutorAgent("coder", executor, max_retries_on_error=1)
    with pytest.raises(ValueError, match="identifier"):
        CodeExecutorAgent("the coder", executor)
