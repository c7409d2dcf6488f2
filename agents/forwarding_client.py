"""Base class of model clients that forward requests to another client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autogen_core import ComponentModel
from autogen_core.models import (
    ChatCompletionClient,
    LLMMessage,
    ModelCapabilities,
    ModelInfo,
    RequestUsage,
)
from autogen_core.tools import Tool, ToolSchema


class ForwardingClient(ChatCompletionClient):
    """Forwards to another client. Subclasses override the requests; everything else, also the configuration, is that client's.

    Args:
        client: The other one.
    """

    component_type = "model"

    def __init__(self, client: ChatCompletionClient) -> None:
        self.client = client
        """The client that is asked."""

    async def close(self) -> None:
        """Close the client."""
        await self.client.close()

    def actual_usage(self) -> RequestUsage:
        """Return the tokens of all answers."""
        return self.client.actual_usage()

    def total_usage(self) -> RequestUsage:
        """Return the tokens of all answers, those from caches included."""
        return self.client.total_usage()

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Return how many tokens messages have."""
        return self.client.count_tokens(messages, tools=tools)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Return how many tokens fit into the model's context beside messages."""
        return self.client.remaining_tokens(messages, tools=tools)

    @property
    def capabilities(self) -> ModelCapabilities:  # type: ignore[no-any-unimported, unused-ignore]
        """What the model can do."""
        return self.client.capabilities

    @property
    def model_info(self) -> ModelInfo:
        """What the model can do."""
        return self.client.model_info

    def dump_component(self) -> ComponentModel:
        """Return the configuration of the client."""
        return self.client.dump_component()


def unwrapped(client: Any) -> Any:
    """Return the innermost client, or any other object unchanged."""
    while isinstance(client, ForwardingClient):
        client = client.client
    return client
