"""Answers of a type: `output_content_type` as in AutoGen's `AssistantAgent`."""

import json
from typing import Any

import pytest
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.messages import StructuredMessage
from pydantic import BaseModel

from autogen_codeact.agents import Budget, CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.teams import load_component
from tests.agents.codeact import python
from tests.agents.support import plain, received_by, scripted, token_usage, without_ids


class Sum(BaseModel):
    total: int


GOOD = '{"total": 42}'


def answer(source: str = "coder", **fields: Any) -> dict[str, Any]:
    message = StructuredMessage[Sum](content=Sum(total=42), source=source, models_usage=token_usage(1), **fields)
    return plain(message)


async def test_values_of_final_answer_are_checked_and_may_be_json_text(session: SandboxCodeExecutor) -> None:
    wrong, right = python("final_answer('many')"), python("import json\nfinal_answer(json.dumps({'total': 42}))")
    agent = CodeActAgent(
        "actor",
        session,
        model_client=scripted(wrong, right),
        output_content_type=Sum,
    )
    result = await agent.run(task="Go.")
    metadata = {"steps": "2", "answered_by": "final_answer"}
    expected = answer("actor", metadata=metadata) | {"models_usage": None}
    assert without_ids(result.messages[-1:]) == [expected]
    assert "ValueError: the value: Input should be an object" in str(received_by(agent.model_client)[1][-1].content)  # type: ignore[arg-type]


async def test_closing_answer_has_the_type(session: SandboxCodeExecutor) -> None:
    client = scripted(python("x = 1"), GOOD, structured_output=True)
    agent = CodeActAgent("actor", session, model_client=client, output_content_type=Sum, budget=Budget(max_steps=1))
    result = await agent.run(task="Go.")
    assert without_ids(result.messages[-1:]) == [answer("actor", metadata={"steps": "1", "stopped": "max_steps"})]


def test_config_keeps_the_type(bubblewrap: None) -> None:
    executor = BubblewrapCommandLineCodeExecutor(mode="session")
    agent = CodeActAgent("coder", executor, model_client=scripted(), output_content_type=Sum)
    text = agent.dump_component().model_dump_json(exclude_none=True)
    twin: Any = ChatAgent.load_component(json.loads(text))  # type: ignore[attr-defined]
    assert twin.dump_component().model_dump_json(exclude_none=True) == text
    assert (
        "structured_message_factory"
        not in CodeActAgent("coder", executor, model_client=scripted()).dump_component().config
    )
    with pytest.raises(ValueError, match=r"config\.structured_message_factory: is not a field that an untrusted"):
        load_component(text)
