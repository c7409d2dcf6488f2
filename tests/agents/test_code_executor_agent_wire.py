"""The agent with AutoGen's OpenAI client over real HTTP: plain, streaming, with a schema and without, and broken."""

from functools import partial
from typing import Any

import pytest
from autogen_agentchat.messages import CodeExecutionEvent, CodeGenerationEvent, ModelClientStreamingChunkEvent
from autogen_core.code_executor import CodeExecutor

from autogen_codeact.agents import CodeExecutorAgent
from tests.agents.support import FAILS, WORKS, decision
from tests.openai_server import OpenAIServer, Reply, structured

Agent = partial(CodeExecutorAgent, describe_environment=False)
SYSTEM = {"role": "system", "content": CodeExecutorAgent.DEFAULT_SYSTEM_MESSAGE}
TASK = {"role": "user", "name": "user", "content": "Print 42."}


def from_agent(words: str) -> dict[str, Any]:
    return {"role": "user", "name": "coder", "content": words}


def model(words: str) -> dict[str, Any]:
    return {"role": "assistant", "content": words}


def received_by_server(server: OpenAIServer) -> list[list[dict[str, Any]]]:
    """What the server was sent, call by call, without the fields that say nothing."""
    return [
        [{key: value for key, value in message.items() if value is not None} for message in request["messages"]]
        for request in server.requests
    ]


def costs(messages: Any) -> list[int]:
    return [message.models_usage.completion_tokens for message in messages if message.models_usage is not None]


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
