"""A model client that waits only for so long for a server that sends nothing."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents.model_calls import Items, ModelCall, ModelMiddleware


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
