"""Answers of a type: `output_content_type` as in AutoGen's `AssistantAgent`, for both agents."""

import json
from functools import partial
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import CodeExecutionEvent, CodeGenerationEvent, StructuredMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import AssistantMessage, UserMessage
from pydantic import BaseModel

from autogen_codeact.agents import Budget, CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.code_executor_agent import CUT_OFF, MISFIT
from autogen_codeact.agents.conversation import SCHEMA
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.teams import load_component
from tests.agents.codeact import python
from tests.agents.support import FAILS, SYSTEM, WORKS, plain, received_by, scripted, token_usage, without_ids
from tests.openai_server import OpenAIServer, structured

Coder = partial(CodeExecutorAgent, "coder", describe_environment=False)


class Sum(BaseModel):
    total: int


GOOD = '{"total": 42}'
NO_JSON = MISFIT.format(problem="it holds no JSON")
EXPLAINED = SCHEMA.format(schema=json.dumps(Sum.model_json_schema()))
RAN = [UserMessage(content="Go.", source="user"), AssistantMessage(content=WORKS, source="coder")]
RAN_42 = [*RAN, UserMessage(content="42\n", source="coder")]


def from_agent(words: str) -> UserMessage:
    return UserMessage(content=words, source="coder")


def it(words: str) -> AssistantMessage:
    return AssistantMessage(content=words, source="coder")


def answer(source: str = "coder", **fields: Any) -> dict[str, Any]:
    message = StructuredMessage[Sum](content=Sum(total=42), source=source, models_usage=token_usage(1), **fields)
    return plain(message)


def forms(client: Any) -> list[Any]:
    return [call["json_output"] for call in client.create_calls]


async def test_reflection_is_asked_for_with_the_schema(executor: CodeExecutor) -> None:
    client = scripted(WORKS, GOOD, structured_output=True, json_output=True)
    agent = Coder(executor, model_client=client, output_content_type=Sum)

    result = await agent.run(task="Go.")

    assert without_ids(result.messages[-1:]) == [answer()]
    assert forms(client) == [None, Sum]
    assert received_by(client)[1] == [SYSTEM, *RAN_42]
    assert (await agent.model_context.get_messages())[-1] == it(GOOD)
    assert agent.produced_message_types == (StructuredMessage[Sum], TextMessage)


@pytest.mark.parametrize("json_output", [True, False])
async def test_model_without_structured_output_is_told_the_schema(executor: CodeExecutor, json_output: bool) -> None:
    client = scripted(WORKS, f"Here:\n```json\n{GOOD}\n```", json_output=json_output)
    agent = Coder(executor, model_client=client, output_content_type=Sum)
    result = await agent.run(task="Go.")
    assert without_ids(result.messages[-1:]) == [answer()]
    assert forms(client) == [None, True if json_output else None]
    assert received_by(client)[1] == [SYSTEM, *RAN_42, from_agent(EXPLAINED)]
    assert from_agent(EXPLAINED) not in await agent.model_context.get_messages()


async def test_answer_that_does_not_fit_is_sent_back_twice(executor: CodeExecutor) -> None:
    client = scripted(WORKS, "It is 42.", '{"total": "many"}', GOOD, structured_output=True)
    agent = Coder(executor, model_client=client, output_content_type=Sum)

    result = await agent.run(task="Go.")

    wrong = received_by(client)[3][-1].content
    assert isinstance(wrong, str)
    assert wrong.startswith("That answer does not fit: total: Input should be a valid integer")
    assert received_by(client)[3] == [
        SYSTEM,
        *RAN_42,
        it("It is 42."),
        from_agent(NO_JSON),
        it('{"total": "many"}'),
        from_agent(wrong),
    ]
    sent_back = [
        CodeGenerationEvent(
            retry_attempt=number,
            content=content,
            code_blocks=[],
            source="coder",
            models_usage=token_usage(1),
            metadata={"sent_back": why},
        )
        for number, (content, why) in enumerate([("It is 42.", NO_JSON), ('{"total": "many"}', wrong)])
    ]
    assert without_ids(result.messages[3:]) == [*without_ids(sent_back), answer()]


async def test_answer_that_never_fits_is_text_and_says_so(executor: CodeExecutor) -> None:
    client = scripted(WORKS, "a", "b", "c")
    agent = Coder(executor, model_client=client, output_content_type=Sum)
    result = await agent.run(task="Go.")
    expected = TextMessage(
        content="c", source="coder", models_usage=token_usage(1), metadata={"misfit": "it holds no JSON"}
    )
    assert without_ids(result.messages[-1:]) == [plain(expected)]


async def test_message_without_code_is_the_answer_if_it_fits(executor: CodeExecutor) -> None:
    client = scripted(GOOD, "42, I think.", GOOD, structured_output=True)
    agent = Coder(executor, model_client=client, output_content_type=Sum)
    assert without_ids((await agent.run(task="Go.")).messages[1:]) == [answer()]
    again = await agent.run(task="Again.")
    assert without_ids(again.messages[-1:]) == [answer()]
    assert forms(client) == [None, None, Sum]
    assert received_by(client)[2][-2:] == [it("42, I think."), from_agent(NO_JSON)]


