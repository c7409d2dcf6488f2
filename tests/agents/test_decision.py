"""Retry decisions from models that can and can't do structured output, and from those that talk nonsense."""

from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.models import LLMMessage, UserMessage

from autogen_codeact.agents.decision import (
    MAX_REASON_CHARS,
    QUESTION,
    RetryDecider,
    RetryDecision,
    parse_decision,
)
from tests.agents.support import decision, scripted
from tests.openai_server import OpenAIServer, Reply

FAILURE: list[LLMMessage] = [
    UserMessage(content="The script ran, then exited with an error (POSIX exit code: 3)", source="coder")
]


async def failed(*question: LLMMessage) -> list[LLMMessage]:
    """The conversation so far."""
    return [*FAILURE, *question]


YES = RetryDecision(reason="exit without 3", retry=True)


@pytest.mark.parametrize(
    "answer",
    [
        '{"retry": true, "reason": "r"}',
        '{"retry": "yes", "reason": "r", "confidence": 0.9}',
        'Sure!\n```json\n{"reason": "r", "retry": true}\n```\nShall I?',
        '<think>{"retry": false, "reason": "draft"} no, wait {}</think>{"retry": true, "reason": "r"}',
        'It fails because of dict {x}. {"retry": true, "reason": "r"}',
        '{"result": {"a": 1}} {"retry": true, "reason": "r"}',
    ],
)
def test_a_decision_is_found_in_what_models_write_around_it(answer: str) -> None:
    assert parse_decision(answer) == RetryDecision(reason="r", retry=True)


def test_a_long_reason_is_cut() -> None:
    parsed = parse_decision(decision(True, "r" * 50_000))
    assert parsed.reason == "r" * (MAX_REASON_CHARS - 1) + "…"


@pytest.mark.parametrize(
    ("structured_output", "json_output", "form"),
    [
        (True, True, RetryDecision),
        (True, False, RetryDecision),
        (False, True, True),
        (False, False, None),
    ],
)
async def test_strictest_form_that_the_model_supports_is_requested(
    structured_output: bool, json_output: bool, form: Any
) -> None:
    client = scripted(decision(True), structured_output=structured_output, json_output=json_output)
    token = CancellationToken()

    decided = await RetryDecider("coder").ask(client, failed, token)

    assert decided.decision == YES
    (call,) = client.create_calls
    assert call["json_output"] is form
    assert call["cancellation_token"] is token
    assert call["messages"] == [*FAILURE, UserMessage(content=QUESTION, source="coder")]


async def test_an_empty_answer_is_not_quoted_back() -> None:
    client = scripted("", decision(True))
    await RetryDecider("coder").ask(client, failed, CancellationToken())
    first, second = (call["messages"] for call in client.create_calls)
    assert second[:-1] == first
    assert second[-1].content.startswith("That is not a decision: the answer is empty.")


# Over the wire, with AutoGen's own client


def forms(server: OpenAIServer) -> list[str | None]:
    return [(request.get("response_format") or {}).get("type") for request in server.requests]


async def test_request_form_that_the_server_refuses_is_not_tried_again() -> None:
    async with OpenAIServer([decision(True), decision(False, "r")], refuses={"json_schema"}) as server:
        asker = RetryDecider("coder")
        first = await asker.ask(server.client(), failed, CancellationToken())
        second = await asker.ask(server.client(), failed, CancellationToken())

    assert (first.decision, second.decision) == (YES, RetryDecision(reason="r", retry=False))
    assert forms(server) == ["json_schema", None, None]


async def test_truncated_answer_counts_as_malformed() -> None:
    cut = Reply('{"reason": "and so on', finish_reason="length", completion_tokens=100)
    async with OpenAIServer([cut, "still nothing"]) as server:
        decided = await RetryDecider("coder").ask(server.client(), failed, CancellationToken())

    assert decided.decision.retry is False
    assert forms(server) == ["json_schema", None]
