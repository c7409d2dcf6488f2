"""Talking to a model client: whole or in chunks, always cancellable."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeVar, cast
from weakref import WeakSet

from autogen_agentchat.utils import remove_images
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, RequestUsage

T = TypeVar("T")

_REFUSED = frozenset({400, 415, 422, 501})
_NO_USAGE: WeakSet[ChatCompletionClient] = WeakSet()
"""Clients to stream from without asking for token counts: they give them unasked, or their server refused."""


async def awaited(call: Coroutine[Any, Any, T], cancellation_token: CancellationToken) -> T:
    """Await `call`, which ends when the token is cancelled, also where it does not look at the token itself.

    Raises:
        asyncio.CancelledError: The token or the surrounding task was cancelled, even if `call` swallowed that.
    """
    me = asyncio.current_task()
    cancels_before = me.cancelling() if me else 0
    task = asyncio.ensure_future(call)
    cancellation_token.link_future(task)
    value = await task
    # AutoGen's local executor turns a cancel into an exit code; going on would run what nobody waits for.
    if cancellation_token.is_cancelled() or (me and me.cancelling() > cancels_before):
        raise asyncio.CancelledError
    return value


async def converse(
    client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    cancellation_token: CancellationToken,
    *,
    stream: bool,
) -> AsyncGenerator[str | CreateResult, None]:
    """Yield the model's answer as it comes, the complete result last.

    Args:
        client: The model.
        messages: What it is told; images are taken out for a model that can't see.
        cancellation_token: Ends the call.
        stream: Ask for chunks; otherwise the result is all that is yielded.

    Raises:
        RuntimeError: The stream ended without a result, or the answer is not text.
    """
    messages = seen_by(client, messages)
    if not stream:
        yield _text_only(
            await awaited(client.create(messages, cancellation_token=cancellation_token), cancellation_token)
        )
        return
    result: CreateResult | None = None
    async with aclosing(_chunks(client, messages, cancellation_token)) as chunks:
        async for chunk in chunks:  # to its very end: some clients do their bookkeeping after the result
            if cancellation_token.is_cancelled():
                raise asyncio.CancelledError
            if isinstance(chunk, CreateResult):
                result = chunk
            else:
                yield chunk
    if result is None:
        raise RuntimeError("The model client's stream ended without a result; it must yield a CreateResult last.")
    yield _text_only(result)


async def _chunks(
    client: ChatCompletionClient, messages: list[LLMMessage], cancellation_token: CancellationToken
) -> AsyncGenerator[str | CreateResult, None]:
    """Stream, with token counts where they have to be asked for and the server does not refuse to be asked."""
    begun = False
    if client not in _NO_USAGE and "include_usage" in inspect.signature(client.create_stream).parameters:
        counted = cast(Any, client).create_stream(messages, cancellation_token=cancellation_token, include_usage=True)
        try:
            async with aclosing(counted):
                async for chunk in counted:
                    begun = True
                    yield chunk
        except Exception as error:
            if begun or not is_refusal(error):
                raise
        else:
            return
    async with aclosing(client.create_stream(messages, cancellation_token=cancellation_token)) as chunks:
        async for chunk in chunks:
            if not begun:
                begun = True
                _NO_USAGE.add(client)
            yield chunk


def is_refusal(error: Exception) -> bool:
    """Whether the server or its client said no to the form of a request, as opposed to failing at it."""
    return isinstance(error, (ValueError, NotImplementedError)) or getattr(error, "status_code", None) in _REFUSED


def seen_by(client: ChatCompletionClient, messages: Sequence[LLMMessage]) -> list[LLMMessage]:
    """Return the messages without what the model can't take in (images, for one without vision)."""
    if client.model_info.get("vision"):
        return list(messages)
    return remove_images(list(messages))


def total(*usages: RequestUsage) -> RequestUsage:
    """Add up token counts."""
    return RequestUsage(
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
    )


def _text_only(result: CreateResult) -> CreateResult:
    if not isinstance(result.content, str):
        names = ", ".join(call.name for call in result.content)
        raise RuntimeError(  # noqa: TRY004 (the model answered wrongly, no caller passed a wrong type)
            f"The model called functions ({names}) although it was offered none; text was expected."
        )
    return result
