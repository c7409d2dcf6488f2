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
    awaited,
    explain_unreadable_answer,
    is_refusal,
    messages_for,
    sum_usage,
)
from autogen_codeact.agents.text import json_values, shorten, well_formed

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


class UnusableAnswer(Exception):
    """The client received an answer in JSON and raised instead of returning it."""

    def __init__(self, problem: str, usage: RequestUsage) -> None:
        super().__init__(problem)
        self.usage = usage


def unusable(error: Exception) -> UnusableAnswer | None:
    """Return what a client's exception says of an answer in JSON; None if it is about something else."""
    if isinstance(error, ValidationError):  # OpenAI's client validates a structured answer itself
        return UnusableAnswer("it does not fit the schema", RequestUsage(0, 0))
    # By name, because importing openai costs half a second and other clients don't need it.
    if type(error).__name__ in {"LengthFinishReasonError", "ContentFilterFinishReasonError"}:
        used = getattr(getattr(error, "completion", None), "usage", None)
        return UnusableAnswer(
            "it was cut off by a limit",
            RequestUsage(getattr(used, "prompt_tokens", 0), getattr(used, "completion_tokens", 0)),
        )
    return None


class RetryDecider:
    """Requests retry decisions of a model, in the strictest output format that the model and its server accept."""

    def __init__(self, source: str, *, deadline: float = DEADLINE_S) -> None:
        self._source = source
        self._deadline = deadline
        self._in_words = False

    async def ask(self, client: ChatCompletionClient, conversation: Ask, token: CancellationToken) -> DecisionResult:
        """Decide whether the failure at the end of a conversation is worth another attempt.

        An answer that is not a decision is sent back once with what is wrong; after that it counts as "no".
        """
        question: list[LLMMessage] = [UserMessage(content=QUESTION, source=self._source)]
        spent, problem = RequestUsage(0, 0), ""
        for attempt in range(2):
            try:
                # The second time in a looser form: if a server ignores the schema, the client hides the answer from us.
                answer = await self._create(client, await conversation(*question), token, in_words=attempt > 0)
            except TimeoutError:
                return DecisionResult(_no(f"no decision came within {self._deadline:g} s"), spent)
            except UnusableAnswer as unread:
                usage, text, problem = unread.usage, "", str(unread)
            else:
                usage, text = answer.usage, str(answer.content)
                try:
                    return DecisionResult(parse_decision(text), sum_usage(spent, usage))
                except ValueError as error:
                    problem = str(error)
            spent = sum_usage(spent, usage)
            if text.strip():
                question.append(AssistantMessage(content=shorten(text, MAX_QUOTED_CHARS), source=self._source))
            complaint = f"That is not a decision: {problem}. {QUESTION.partition('? ')[2]}"
            question.append(UserMessage(content=complaint, source=self._source))
        return DecisionResult(_no(f"the model did not say whether to repair the code ({problem})"), spent)

    async def _create(
        self, client: ChatCompletionClient, messages: list[LLMMessage], token: CancellationToken, *, in_words: bool
    ) -> CreateResult:
        """Ask in the strictest form that the model's description promises, or in words, if the server refuses that."""
        strict: type[RetryDecision] | bool | None = None
        if not (in_words or self._in_words):
            info = client.model_info
            strict = RetryDecision if info.get("structured_output") else info.get("json_output") or None
        try:
            return await self._call(client, messages, token, strict)
        except Exception as error:
            if strict is None or not is_refusal(error):
                raise
        self._in_words = True
        return await self._call(client, messages, token, None)

    async def _call(
        self,
        client: ChatCompletionClient,
        messages: list[LLMMessage],
        token: CancellationToken,
        form: type[RetryDecision] | bool | None,
    ) -> CreateResult:
        # Never `json_output=False`: that sends a response_format too, which the same servers refuse.
        call = client.create(messages_for(client, messages), json_output=form, cancellation_token=token)
        try:
            with explain_unreadable_answer():
                async with asyncio.timeout(self._deadline):
                    return await awaited(call, token)
        except Exception as error:
            if (unread := unusable(error)) is not None:
                raise unread from error
            raise


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
