"""`ReliableClient` in front of AutoGen's OpenAI client and a real server: silence, broken streams, and errors that pass."""

import asyncio
import email.utils
import re
import time
from contextlib import aclosing

import openai
import pytest
from autogen_core import CancellationToken
from autogen_core.models import CreateResult, RequestUsage, UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents.model import stream_answer
from autogen_codeact.agents.model_calls import BEGINS_AGAIN, ModelMiddleware
from autogen_codeact.agents.reliable_client import ModelTimeoutError, ReliableClient
from tests.cases import case
from tests.openai_server import OpenAIServer, Reply

pytestmark = [
    # AutoGen's client warns about the invalid data of these tests.
    pytest.mark.filterwarnings("ignore:No text content or tool calls are available:UserWarning"),
]

QUESTION = [UserMessage(content="What is it all?", source="user")]
WORDS = "It is all a matter of taste."
PIECES = ["It is all a ", "matter of ta", "ste."]
LONG_S = 30.0
PASSES = {"retry-after": "0.01"}


class Line:
    """A client for a server, and what it tells the user."""

    def __init__(self, server, timeout_s=LONG_S, **options):
        self.told = []
        self.client = ReliableClient(server.client(max_retries=2), timeout_s, tell=self.told.append, **options)

    async def whole(self, **options):
        return await self.client.create(QUESTION, **options)

    async def pieces(self, **options):
        return [item async for item in self.client.create_stream(QUESTION, **options)]


def answered(items):
    """Return the pieces of a stream, and the content of its result."""
    assert isinstance(items[-1], CreateResult)
    return items[:-1], items[-1].content


# Silence


async def test_answer_that_is_never_whole_ends_at_the_limit():
    for reply in [Reply(silent=True), Reply(trickles=True), Reply("so", endless=True)]:
        with case(reply):
            async with OpenAIServer([reply]) as server:
                line = Line(server, 1.0)
                with pytest.raises(ModelTimeoutError, match=re.escape("the model gave no answer in 1 s")):
                    await line.whole()
                assert line.told == []


class Slow(ModelMiddleware):
    """A model that reads the question for some time."""

    least_timeout_s = LONG_S

    async def handle(self, call):
        await asyncio.sleep(0.3)
        async for item in call.items():
            yield item


async def test_a_client_that_needs_longer_gets_the_time():
    client = ReliableClient(Slow(ReplayChatCompletionClient(["one"])), 0.1)
    assert (await client.create(QUESTION)).content == "one"


async def test_stream_without_progress_ends_at_the_limit():
    for reply in [Reply(silent=True), Reply(trickles=True), Reply(WORDS, pause_after=1)]:
        with case(reply):
            async with OpenAIServer([reply]) as server:
                line = Line(server, 1.0)
                with pytest.raises(ModelTimeoutError, match=re.escape("the model sent nothing for 1 s")):
                    await line.pieces()
                assert line.told == []


async def test_stream_that_makes_progress_may_take_longer_than_the_limit():
    async with OpenAIServer([Reply(endless=True)]) as server:
        line = Line(server, 3.0)
        began = time.monotonic()
        async with aclosing(line.client.create_stream(QUESTION)) as items:
            async for item in items:
                assert item.startswith("and on ")
                if time.monotonic() - began > 3.2:
                    break


@pytest.mark.parametrize("stream", [False, True])
async def test_token_ends_a_silent_call_and_a_wait(stream):
    async with OpenAIServer([Reply("busy", status=429, headers={"retry-after": "20"}), Reply(silent=True)]) as server:
        for count in (1, 2):
            line, token = Line(server), CancellationToken()
            call = line.pieces if stream else line.whole
            work = asyncio.ensure_future(call(cancellation_token=token))
            await server.requested(count)
            if count == 1:
                async with asyncio.timeout(20):
                    while not line.told:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
            token.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work


# Errors that pass


async def test_busy_server_is_asked_again_and_the_user_is_told():
    for status, what in [
        (429, "is busy (HTTP 429)"),
        (500, "failed (HTTP 500)"),
        (503, "is busy (HTTP 503)"),
        (529, "is busy (HTTP 529)"),
    ]:
        for stream in [False, True]:
            with case(stream, status, what):
                async with OpenAIServer([Reply("later", status=status, headers=PASSES)] * 2 + [WORDS]) as server:
                    line = Line(server)
                    if stream:
                        assert answered(await line.pieces()) == (PIECES, WORDS)
                    else:
                        assert (await line.whole()).content == WORDS
                    assert line.told == [f"the model's server {what}: asking again in 0 s ({n} of 2)" for n in (1, 2)]
                    assert len(server.requests) == 3


async def test_error_that_does_not_pass_is_raised_after_the_last_attempt():
    async with OpenAIServer([Reply("later", status=500, headers=PASSES)] * 3) as server:
        line = Line(server)
        with pytest.raises(openai.InternalServerError, match="later"):
            await line.whole()
        assert (len(server.requests), len(line.told)) == (3, 2)


