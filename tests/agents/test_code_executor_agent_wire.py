"""The agent with AutoGen's OpenAI client over real HTTP: plain, streaming, with a schema and without, and broken."""

from functools import partial
from typing import Any

from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core.code_executor import CodeExecutor

from autogen_codeact.agents import CodeExecutorAgent
from tests.agents.support import WORKS
from tests.openai_server import OpenAIServer, Reply

Agent = partial(CodeExecutorAgent, describe_environment=False)


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
