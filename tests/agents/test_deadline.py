"""Calls over HTTP: a deadline for a server that sends nothing, and one that refuses to count."""

import asyncio
import time
from contextlib import aclosing
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import CreateResult, UserMessage

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.agents.model_calls import DeadlineClient, ModelTimeoutError
from tests.agents.support import WORKS
from tests.openai_server import OpenAIServer, Reply

QUESTION = [UserMessage(content="What is it all?", source="user")]
WORDS = "It is all a matter of taste."


async def ask(client: DeadlineClient, *, stream: bool, **options: Any) -> CreateResult:
    if not stream:
        return await client.create(QUESTION, **options)
    items = [item async for item in client.create_stream(QUESTION, **options)]
    assert isinstance(items[-1], CreateResult)
    return items[-1]


@pytest.mark.parametrize(
    ("stream", "reply"),
    [
        (False, Reply(silent=True)),
        (False, Reply(trickles=True)),
        (False, Reply("so", endless=True)),
        (True, Reply(silent=True)),
        (True, Reply(trickles=True)),
        (True, Reply(WORDS, pause_after=1)),
    ],
)
async def test_silence_ends_a_call_at_the_deadline(stream: bool, reply: Reply) -> None:
    async with OpenAIServer([reply]) as server:
        with pytest.raises(ModelTimeoutError, match=r"^the model sent nothing for 1 s$"):
            await ask(DeadlineClient(server.client(), 1.0), stream=stream)


async def test_a_stream_that_makes_progress_may_take_longer() -> None:
    async with OpenAIServer([Reply(endless=True)]) as server:
        client, began = DeadlineClient(server.client(), 3.0), time.monotonic()
        async with aclosing(client.create_stream(QUESTION)) as items:
            async for item in items:
                assert str(item).startswith("and on ")
                if time.monotonic() - began > 3.2:
                    break


@pytest.mark.parametrize("stream", [False, True])
async def test_the_vendors_client_repeats_what_failed(stream: bool) -> None:
    busy = Reply("busy", status=429, headers={"retry-after": "0.01"})
    async with OpenAIServer([busy, Reply(WORDS)]) as server:
        result = await ask(DeadlineClient(server.client(max_retries=2), 30.0), stream=stream)
    assert result.content == WORDS


@pytest.mark.parametrize("stream", [False, True])
async def test_a_token_ends_a_silent_call(stream: bool) -> None:
    async with OpenAIServer([Reply(silent=True)]) as server:
        client, token = DeadlineClient(server.client(), 30.0), CancellationToken()
        work = asyncio.ensure_future(ask(client, stream=stream, cancellation_token=token))
        await server.requested(1)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work


async def test_a_server_that_refuses_to_count_in_streams_is_asked_once(executor: CodeExecutor) -> None:
    async with OpenAIServer([WORKS, "It is 42."], refuses={"include_usage"}) as server:
        client = server.client()
        agent = CodeExecutorAgent("coder", executor, model_client=client, model_client_stream=True)
        result = await agent.run(task="Print 42.")
    asked = [request.get("stream_options") for request in server.requests]
    assert asked == [{"include_usage": True}, None, None]
    assert result.messages[-1].to_text() == "It is 42."
