"""Agents that can be sent to a worker. A worker imports this module, and OpenAI's client would take it half a second."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from autogen_core.code_executor import CodeExecutor
from autogen_core.models import AssistantMessage, ChatCompletionClient, CreateResult, LLMMessage, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.batch import Task


class PlainClient(ReplayChatCompletionClient):
    """A client that sends the texts of a conversation to an OpenAI server, and knows nothing else of it."""

    def __init__(self, base_url: str) -> None:
        super().__init__([])
        self._base_url = base_url

    async def create(self, messages: Sequence[LLMMessage], **_: Any) -> CreateResult:  # type: ignore[override]
        """Ask once. A connection that ends early is an error."""
        said = [
            {"role": "assistant" if isinstance(each, AssistantMessage) else "user", "content": each.content}
            for each in messages
        ]
        answer = await _post(f"{self._base_url}/chat/completions", {"model": "scripted", "messages": said})
        usage = RequestUsage(answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"])
        text = answer["choices"][0]["message"]["content"]
        return CreateResult(finish_reason="stop", content=text, usage=usage, cached=False)


async def _post(url: str, body: dict[str, Any]) -> Any:
    address, data = urlsplit(url), json.dumps(body).encode()
    head = f"POST {address.path} HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        writer.write(head.encode() + data)
        status, _, content = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    assert status.startswith(b"HTTP/1.1 200 "), status
    return json.loads(content)


@dataclass(frozen=True)
class ServedAgent:
    """Makes agents whose model is on a server; it can be sent to a worker."""

    base_url: str

    def __call__(self, executor: CodeExecutor, task: Task) -> CodeActAgent:
        return self.of(executor, PlainClient(self.base_url))

    @staticmethod
    def of(executor: CodeExecutor, client: ChatCompletionClient) -> CodeActAgent:
        return CodeActAgent("coder", executor, model_client=client)
