"""A model client that writes its answers to the log of a run, or in a resumed run returns answers from the log."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

from autogen_core import CancellationToken
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    UserMessage,
)
from autogen_core.tools import Tool, ToolSchema
from pydantic import BaseModel

from autogen_codeact.agents.forwarding_client import ForwardingClient
from autogen_codeact.runs.agent_history import ModelAnswer, to_exception
from autogen_codeact.runs.events import ModelCallFinished, ModelCallStarted
from autogen_codeact.runs.redaction import Redaction
from autogen_codeact.runs.results import ErrorRecord
from autogen_codeact.runs.steps import AgentSteps

Tools = Sequence[Tool | ToolSchema]


class RecordedClient(ForwardingClient):
    """Forwards to another client.

    Args:
        client: The other one.
        steps: Keeps the answers.
        context: The conversation of the agent, where notes to the model are kept; None if it has none.
    """

    def __init__(self, client: ChatCompletionClient, steps: AgentSteps, context: ChatCompletionContext | None) -> None:
        super().__init__(client)
        self._steps = steps
        self._context = context
        self._sent: list[str] = []

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Tools = (),
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """Return the model's answer."""
        request = request_hash(messages, self._steps.log.redaction)
        if (recorded := self._steps.answer(request)) is not None:
            return await self._replay(recorded)
        if (note := await self._steps.go_live()) is not None:
            messages = [*messages, await self._add_note(note)]
        began, number = await self._start(messages, tools, request, note, stream=False)
        try:
            result = await self.client.create(
                messages,
                tools=tools,
                json_output=json_output,
                extra_create_args=extra_create_args or {},
                cancellation_token=cancellation_token,
                **_choice(tool_choice),
            )
        except Exception as error:
            self._finish(number, began, error=error)
            raise
        self._finish(number, began, result)
        return result

    async def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Tools = (),
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        **more: Any,
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the model's answer in pieces, and then as a whole; an answer from the log is yielded whole only."""
        request = request_hash(messages, self._steps.log.redaction)
        if (recorded := self._steps.answer(request)) is not None:
            yield await self._replay(recorded)
            return
        if (note := await self._steps.go_live()) is not None:
            messages = [*messages, await self._add_note(note)]
        began, number = await self._start(messages, tools, request, note, stream=True)
        stream = self.client.create_stream(
            messages,
            tools=tools,
            json_output=json_output,
            extra_create_args=extra_create_args or {},
            cancellation_token=cancellation_token,
            **_choice(tool_choice),
            **more,
        )
        try:
            async with aclosing(stream):
                async for item in stream:
                    if isinstance(item, CreateResult):
                        self._finish(number, began, item)
                    yield item
        except Exception as error:
            self._finish(number, began, error=error)
            raise

    async def _replay(self, recorded: ModelAnswer) -> CreateResult:
        """Return the recorded answer, or raise the recorded error."""
        if recorded.note is not None:
            await self._add_note(recorded.note)
        if recorded.result is None:
            raise to_exception(recorded.error or ErrorRecord(type="RuntimeError", message="the log has no answer"))
        return recorded.result

    async def _add_note(self, note: str) -> UserMessage:
        """Add a note to the agent's conversation, where it stays, and return it."""
        message = UserMessage(content=note, source=self._steps.agent)
        if self._context is not None:
            await self._context.add_message(message)
        return message

    async def _start(
        self, messages: Sequence[LLMMessage], tools: Tools, request: str, note: str | None, *, stream: bool
    ) -> tuple[float, int]:
        """Write that a call begins. The steps before it are in the log then, whatever becomes of the process in the meantime."""
        sent = [message.model_dump_json() for message in messages]
        shared = 0
        for old, new in zip(self._sent, sent, strict=False):
            if old != new:
                break
            shared += 1
        self._sent, new_ones = sent, sent[shared:]
        number = self._steps.new_call()
        names = [tool["name"] if isinstance(tool, dict) else tool.name for tool in tools]
        await self._steps.log.write(
            lambda _: ModelCallStarted(
                agent=self._steps.agent,
                number=number,
                request=request,
                shared=shared,
                messages=[json.loads(each) for each in new_ones],
                tools=names,
                stream=stream,
                note=note,
            )
        )
        return time.monotonic(), number

    def _finish(
        self, number: int, began: float, result: CreateResult | None = None, error: Exception | None = None
    ) -> None:
        self._steps.call_ended()
        seconds = time.monotonic() - began
        self._steps.log.put(
            lambda _: ModelCallFinished(
                agent=self._steps.agent,
                number=number,
                result=result.model_dump(mode="json") if result is not None else None,
                error=ErrorRecord.of(error) if error is not None else None,
                duration_s=seconds,
            )
        )


def request_hash(messages: Sequence[LLMMessage], redaction: Redaction) -> str:
    """Return the hash of the last message of a request, without what is not written into the log.

    The earlier ones are left out: an agent that is continued may shorten them at another time than before.
    """
    last = messages[-1].model_dump(mode="json") if messages else None
    return hashlib.sha256(json.dumps(redaction.value(last), sort_keys=True).encode()).hexdigest()


def _choice(tool_choice: Tool | Literal["auto", "required", "none"]) -> dict[str, Any]:
    # Clients of older versions don't know it.
    return {} if tool_choice == "auto" else {"tool_choice": tool_choice}