async def test_cut_off_code_is_no_typed_answer(executor: CodeExecutor) -> None:
    cut_off = f"{GOOD}\n```python\nprint("
    client = scripted(cut_off, GOOD, structured_output=True)
    agent = Coder(executor, model_client=client, output_content_type=Sum)
    assert without_ids((await agent.run(task="Go.")).messages[1:]) == [answer()]
    assert forms(client) == [None, Sum]
    assert received_by(client)[1][-2:] == [it(cut_off), from_agent(CUT_OFF)]


async def test_messages_are_those_of_autogens_assistant_with_the_same_model(executor: CodeExecutor) -> None:
    ours, theirs = (scripted(GOOD, GOOD, structured_output=True) for _ in range(2))
    arguments: dict[str, Any] = {"output_content_type": Sum, "system_message": "Add."}
    agent = Coder(executor, model_client=ours, **arguments)
    assistant = AssistantAgent("coder", theirs, **arguments)
    for task in ("Go.", "Again."):
        results = [(await each.run(task=task)).messages for each in (agent, assistant)]
        assert without_ids(results[0]) == without_ids(results[1])
    assert received_by(ours) == received_by(theirs)
    # They are the same in a config, too.
    fields = [each.dump_component().config["structured_message_factory"] for each in (agent, assistant)]
    assert fields[0] == fields[1]


async def test_reflection_on_failed_code_is_typed(executor: CodeExecutor) -> None:
    client = scripted(FAILS, GOOD, structured_output=True)
    agent = Coder(executor, model_client=client, output_content_type=Sum)
    result = await agent.run(task="Go.")
    assert [type(message) for message in result.messages] == [
        TextMessage,
        CodeGenerationEvent,
        CodeExecutionEvent,
        StructuredMessage[Sum],
    ]


@structured
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("refuses", [set(), {"json_schema"}, {"json_schema", "json_object"}], ids=len)
async def test_server_that_refuses_a_form_is_asked_in_the_next_one(
    executor: CodeExecutor, refuses: set[str], stream: bool
) -> None:
    async with OpenAIServer([WORKS, GOOD, WORKS, GOOD], refuses=refuses) as server:
        agent = Coder(executor, model_client=server.client(), output_content_type=Sum, model_client_stream=stream)
        for _ in range(2):
            result = await agent.run(task="Go.")
            assert isinstance(result.messages[-1], StructuredMessage)
            assert result.messages[-1].content == Sum(total=42)
    asked = [(request.get("response_format") or {}).get("type") for request in server.requests]
    last = ["json_schema", "json_object", None][len(refuses)]
    # What was refused once is not tried again.
    assert asked[-2:] == [None, last]
    assert asked[-3] == last
    explained = [message["content"] == EXPLAINED for request in server.requests for message in request["messages"][-1:]]
    assert explained[-1] is bool(refuses)


@structured
async def test_structured_answer_that_the_client_rejects_is_asked_for_as_json(executor: CodeExecutor) -> None:
    """OpenAI's client validates such an answer itself, and raises."""
    async with OpenAIServer([WORKS, '{"total": "many"}', GOOD]) as server:
        agent = Coder(executor, model_client=server.client(), output_content_type=Sum)
        result = await agent.run(task="Go.")
    assert isinstance(result.messages[-1], StructuredMessage)
    assert [(request.get("response_format") or {}).get("type") for request in server.requests] == [
        None,
        "json_schema",
        "json_object",
    ]


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


async def test_closing_answer_is_asked_for_with_the_schema(session: SandboxCodeExecutor) -> None:
    client = scripted(python("x = 1"), GOOD, structured_output=True)
    agent = CodeActAgent("actor", session, model_client=client, output_content_type=Sum, budget=Budget(max_steps=1))
    result = await agent.run(task="Go.")
    assert without_ids(result.messages[-1:]) == [answer("actor", metadata={"steps": "1", "stopped": "max_steps"})]
    assert forms(client) == [None, Sum]


async def test_team_of_autogen_saves_and_loads_typed_answers(executor: CodeExecutor) -> None:
    def team(*answers: str) -> RoundRobinGroupChat:
        agent = Coder(executor, model_client=scripted(*answers, structured_output=True), output_content_type=Sum)
        return RoundRobinGroupChat([agent], termination_condition=MaxMessageTermination(2))

    first = team(GOOD)
    await first.run(task="Go.")
    state = json.loads(json.dumps(await first.save_state()))
    twin = team(GOOD)
    await twin.load_state(state)
    assert without_ids((await twin.run(task="Again.")).messages[-1:]) == [answer()]


@pytest.mark.parametrize("kind", [CodeActAgent, CodeExecutorAgent])
def test_config_keeps_the_type(kind: Any, bubblewrap: None) -> None:
    executor = BubblewrapCommandLineCodeExecutor(mode="session")
    agent = kind("coder", executor, model_client=scripted(), output_content_type=Sum)
    text = agent.dump_component().model_dump_json(exclude_none=True)
    twin: Any = ChatAgent.load_component(json.loads(text))  # type: ignore[attr-defined]
    assert twin.dump_component().model_dump_json(exclude_none=True) == text
    assert "structured_message_factory" not in kind("coder", executor, model_client=scripted()).dump_component().config
    with pytest.raises(ValueError, match=r"config\.structured_message_factory: is not a field that an untrusted"):
        load_component(text)


def test_typed_answer_needs_a_model(bubblewrap: None) -> None:
    with pytest.raises(ValueError, match="output_content_type needs a model_client"):
        CodeExecutorAgent("coder", BubblewrapCommandLineCodeExecutor(), output_content_type=Sum)
