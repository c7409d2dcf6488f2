"""The chain that calls to a model pass: each middleware is a model client in front of another one, and sees each call once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    RequestUsage,
)

from autogen_codeact.agents.extraction import split_thoughts
from autogen_codeact.agents.text import REPEATING_CHARS, end_of_news, repeated_part

LOOK_EVERY_CHARS = 200
CHARS_OF_A_TOKEN = 4

Items = AsyncGenerator[str | CreateResult, None]


@dataclass(frozen=True)
class ModelCall:
    """A call on its way through the chain; `ask` is `create` or `create_stream` of the client that comes next."""

    ask: Callable[..., Any]
    stream: bool
    messages: Sequence[LLMMessage]
    options: dict[str, Any]

    async def items(self) -> Items:
        """Make the call; yield the answer as it comes, the whole result last."""
        if not self.stream:
            yield await self.ask(self.messages, **self.options)
            return
        stream = self.ask(self.messages, **self.options)
        try:
            # Only at the end of the chain: all of it sees an answer that was stopped as a whole one.
            has_next = isinstance(getattr(self.ask, "__self__", None), ModelMiddleware)
            async with aclosing(stream if has_next else until_repetition(stream, self.messages)) as items:
                async for item in items:
                    yield item
        finally:
            if hasattr(stream, "aclose"):  # else it is an iterator written as a class
                await stream.aclose()


async def until_repetition(stream: AsyncIterator[str | CreateResult], messages: Sequence[LLMMessage]) -> Items:
    """Yield a streamed answer up to where it repeats itself without end; the result then says that it is cut off.

    The caller closes the stream, which cancels the request. The server then counts no tokens: those read are estimated.
    """
    pieces: list[str] = []
    tail, unread = "", 0
    async for item in stream:
        yield item
        if not isinstance(item, str):
            continue
        pieces.append(item)
        tail, unread = (tail + item)[-REPEATING_CHARS:], unread + len(item)
        if unread < LOOK_EVERY_CHARS:
            continue
        unread = 0
        if repeated_part(tail) is not None and end_of_news("".join(pieces)) is not None:
            # Thoughts come in the same stream; a block of code in them must not run.
            thought, text = split_thoughts("".join(pieces), cut_off=True)
            read = sum(len(str(message.content)) for message in messages) // CHARS_OF_A_TOKEN
            usage = RequestUsage(prompt_tokens=read, completion_tokens=len(pieces))
            yield CreateResult(finish_reason="length", content=text, usage=usage, cached=False, thought=thought or None)
            return


async def whole(items: Items) -> CreateResult:
    """Return the result at the end of an answer."""
    async with aclosing(items):
        async for item in items:
            result = item
    return result  # type: ignore[return-value] # an answer ends with it


def forwarded(part: str, name: str) -> Any:
    return property(lambda self: getattr(getattr(self, part), name))


class ModelMiddleware(ChatCompletionClient):
    """A model client in front of another one. Subclasses override `handle`; everything else is that of the other client."""

    component_type = "model"

    def __init__(self, client: ChatCompletionClient) -> None:
        self.client = client
        """The client that comes next."""

    def handle(self, call: ModelCall) -> Items:
        """Yield the answer to a call: pieces, if it is streamed, and the result last."""
        return call.items()

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:
        """Return the model's answer."""
        return await whole(self.handle(ModelCall(self.client.create, False, messages, options)))

    async def create_stream(self, messages: Sequence[LLMMessage], **options: Any) -> Items:
        """Yield the model's answer in pieces, and then as a whole."""
        async with aclosing(self.handle(ModelCall(self.client.create_stream, True, messages, options))) as items:
            async for item in items:
                yield item

    close = forwarded("client", "close")
    actual_usage = forwarded("client", "actual_usage")
    total_usage = forwarded("client", "total_usage")
    count_tokens = forwarded("client", "count_tokens")
    remaining_tokens = forwarded("client", "remaining_tokens")
    dump_component = forwarded("client", "dump_component")
    capabilities = forwarded("client", "capabilities")
    model_info = forwarded("client", "model_info")


class ModelTimeoutError(TimeoutError):
    """The model has sent nothing for too long."""


class DeadlineClient(ModelMiddleware):
    """Ends a call in which the server sends nothing. What failed is repeated by the vendor's own client (`max_retries`).

    Args:
        client: Is asked.
        timeout_s: How long the server may send nothing, in seconds: for a stream between two pieces, else for the whole answer.
    """

    def __init__(self, client: ChatCompletionClient, timeout_s: float) -> None:
        super().__init__(client)
        self._timeout_s = timeout_s

    async def handle(self, call: ModelCall) -> Items:
        """Yield the answer to a call."""
        async with aclosing(call.items()) as items:
            while True:
                try:
                    async with asyncio.timeout(self._timeout_s) as limit:
                        item = await anext(items, None)
                except TimeoutError as error:
                    if limit.expired():
                        raise ModelTimeoutError(f"the model sent nothing for {self._timeout_s:g} s") from error
                    raise
                if item is None:
                    return
                yield item


def innermost(client: Any) -> Any:
    """Return the client behind all middleware, or any other object unchanged."""
    while isinstance(client, ModelMiddleware):
        client = client.client
    return client
