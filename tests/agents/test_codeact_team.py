"""The agent that acts in code among others: AutoGen's teams and console, images, its own config."""

import inspect
import json
from typing import Any

import pytest
from autogen_agentchat.base import Handoff, TaskResult
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import (
    CodeExecutionEvent,
    CodeGenerationEvent,
    StructuredMessage,
    StructuredMessageFactory,
    TextMessage,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.ui import Console
from autogen_core.code_executor import CodeExecutor
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_core.models import UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel, ValidationError

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.agents.budget import Budget, Prices
from autogen_codeact.agents.codeact_prompt import ANSWER_BY_CALL, ANSWER_IN_WORDS
from autogen_codeact.agents.config import CodeActAgentConfig
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.teams import Team
from tests.agents.codeact import from_agent, python
from tests.agents.support import received_by, scripted


class Sum(BaseModel):
    total: int


@pytest.mark.parametrize("kind", [RoundRobinGroupChat, Team])
async def test_two_agents_in_a_team_are_shown_by_the_console(
    session: SandboxCodeExecutor, capsys: pytest.CaptureFixture[str], kind: Any
) -> None:
    one = CodeActAgent(
        "one", session, model_client=scripted(python("x = 6; print('six')"), "x is 6."), stream_output=True
    )
    two = CodeActAgent(
        "two", session, model_client=scripted(python("final_answer({'total': x * 7})")), output_content_type=Sum
    )
    team = kind([one, two], termination_condition=MaxMessageTermination(3))

    result = await Console(team.run_stream(task="6 * 7?"))

    assert isinstance(result, TaskResult)
    assert [(type(message), message.source) for message in result.messages] == [
        (TextMessage, "user"),
        (CodeGenerationEvent, "one"),
        (CodeExecutionEvent, "one"),
        (TextMessage, "one"),
        (CodeGenerationEvent, "two"),
        (CodeExecutionEvent, "two"),
        (StructuredMessage[Sum], "two"),
    ]
    shown = capsys.readouterr().out
    assert "six\n" in shown
    assert '{"total":42}' in shown
    assert received_by(two.model_client)[0][1:] == [  # type: ignore[arg-type]
        UserMessage(content="6 * 7?", source="user"),
        UserMessage(content="x is 6.", source="one"),
    ]


ARGUMENTS: dict[str, Any] = {
    "model_client_stream": True,
    "stream_output": True,
    "description": "Counts.",
    "system_message": None,
    "prompt_style": "execute",
    "supported_languages": ["python", "sh"],
    "handoffs": [Handoff(target="Bob", message="Your turn.")],
    "output_content_type": Sum,
    "setup": "import math",
    "budget": Budget(
        max_steps=3, max_tokens=1000, max_seconds=2.5, max_cost=0.5, prices=Prices(prompt=1, completion=2)
    ),
    "describe_environment": False,
    "context_budget": 50_000,
}


def test_every_argument_survives_json(bubblewrap: None) -> None:
    arguments = set(inspect.signature(CodeActAgent).parameters)
    typed = {"output_content_type"}  # in the config, it is a component
    fields = set(CodeActAgentConfig.model_fields) - {"structured_message_factory"} | typed
    assert len(arguments) <= 20
    assert arguments == fields | {"approval_func"}
    tested = {
        "name",
        "code_executor",
        "model_client",
        "model_context",
        "tools",
        "approve_tool",
        "approval_func",
        *ARGUMENTS,
    }
    assert arguments == tested

    agent = CodeActAgent(
        "actor",
        BubblewrapCommandLineCodeExecutor(mode="session", timeout=7),
        model_client=ReplayChatCompletionClient(["Hello."]),
        model_context=BufferedChatCompletionContext(5),
        **ARGUMENTS,
    )
    text = agent.dump_component().model_dump_json(exclude_none=True)
    twin = CodeActAgent.load_component(json.loads(text))

    assert twin.dump_component().model_dump_json(exclude_none=True) == text
    config = json.loads(text)["config"]
    objects = {*typed, "handoffs", "budget"}
    assert {name: config[name] for name in ARGUMENTS if name not in objects} == {
        name: value for name, value in ARGUMENTS.items() if name not in objects
    }
    factory = StructuredMessageFactory(input_model=Sum)
    assert config["structured_message_factory"] == factory.dump_component().model_dump(exclude_none=True)
    assert config["handoffs"] == [ARGUMENTS["handoffs"][0].model_dump()]
    assert config["budget"] == ARGUMENTS["budget"].model_dump(exclude_none=True)
    assert (config["code_executor"]["config"]["timeout"], config["model_context"]["config"]["buffer_size"]) == (7, 5)


def test_config_refuses_an_unknown_key(bubblewrap: None) -> None:
    executor = BubblewrapCommandLineCodeExecutor(mode="session")
    model = CodeActAgent("actor", executor, model_client=ReplayChatCompletionClient([])).dump_component()
    assert model.provider == "autogen_codeact.agents.CodeActAgent"
    model.config["max_stepps"] = 3
    with pytest.raises(ValidationError, match="max_stepps"):
        CodeActAgent.load_component(model)


async def test_autogens_executor_works_without_final_answer(executor: CodeExecutor) -> None:
    client = scripted(python("print(6 * 7)"), "42.")
    agent = CodeActAgent("actor", executor, model_client=client)
    result = await agent.run(task="6 * 7?")
    assert result.messages[-1].to_text() == "42."
    assert received_by(client)[1][-1] == from_agent("42\n")
    system = str(received_by(client)[0][0].content)
    assert (ANSWER_IN_WORDS in system, ANSWER_BY_CALL in system) == (True, False)
    assert (await agent.save_state())["journal"] is None
