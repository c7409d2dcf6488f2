"""Asks a model whether to retry after code has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from autogen_agentchat.agents._code_executor_agent import RetryDecision  # exported nowhere else
from autogen_core import CancellationToken
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    RequestUsage,
    UserMessage,
)
from pydantic import ValidationError

from autogen_codeact.agents.model import (
    explain_unreadable_answer,
    is_refusal,
    messages_for,
    sum_usage,
)
from autogen_codeact.agents.text import json_values, shorten, well_formed
from autogen_codeact.executors.tools.adapters import run_cancellable

__all__ = ["DecisionResult", "RetryDecider", "RetryDecision", "parse_decision"]

QUESTION = (
    "That code did not succeed. Is another attempt worth it? Answer with one JSON object and nothing else:\n"
    '{"reason": "<what went wrong, and if you retry, how you will change the code>", "retry": <true or false>}'
)
Ask = Callable[..., Awaitable[list[LLMMessage]]]
"""Returns a request: the conversation, and the question that it gets as messages."""
MAX_ANSWER_CHARS = 100_000
MAX_REASON_CHARS = 4_000
MAX_QUOTED_CHARS = 2_000
DEADLINE_S = 300.0


@dataclass(frozen=True)
class DecisionResult:
    """A decision, and the tokens of all answers, as far as the client returned them."""

    decision: RetryDecision
    usage: RequestUsage


class RetryDecider:
    """Requests retry decisions of a model, first in the strictest output format that the model's description promises."""

    def __init__(self, source: str, *, deadline: float = DEADLINE_S) -> None:
        self._source = source
        self._deadline = deadline
        self._in_words = False
        """Whether the server refuses that format."""

    async def ask(self, client: ChatCompletionClient, conversation: Ask, token: CancellationToken) -> DecisionResult:
        """Decide whether the failure at the end of a conversation is worth another attempt.

        An answer that is not a decision is sent back once with what is wrong; after that it counts as "no".
        """
        question: list[LLMMessage] = [UserMessage(content=QUESTION, source=self._source)]
        spent, problem = RequestUsage(0, 0), ""
        # The second time in words: if a server ignores the format, the client hides the answer from us.
        for in_words in (self._in_words, True):
            call = self._create(client, await conversation(*question), token, in_words=in_words)
            try:
                async with asyncio.timeout(self._deadline):
                    answer = await run_cancellable(call, token)
            except TimeoutError:
                return DecisionResult(_no(f"no decision came within {self._deadline:g} s"), spent)
            except Exception as error:
                if in_words:
                    raise
                self._in_words = is_refusal(error)
                continue
            else:
                spent = sum_usage(spent, answer.usage)
                text = str(answer.content)
                try:
                    return DecisionResult(parse_decision(text), spent)
                except ValueError as error:
                    problem = str(error)
                if text.strip():
                    question.append(AssistantMessage(content=shorten(text, MAX_QUOTED_CHARS), source=self._source))
            complaint = f"That is not a decision: {problem}. {QUESTION.partition('? ')[2]}"
            question.append(UserMessage(content=complaint, source=self._source))
        return DecisionResult(_no(f"the model did not say whether to repair the code ({problem})"), spent)

    async def _create(
        self, client: ChatCompletionClient, messages: list[LLMMessage], token: CancellationToken, *, in_words: bool
    ) -> CreateResult:
        strict = RetryDecision if client.model_info.get("structured_output") else client.model_info.get("json_output")
        # Never `json_output=False`: that sends a response_format too, which the same servers refuse.
        form = None if in_words else strict or None
        with explain_unreadable_answer():
            return await client.create(messages_for(client, messages), json_output=form, cancellation_token=token)


def parse_decision(text: str) -> RetryDecision:
    """Parse the decision in a model's answer, which may contain prose, fences or thoughts around it."""
    if not text.strip():
        raise ValueError("the answer is empty")
    if len(text) > MAX_ANSWER_CHARS:
        raise ValueError(f"the answer is {len(text)} characters long")
    found, problem = None, "it holds no JSON object"
    for _, candidate in json_values(text, "{"):
        try:
            found = RetryDecision.model_validate(candidate)
        except ValidationError as error:
            problem = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
    if found is None:
        raise ValueError(shorten(problem, MAX_QUOTED_CHARS))
    return RetryDecision(reason=shorten(well_formed(found.reason), MAX_REASON_CHARS), retry=found.retry)


def _no(reason: str) -> RetryDecision:
    return RetryDecision(reason=reason, retry=False)
