"""The agent with AutoGen's OpenAI client over real HTTP: plain, streaming, with a schema and without, and broken."""

import asyncio
from functools import partial
from typing import Any

import pytest
from autogen_agentchat.messages import CodeExecutionEvent, CodeGenerationEvent, ModelClientStreamingChunkEvent
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeExecutor

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.agents.code_executor_agent import CARRY_ON
from autogen_codeact.agents.decision import QUESTION
from tests.agents.support import FAILED_WORDS, FAILS, WORKS, decision
from tests.openai_server import OpenAIServer, Reply, structured

Agent = partial(CodeExecutorAgent, describe_environment=False)
SYSTEM = {"role": "system", "content": CodeExecutorAgent.DEFAULT_SYSTEM_MESSAGE}
TASK = {"role": "user", "name": "user", "content": "Print 42."}


def from_agent(words: str) -> dict[str, Any]:
    return {"role": "user", "name": "coder", "content": words}


def model(words: str) -> dict[str, Any]:
    return {"role": "assistant", "content": words}


FAILURE = [SYSTEM, TASK, model(FAILS), from_agent(FAILED_WORDS)]
REPAIR = [*FAILURE, model("exit without 3"), from_agent(CARRY_ON)]
CONVERSATION = [
    [SYSTEM, TASK],
    [*FAILURE, from_agent(QUESTION)],
    REPAIR,
    [*REPAIR, model(WORKS), from_agent("42\n")],
]
SCRIPT = [
    Reply(FAILS, completion_tokens=10),
    Reply(decision(True), completion_tokens=20),
    Reply(WORKS, completion_tokens=30),
    Reply("It is 42.", completion_tokens=40),
]


def received_by_server(server: OpenAIServer) -> list[list[dict[str, Any]]]:
    """What the server was sent, call by call, without the fields that say nothing."""
    return [
        [{key: value for key, value in message.items() if value is not None} for message in request["messages"]]
        for request in server.requests
    ]


def costs(messages: Any) -> list[int]:
    return [message.models_usage.completion_tokens for message in messages if message.models_usage is not None]


@structured
@pytest.mark.parametrize("stream", [False, True])
async def test_generate_fail_decide_repair_reflect(executor: CodeExecutor, stream: bool) -> None:
    async with OpenAIServer([*SCRIPT]) as server:
        client = server.client()
        agent = Agent("coder", executor, model_client=client, max_retries_on_error=1, model_client_stream=stream)
        result = await agent.run(task="Print 42.")
        spent = client.total_usage().completion_tokens

    assert received_by_server(server) == CONVERSATION
    assert [bool(request.get("stream")) for request in server.requests] == [stream, False, stream, stream]
    assert [(r.get("response_format") or {}).get("type") for r in server.requests] == [None, "json_schema", None, None]
    assert costs(result.messages) == [10, 20, 30, 40]
    assert spent == 100
    assert result.messages[-1].to_text() == "It is 42."


@pytest.mark.parametrize("refuses", [{"json_schema"}, {"json_schema", "json_object"}])
async def test_server_without_response_formats_works(executor: CodeExecutor, refuses: set[str]) -> None:
    async with OpenAIServer([*SCRIPT], refuses=refuses) as server:
        agent = Agent("coder", executor, model_client=server.client(), max_retries_on_error=1)
        result = await agent.run(task="Print 42.")

    answered = [CONVERSATION[0], *[CONVERSATION[1]] * (len(refuses) + 1), *CONVERSATION[2:]]
    assert received_by_server(server) == answered
    assert costs(result.messages) == [10, 20, 30, 40]


async def test_decision_works_with_a_model_without_json_output(executor: CodeExecutor) -> None:
    async with OpenAIServer([*SCRIPT], refuses={"json_schema", "json_object", "text"}) as server:
        client = server.client(structured_output=False, json_output=False)
        agent = Agent("coder", executor, model_client=client, max_retries_on_error=1)
        await agent.run(task="Print 42.")

    assert received_by_server(server) == CONVERSATION


async def test_a_server_that_refuses_to_count_in_streams_is_asked_once(executor: CodeExecutor) -> None:
    async with OpenAIServer([WORKS, "It is 42."], refuses={"include_usage"}) as server:
        agent = Agent("coder", executor, model_client=server.client(), model_client_stream=True)
        result = await agent.run(task="Print 42.")

    assert [request.get("stream_options") for request in server.requests] == [{"include_usage": True}, None, None]
    assert costs(result.messages) == [0, 0]
    assert result.messages[-1].to_text() == "It is 42."


async def test_chunks_come_while_the_model_answers(executor: CodeExecutor) -> None:
    async with OpenAIServer([Reply("No code needed here.", thought="hm")]) as server:
        agent = Agent("coder", executor, model_client=server.client(), model_client_stream=True)
        items = [item async for item in agent.run_stream(task="Print 42.")]

    chunks = [item.content for item in items if isinstance(item, ModelClientStreamingChunkEvent)]
    assert chunks == ["<think>hm", "</think>", "No code need", "ed here."]


@pytest.mark.parametrize(
    "script",
    [
        [Reply(FAILS, break_after=2)],
        [FAILS, decision(False), Reply("I could not do it, sorry.", break_after=1)],
        [Reply("overloaded", status=503)],
    ],
    ids=["in the code", "in the reflection", "at once"],
)
@structured
async def test_failing_model_leaves_the_context_unchanged(executor: CodeExecutor, script: list[Reply | str]) -> None:
    async with OpenAIServer(script) as server:
        agent = Agent("coder", executor, model_client=server.client(), model_client_stream=True, max_retries_on_error=1)
        before = await agent.save_state()
        with pytest.raises(Exception, match=r"Connection error|overloaded"):
            await agent.run(task="Print 42.")
        assert await agent.save_state() == before

        server.script += [Reply(WORKS), Reply("It is 42.")]
        result = await agent.run(task="Print 42.")

    assert received_by_server(server)[-2:] == [[SYSTEM, TASK], [SYSTEM, TASK, model(WORKS), from_agent("42\n")]]
    assert [type(message) for message in result.messages[1:3]] == [CodeGenerationEvent, CodeExecutionEvent]


@pytest.mark.parametrize("stream", [False, True])
async def test_cancelling_reaches_a_model_that_does_not_answer(executor: CodeExecutor, stream: bool) -> None:
    async with OpenAIServer([Reply("so ", endless=True)]) as server:
        agent = Agent("coder", executor, model_client=server.client(), model_client_stream=stream)
        token = CancellationToken()
        running = asyncio.create_task(agent.run(task="Print 42.", cancellation_token=token))
        await server.requested(1)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        server.script += [Reply("Done.")]
        await agent.run(task="Print 42.")

    assert received_by_server(server)[1] == [SYSTEM, TASK]
