"""Calls to a model client: whole or in chunks, always cancellable."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any
from weakref import WeakSet

from autogen_agentchat.utils import remove_images
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, RequestUsage

from autogen_codeact.agents.model_calls import ModelMiddleware, innermost
from autogen_codeact.agents.text import REPEATING_CHARS, end_of_news, well_formed
from autogen_codeact.executors.tools.adapters import run_cancellable

_REFUSED = frozenset({400, 415, 422, 501})
_UNREADABLE_ANSWER = (AttributeError, LookupError, TypeError, json.JSONDecodeError)
"""What clients raise for a web page, an empty body or JSON without required fields."""

_NO_USAGE: WeakSet[ChatCompletionClient] = WeakSet()
"""Clients that send token counts without a request, or whose server refused such a request."""


async def cancel_and_wait(task: asyncio.Future[Any]) -> None:
    """Cancel a task that has not ended, and wait for its end. What it raised is dropped."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # else asyncio reports it as never retrieved


async def stream_answer(
    client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    cancellation_token: CancellationToken,
    *,
    stream: bool,
) -> AsyncGenerator[str | CreateResult, None]:
    """Yield the model's answer as it comes, the complete result last."""
    # Never `json_output=False`: that sends a response_format too, which servers without JSON mode refuse.
    more: dict[str, Any] = {"cancellation_token": cancellation_token}
    with explain_unreadable_answer():
        sent = messages_for(client, messages)
        if not stream:
            yield _text_only(await run_cancellable(client.create(sent, **more), cancellation_token))
            return
        async with aclosing(_streamed(client, sent, more)) as answer:
            async for item in answer:
                yield item


async def _streamed(
    client: ChatCompletionClient, messages: list[LLMMessage], more: dict[str, Any]
) -> AsyncGenerator[str | CreateResult, None]:
    cancellation_token: CancellationToken = more["cancellation_token"]
    result: CreateResult | None = None
    # A middleware stops an answer that repeats itself.
    asked = client if isinstance(client, ModelMiddleware) else ModelMiddleware(client)
    async with aclosing(_chunks(asked, messages, more)) as chunks:
        async for chunk in chunks:  # to the end: some clients do their bookkeeping after the result
            if cancellation_token.is_cancelled():
                raise asyncio.CancelledError
            if isinstance(chunk, CreateResult):
                result = chunk
            elif chunk:
                yield well_formed(chunk)
    if result is None:
        raise RuntimeError("The model client's stream ended without a result; it must yield a CreateResult last.")
    if not result.content and not result.thought and result.finish_reason == "unknown":
        raise RuntimeError("The model's server ended its stream without an answer; check its address and its log.")
    if result.finish_reason == "unknown" and not result.cached:
        raise RuntimeError(
            "The model's stream ended without saying that the answer is complete (no finish_reason): the connection broke, or "
            "the server never says so. In the second case request whole answers, with model_client_stream=False."
        )
    yield _text_only(result)


async def _chunks(
    client: ModelMiddleware, messages: list[LLMMessage], more: dict[str, Any]
) -> AsyncGenerator[str | CreateResult, None]:
    """Stream the answer, with token counts for clients that must request them, unless the server refuses that."""
    begun, model = False, innermost(client)
    if model not in _NO_USAGE and "include_usage" in inspect.signature(model.create_stream).parameters:
        try:
            async with aclosing(client.create_stream(messages, include_usage=True, **more)) as counted:
                async for chunk in counted:
                    begun = True
                    yield chunk
        except Exception as error:
            if begun or not is_refusal(error):
                raise
        else:
            return
    async with aclosing(client.create_stream(messages, **more)) as chunks:
        async for chunk in chunks:
            if not begun:
                begun = True
                _NO_USAGE.add(model)
            yield chunk


class UnofferedCall(RuntimeError):
    """The model called functions although none were offered."""

    def __init__(self, names: str, result: CreateResult) -> None:
        super().__init__(f"The model called functions ({names}) although none were offered; text was expected.")
        self.names = names
        self.result = result


@contextmanager
def explain_unreadable_answer() -> Iterator[None]:
    """Replace the exception of a client that can't parse its server's answer by one that explains it."""
    try:
        yield
    except _UNREADABLE_ANSWER as error:
        raise RuntimeError(
            "The model's server sent an answer that its client can't read; check the address and the server's log. "
            f"The client said: {type(error).__name__}: {error}"
        ) from error


def is_refusal(error: Exception) -> bool:
    """Return whether the server or its client refused the format of a request, and did not just fail."""
    if isinstance(error, _UNREADABLE_ANSWER):
        return False
    return isinstance(error, (ValueError, NotImplementedError)) or getattr(error, "status_code", None) in _REFUSED


def messages_for(client: ChatCompletionClient, messages: Sequence[LLMMessage]) -> list[LLMMessage]:
    """Return the messages without lone surrogates and, for a model without vision, without images."""
    seen = list(messages) if client.model_info.get("vision") else remove_images(list(messages))
    plain = [isinstance(message.content, str) and message.content.isascii() for message in seen]
    return [message if fits else _sendable(message) for message, fits in zip(seen, plain, strict=True)]


def _sendable(message: LLMMessage) -> LLMMessage:
    content: Any = message.content
    if isinstance(content, str):
        fit: Any = well_formed(content)
    else:
        fit = [well_formed(part) if isinstance(part, str) else part for part in content]
    return message if fit == content else message.model_copy(update={"content": fit})


def sum_usage(*usages: RequestUsage) -> RequestUsage:
    """Add up token counts."""
    return RequestUsage(
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
    )


def _text_only(result: CreateResult) -> CreateResult:
    if not isinstance(result.content, str):
        names = ", ".join(call.name for call in result.content)
        raise UnofferedCall(names, result)
    content, thought = result.content, result.thought
    if len(content) >= REPEATING_CHARS and (end := end_of_news(content)) is not None:
        content = content[:end]
        result = result.model_copy(update={"content": content, "finish_reason": "length"})
    if content.isascii() and (thought or "").isascii():
        return result
    thought = None if thought is None else well_formed(thought)
    return result.model_copy(update={"content": well_formed(content), "thought": thought})


def model_name(client: ChatCompletionClient) -> str:
    """Return the name of a model, or of its client's class."""
    client = innermost(client)
    arguments = getattr(client, "_create_args", None)
    name = arguments.get("model") if isinstance(arguments, dict) else None
    return name if isinstance(name, str) else type(client).__name__
