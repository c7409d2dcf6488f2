"""Asks a model whether to retry after code has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
    JsonForm,
    UnusableAnswer,
    awaited,
    explain_unreadable_answer,
    is_refusal,
    json_forms,
    messages_for,
    sum_usage,
    unusable,
)
from autogen_codeact.agents.text import json_values, shorten, well_formed

__all__ = ["DecisionResult", "RetryDecider", "RetryDecision", "parse_decision"]

QUESTION = (
    "That code did not succeed. Is another attempt worth it? Answer with one JSON object and nothing else:\n"
    '{"reason": "<what went wrong, and if you retry, how you will change the code>", "retry": <true or false>}'
)
MAX_ANSWER_CHARS = 100_000
MAX_REASON_CHARS = 4_000
MAX_QUOTED_CHARS = 2_000
DEADLINE_S = 300.0


@dataclass(frozen=True)
class DecisionResult:
    """A decision and the tokens that it used.

    Args:
        decision: Retry or not, and why.
        usage: Tokens of all answers, as far as the client returned them.
    """

    decision: RetryDecision
    usage: RequestUsage


@dataclass(frozen=True)
class _Reply:
    usage: RequestUsage
    text: str = ""
    problem: str = ""
    decision: RetryDecision | None = None


class RetryDecider:
    """Requests retry decisions of a model, in the strictest output format that the model and its server accept.

    Args:
        source: Source of the question's message.
        deadline: Seconds for one answer; after that the decision is "no".
    """

    def __init__(self, source: str, *, deadline: float = DEADLINE_S) -> None:
        self._source = source
        self._deadline = deadline
        self._refused: set[JsonForm] = set()

    async def ask(
        self, client: ChatCompletionClient, messages: Sequence[LLMMessage], token: CancellationToken
    ) -> DecisionResult:
        """Decide whether the failure at the end of `messages` is worth another attempt.

        An answer that is not a decision is sent back once with what is wrong; after that it counts as "no".
        """
        request = [*messages, UserMessage(content=QUESTION, source=self._source)]
        forms = [form for form in json_forms(client, RetryDecision) if form not in self._refused]
        # The second time in a looser form: if a server ignores the schema, the client hides the answer from us.
        first = await self._answer_once(client, forms, request, token)
        if first.decision is not None:
            return DecisionResult(first.decision, first.usage)
        request += self._correction(first)
        second = await self._answer_once(client, forms[1:] or forms, request, token)
        decision = second.decision or _no(f"the model gave no usable decision ({second.problem})")
        return DecisionResult(decision, sum_usage(first.usage, second.usage))

    async def _answer_once(
        self, client: ChatCompletionClient, forms: list[JsonForm], messages: list[LLMMessage], token: CancellationToken
    ) -> _Reply:
        try:
            answer = await self._create(client, forms, messages, token)
        except TimeoutError:
            return _Reply(RequestUsage(0, 0), decision=_no(f"no decision came within {self._deadline:g} s"))
        except UnusableAnswer as answered:
            return _Reply(answered.usage, problem=str(answered))
        text = answer.content if isinstance(answer.content, str) else ""
        try:
            return _Reply(answer.usage, text, decision=parse_decision(text))
        except ValueError as error:
            return _Reply(answer.usage, text, problem=str(error))

    async def _create(
        self, client: ChatCompletionClient, forms: list[JsonForm], messages: list[LLMMessage], token: CancellationToken
    ) -> CreateResult:
        """Try each output format: a server may refuse one that the model's description claims."""
        *strict, plain = forms
        for form in strict:
            try:
                answer = await self._create_as(client, form, messages, token)
            except Exception as error:
                if not is_refusal(error):
                    raise
                continue
            self._refused.update(forms[: forms.index(form)])
            return answer
        answer = await self._create_as(client, plain, messages, token)
        self._refused.update(strict)
        return answer

    async def _create_as(
        self, client: ChatCompletionClient, form: JsonForm, messages: list[LLMMessage], token: CancellationToken
    ) -> CreateResult:
        # Never `json_output=False`: that sends a response_format too, which the same servers refuse.
        call = client.create(messages_for(client, messages), json_output=form, cancellation_token=token)
        try:
            with explain_unreadable_answer():
                async with asyncio.timeout(self._deadline):
                    return await awaited(call, token)
        except Exception as error:
            if (answer := unusable(error)) is not None:
                raise answer from error
            raise

    def _correction(self, reply: _Reply) -> list[LLMMessage]:
        quoted: list[LLMMessage] = []
        if reply.text.strip():
            quoted.append(AssistantMessage(content=shorten(reply.text, MAX_QUOTED_CHARS), source=self._source))
        complaint = f"That is not a decision: {reply.problem}. {QUESTION.partition('? ')[2]}"
        return [*quoted, UserMessage(content=complaint, source=self._source)]


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
