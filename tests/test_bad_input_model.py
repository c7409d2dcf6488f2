"""Bad answers of the model's server: refusals, failures, invalid data, timeouts, endless answers; a good run follows."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
import pytest_asyncio

from autogen_codeact.agents.code_executor_agent import CARRY_ON
from autogen_codeact.agents.decision import QUESTION
from autogen_codeact.executors import DockerCommandLineCodeExecutor
from tests.bench import ALONE, IN_A_TEAM, PAIR, WITH_MODEL, Bench, working
from tests.cases import case
from tests.openai_server import OpenAIServer, Reply, structured
from tests.wire import SYSTEM, by, decision, failure_message, fenced, formats, model, received_messages, texts_of

pytestmark = [
    pytest.mark.usefixtures("docker_engine"),
    structured,
    # AutoGen's client warns about the invalid data of these tests.
    pytest.mark.filterwarnings("ignore:No text content or tool calls are available:UserWarning"),
    pytest.mark.filterwarnings("ignore:Resolved model mismatch:UserWarning"),
]

FAILS = fenced("raise SystemExit('no')\n")
FAILURE = [SYSTEM, by("user", "Print 42."), model(FAILS), by("coder", failure_message("no\n"))]
NO_MORE = "I could not do it, sorry."
MEGABYTE = 1024 * 1024


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(docker_engine: str) -> AsyncIterator[DockerCommandLineCodeExecutor]:
    """One sandbox for all tests of this file: none of them may break it."""
    async with DockerCommandLineCodeExecutor(timeout=30) as executor:
        yield executor


# Before the first code, in the decision, and after the code
STAGES: dict[str, list[str]] = {
    "at once": [],
    "in the decision": [FAILS],
    "in the repair": [FAILS, decision(True)],
    "in the reflection": [FAILS, decision(False)],
}


def with_kinds(*rows: Any) -> Iterator[tuple[Any, ...]]:
    """Each row at each stage, alone and in a team in turn: `stage, kind, *row`."""
    for number, (row, stage) in enumerate(itertools.product(rows, STAGES)):
        yield stage, WITH_MODEL[(number + number // len(STAGES)) % 2], *row


async def test_refusing_server_is_a_clear_error(executor: Any) -> None:
    for stage, kind, status, expected in with_kinds(
        (401, openai.AuthenticationError), (429, openai.RateLimitError), (500, openai.InternalServerError)
    ):
        with case(stage, kind, status):
            async with working(kind, executor) as bench:
                with pytest.raises(expected, match=rf"{status} - says the bench.server"):
                    await bench.run(*STAGES[stage], Reply("says the bench.server", status=status))
                assert len(bench.server.requests) == len(STAGES[stage]) + 1


async def test_failing_server_of_a_coder_is_a_clear_error(executor: Any) -> None:
    for stage, reply, expected in (
        ([], Reply("says the server", status=401), openai.AuthenticationError),
        ([FAILS], Reply("says the server", status=500), openai.InternalServerError),
        ([FAILS], Reply("It is all a matter of", break_after=1), openai.APIConnectionError),
    ):
        with case(stage, reply):
            async with working(PAIR, executor, stream=True) as bench:
                with pytest.raises(expected):
                    await bench.run(*stage, reply)


def event(**more: Any) -> str:
    envelope = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
    return f"data: {json.dumps({**envelope, **more})}\n\n"


BEGUN = event(choices=[{"index": 0, "delta": {"content": "It is all"}, "finish_reason": None}])


@pytest.mark.parametrize(
    ("reply", "expected", "words"),
    [
        (Reply("It is all a matter of", break_after=1), openai.APIConnectionError, "Connection error"),
        (Reply("It is all a matter of", break_after=0), openai.APIConnectionError, "Connection error"),
        (Reply(body=BEGUN + event(error={"message": "overloaded"})), openai.APIError, "overloaded"),
        (Reply(body=BEGUN + "data: {oops\n\n"), RuntimeError, "can't read.*log"),
        (Reply(body="data: [DONE]\n\n"), RuntimeError, "without an answer"),
        (Reply(body="<html>Wrong address.</html>"), RuntimeError, "without an answer"),
        (Reply(body=""), RuntimeError, "without an answer"),
    ],
    ids=[
        "hangs up",
        "hangs up at once",
        "sends an error",
        "sends garbage",
        "says nothing",
        "a web page",
        "an empty body",
    ],
)
async def test_broken_stream_is_a_clear_error(
    executor: Any, reply: Reply, expected: type[Exception], words: str
) -> None:
    for stage, kind in (("at once", ALONE), ("in the repair", IN_A_TEAM), ("in the reflection", ALONE)):
        with case(stage, kind):
            async with working(kind, executor, stream=True) as bench:
                with pytest.raises(expected, match=words):
                    await bench.run(*STAGES[stage], reply)
                assert await bench.agent.model_context.get_messages() == []


@pytest.mark.parametrize("body", ["<html>Wrong address.</html>", "", "{}", '{"id": "1", "choices": []}', "[1]"])
async def test_answer_in_another_format_is_a_clear_error(executor: Any, body: str) -> None:
    for stage, kind in with_kinds(()):
        with case(stage, kind):
            async with working(kind, executor) as bench:
                with pytest.raises(RuntimeError, match="can't read; check the address and the server's log") as caught:
                    await bench.run(*STAGES[stage], Reply(body=body))
                assert caught.value.__cause__ is not None


async def test_silent_server_ends_at_the_clients_timeout(executor: Any) -> None:
    async def check(stage: str, kind: str, stream: bool) -> None:
        with case(stage, kind, stream):
            async with OpenAIServer([]) as server:
                bench = Bench(kind, server, executor, stream=stream, client=server.client(timeout=2))
                with pytest.raises(openai.APITimeoutError):
                    await bench.run(*STAGES[stage], Reply(silent=True))
                await bench.works()

    await asyncio.gather(*(check(*each) for each in with_kinds((False,), (True,))))


# Decisions


NO_JSON = "it holds no JSON object"


@pytest.mark.parametrize(
    ("answer", "problem", "structured_output"),
    [
        ("Yes, certainly!", NO_JSON, True),
        ("Yes, certainly!", NO_JSON, False),
        ("", "the answer is empty", True),
        ("null", NO_JSON, False),
        ('["retry"]', NO_JSON, True),
        ('{"reason": 1}', "reason: Input should be a valid string; retry: Field required", True),
        ('{"retry": true, "reason": "cut of', NO_JSON, False),
        ("\x00\x01\x02", NO_JSON, False),
        ('{"a":' * 20_000, NO_JSON, True),
        ("[" * 50_000 + '{"retry"', NO_JSON, False),
        ("{" * (3 * MEGABYTE), "the answer is 3145728 characters long", True),
        (decision(True, "a" * 3 * MEGABYTE), "the answer is 3145757 characters long", False),
    ],
    ids=lambda value: str(value)[:12],
)
async def test_malformed_decision_is_requested_again_and_then_counts_as_no(
    executor: Any, answer: str, problem: str, structured_output: bool
) -> None:
    async with OpenAIServer([]) as server:
        client = server.client(structured_output=structured_output, json_output=structured_output)
        bench = Bench(WITH_MODEL[0], server, executor, client=client)
        result = await bench.run(FAILS, answer, answer, NO_MORE)

        asked_again = received_messages(server)[2]
        assert asked_again[:5] == [*FAILURE, by("coder", QUESTION)]
        assert asked_again[-1]["content"].startswith("That is not a decision: ")
        assert sum(len(message["content"]) for message in asked_again[5:]) < 5_000
        assert received_messages(server)[3] == FAILURE
        assert formats(server) == [None, *(["json_schema", "json_object"] if structured_output else [None] * 2), None]
        verdict = f"Not trying again: the model did not say whether to repair the code ({problem})"
        assert texts_of(result.messages)[3:] == [("coder", verdict), ("coder", NO_MORE)]
        await bench.works()


@pytest.mark.parametrize("kind", WITH_MODEL)
async def test_decision_that_is_valid_the_second_time_counts(executor: Any, kind: str) -> None:
    repair = fenced("print(6 * 7)\n")
    async with working(kind, executor) as bench:
        await bench.run(FAILS, "Yes!", decision(True, "exit \ud83d\ude00 \ud83d"), repair, "It is 42.")
        plan = [*FAILURE, model("exit \U0001f600 \ufffd"), by("coder", CARRY_ON)]
        assert received_messages(bench.server)[3:] == [plan, [*plan, model(repair), by("coder", "42\n")]]


@pytest.mark.parametrize("kind", WITH_MODEL)
@pytest.mark.parametrize("reply", [Reply(silent=True), Reply("so ", endless=True)], ids=["silent", "endless"])
async def test_endless_decision_counts_as_no(executor: Any, kind: str, reply: Reply) -> None:
    async with working(kind, executor) as bench:
        bench.agent._decider._deadline = 0.5
        result = await bench.run(FAILS, reply, NO_MORE)
        assert received_messages(bench.server) == [FAILURE[:2], [*FAILURE, by("coder", QUESTION)], FAILURE]
        assert texts_of(result.messages)[3:] == [
            ("coder", "Not trying again: no decision came within 0.5 s"),
            ("coder", NO_MORE),
        ]
