"""A model client that writes its answers to the log of a run, or in a resumed run returns answers from the log."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import aclosing, nullcontext
from dataclasses import replace
from itertools import takewhile

from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    UserMessage,
)

from autogen_codeact.agents.model_calls import Items, ModelCall, ModelMiddleware
from autogen_codeact.runs.agent_history import ModelAnswer, to_exception
from autogen_codeact.runs.events import ModelCallFinished, ModelCallStarted
from autogen_codeact.runs.redaction import Redaction
from autogen_codeact.runs.results import error_info
from autogen_codeact.runs.steps import AgentSteps
from codeact_sandbox.types.result import ErrorInfo


class RecordedClient(ModelMiddleware):
    """Records each call to a model, or answers it from the record."""

    def __init__(self, client: ChatCompletionClient, steps: AgentSteps, context: ChatCompletionContext | None) -> None:
        super().__init__(client)
        self._steps = steps
        self._context = context
        self._sent: list[str] = []

    async def handle(self, call: ModelCall) -> Items:
        """Yield the answer to a call; an answer from the log is yielded whole only."""
        request = request_hash(call.messages, self._steps.log.redaction)
        if (recorded := self._steps.answer(request)) is not None:
            yield await self._replay(recorded)
            return
        if (note := await self._steps.go_live()) is not None:
            call = replace(call, messages=[*call.messages, await self._add_note(note)])
        questions = self._steps.questions
        with questions.busy(object()) if questions is not None else nullcontext():
            async with aclosing(self._live(call, request, note)) as items:
                async for item in items:
                    yield item

    async def _live(self, call: ModelCall, request: str, note: str | None) -> Items:
        began, number = await self._start(call, request, note)
        try:
            async with aclosing(call.items()) as items:
                async for item in items:
                    if isinstance(item, CreateResult):
                        self._finish(number, began, item)
                    yield item
        except Exception as error:
            self._finish(number, began, error=error)
            raise
        finally:
            self._steps.call_ended(number, answered=False)

    async def _replay(self, recorded: ModelAnswer) -> CreateResult:
        """Return the recorded answer, or raise the recorded error."""
        if recorded.note is not None:
            await self._add_note(recorded.note)
        if recorded.result is None:
            raise to_exception(recorded.error or ErrorInfo(type="RuntimeError", message="the log has no answer"))
        return recorded.result

    async def _add_note(self, note: str) -> UserMessage:
        """Add a note to the agent's conversation, where it stays, and return it."""
        message = UserMessage(content=note, source=self._steps.agent)
        if self._context is not None:
            await self._context.add_message(message)
        return message

    async def _start(self, call: ModelCall, request: str, note: str | None) -> tuple[float, int]:
        """Write that a call begins. The steps before it are in the log then, whatever becomes of the process in the meantime."""
        sent = [message.model_dump_json() for message in call.messages]
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._sent, sent, strict=False)))
        self._sent, new_ones = sent, sent[shared:]
        number = self._steps.new_call()
        names = [tool["name"] if isinstance(tool, dict) else tool.name for tool in call.options.get("tools", ())]
        await self._steps.log.write(
            lambda _: ModelCallStarted(
                agent=self._steps.agent,
                number=number,
                request=request,
                shared=shared,
                messages=[json.loads(each) for each in new_ones],
                tools=names,
                stream=call.stream,
                note=note,
            )
        )
        return time.monotonic(), number

    def _finish(
        self, number: int, began: float, result: CreateResult | None = None, error: Exception | None = None
    ) -> None:
        self._steps.call_ended(number, answered=True)
        seconds = time.monotonic() - began
        self._steps.log.put(
            lambda _: ModelCallFinished(
                agent=self._steps.agent,
                number=number,
                result=result.model_dump(mode="json") if result is not None else None,
                error=error_info(error) if error is not None else None,
                duration_s=seconds,
            )
        )


def request_hash(messages: Sequence[LLMMessage], redaction: Redaction) -> str:
    """Return the hash of the last message of a request, without what is not written into the log.

    The earlier ones are left out: an agent that is continued may shorten them at another time than before.
    """
    last = messages[-1].model_dump(mode="json") if messages else None
    return hashlib.sha256(json.dumps(redaction.value(last), sort_keys=True).encode()).hexdigest()