async def test_refusal_is_not_repeated():
    for status in [400, 401, 404, 501]:
        with case(status):
            async with OpenAIServer([Reply("no", status=status)]) as server:
                line = Line(server)
                with pytest.raises(openai.APIStatusError):
                    await line.whole()
                assert (len(server.requests), line.told) == (1, [])


async def test_server_that_says_not_to_repeat_is_not_asked_again():
    async with OpenAIServer([Reply("no", status=500, headers={"x-should-retry": "false"})]) as server:
        line = Line(server)
        with pytest.raises(openai.InternalServerError):
            await line.whole()
        assert (len(server.requests), line.told) == (1, [])


async def test_longer_wait_than_the_limit_is_told_and_not_made():
    for wait in [{"retry-after": "3600"}, {"retry-after": "inf"}, {"retry-after-ms": "3600000"}, "date"]:
        with case(wait):
            headers = (
                {"retry-after": email.utils.formatdate(time.time() + 3600, usegmt=True)} if wait == "date" else wait
            )
            async with OpenAIServer([Reply("later", status=429, headers=headers)]) as server:
                line = Line(server)
                with pytest.raises(openai.RateLimitError):
                    await line.whole()
                assert len(server.requests) == 1
                (told,) = line.told
                busy = r"the model's server is busy \(HTTP 429\), and wants (inf|3\d+(\.\d)?) s before the next request"
                assert re.fullmatch(f"{busy}: not waiting for so long", told)


async def test_server_that_says_no_time_is_asked_again_after_a_growing_one():
    async with OpenAIServer([Reply("later", status=429, headers={"retry-after": "soon"}), WORDS]) as server:
        line = Line(server)
        assert (await line.whole()).content == WORDS
        (told,) = line.told
        assert re.fullmatch(r"the model's server is busy \(HTTP 429\): asking again in 0\.[45] s \(1 of 2\)", told)


async def test_client_without_retries_is_not_given_any():
    async with OpenAIServer([Reply("later", status=500)]) as server:
        client = ReliableClient(server.client(), LONG_S)
        with pytest.raises(openai.InternalServerError):
            await client.create(QUESTION)
        assert len(server.requests) == 1


# Streams that break


async def test_stream_that_breaks_off_begins_again_once():
    async with OpenAIServer([Reply(WORDS, break_after=1), WORDS]) as server:
        line = Line(server)
        assert answered(await line.pieces()) == ([PIECES[0], BEGINS_AGAIN, *PIECES], WORDS)
        (told,) = line.told
        assert told.startswith("the model's answer broke off: asking again in 0.")
        assert [request["stream"] for request in server.requests] == [True, True]


@pytest.mark.parametrize("after", [0, 2])
async def test_stream_that_ends_without_a_reason_is_no_answer(after):
    """Neither an error nor a `finish_reason` comes: AutoGen's client gives what it has got as the answer."""
    async with OpenAIServer([Reply(WORDS, ends_after=after), WORDS]) as server:
        line = Line(server)
        again = [*PIECES[:after], BEGINS_AGAIN] if after else []
        assert answered(await line.pieces(include_usage=True)) == ([*again, WORDS], WORDS)
        assert line.told == [
            "the model's stream ended without saying that the answer is complete: asking again for the whole answer"
        ]
        assert [request.get("stream", False) for request in server.requests] == [True, False]


async def test_server_that_never_gives_a_reason_is_understood():
    async with OpenAIServer([Reply(WORDS, finish_reason="eos"), Reply(WORDS, finish_reason="eos")]) as server:
        items = [item async for item in _conversation(Line(server).client)]
        assert items[-1].content == WORDS


async def test_stream_that_ends_without_a_reason_is_an_error_without_retries():
    async with OpenAIServer([Reply(WORDS, ends_after=2)]) as server:
        with pytest.raises(RuntimeError, match="ended without saying that the answer is complete"):
            _ = [item async for item in _conversation(server.client())]


def _conversation(client):
    return stream_answer(client, QUESTION, CancellationToken(), stream=True)


# Transparency


async def test_wrapped_client_has_what_the_client_has():
    async with OpenAIServer([WORDS, WORDS]) as server:
        client = server.client(vision=True, max_retries=2)
        before = client.dump_component().model_dump()
        reliable = ReliableClient(client, LONG_S)
        assert reliable.model_info == client.model_info
        assert reliable.dump_component().model_dump() == before
        assert before["config"]["max_retries"] == 2
        assert (await reliable.create(QUESTION)).usage == RequestUsage(prompt_tokens=7, completion_tokens=3)
        items = [item async for item in _conversation(reliable)]
        assert items[-1].usage == RequestUsage(prompt_tokens=7, completion_tokens=3)
        assert reliable.total_usage() == RequestUsage(prompt_tokens=14, completion_tokens=6)


async def test_replay_client_is_a_client_like_others():
    client = ReliableClient(ReplayChatCompletionClient(["one", "two words"]), LONG_S)
    assert (await client.create(QUESTION)).content == "one"
    items = [item async for item in client.create_stream(QUESTION)]
    assert answered(items) == (["two ", "words"], "two words")
