"""The conversation between an agent and its model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    ThoughtEvent,
)
from autogen_core import CancellationToken
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from pydantic import BaseModel

from autogen_codeact.agents.context_budget import ContextBudget
from autogen_codeact.agents.model import JsonForm, is_refusal, json_forms, stream_answer, sum_usage, unusable

SCHEMA = "Give that as one JSON value that fits this schema, and nothing else:\n{schema}"

Emit = Callable[[BaseAgentEvent], Awaitable[None]]
"""Passes an event on, and waits until the reader of the agent's stream asks for the next one."""


class Conversation:
    """The conversation of an agent with its model.

    Args:
        context: Keeps the messages.
        client: The model.
        source: Name of the agent, which signs what it adds.
        stream: Whether the model's answer is also yielded in chunks.
        budget: Limits the size of requests; None for no limit.
    """

    def __init__(
        self,
        context: ChatCompletionContext,
        client: ChatCompletionClient,
        source: str,
        *,
        stream: bool,
        budget: ContextBudget | None = None,
    ) -> None:
        self._context = context
        self.client = client
        """The model."""
        self._source = source
        self.system_message: str | None = None
        """Put before the conversation; None for no system message."""
        self._stream = stream
        self._budget = budget
        self._refused: set[JsonForm] = set()

    async def messages(self) -> list[LLMMessage]:
        """Return all messages of the next request to the model."""
        system = [SystemMessage(content=self.system_message)] if self.system_message is not None else []
        messages: list[LLMMessage] = [*system, *await self._context.get_messages()]
        return messages if self._budget is None else await self._budget.fit(messages)

    async def add_messages(self, messages: Sequence[BaseChatMessage], interruption: str | None = None) -> None:
        """Add the messages of others.

        Args:
            messages: The messages.
            interruption: A note about interrupted turns, or None.

        Raises:
            ValueError: There is no message, neither now nor from before.
        """
        for message in messages:
            if isinstance(message, HandoffMessage):
                for earlier in message.context:
                    await self._context.add_message(earlier)
            received = message.to_model_message()
            if has_content(received):  # as below in generate: providers refuse empty messages
                await self._context.add_message(received)
        if not any(map(has_content, await self._context.get_messages())):
            raise ValueError("There is no task: give the agent a message that says what to do.")
        if interruption is not None:
            await self.notify(interruption)

    async def notify(self, text: str) -> None:
        """Add a message from the agent to its model."""
        await self._context.add_message(UserMessage(content=text, source=self._source))

    async def add_plan(self, plan: str) -> None:
        """Add what the model plans to do, as a message of its own."""
        if plan.strip():
            await self._context.add_message(AssistantMessage(content=plan, source=self._source))

    async def generate(
        self, token: CancellationToken, emit: Emit, typed: type[BaseModel] | None = None
    ) -> CreateResult:
        """Call the model, and add its answer to the context.

        Args:
            token: Cancels the call.
            emit: Called with chunks, and with the model's thought.
            typed: What the answer has to fit; the model is asked for JSON in the strictest form that it and its server accept.
                Default: it may answer as it likes.

        Returns:
            The answer.
        """
        messages = await self.messages()
        result = await (
            self._ask(messages, token, emit) if typed is None else self._ask_typed(messages, token, emit, typed)
        )
        if result.thought:
            await emit(ThoughtEvent(content=result.thought, source=self._source))
        if str(result.content).strip():  # several providers refuse a conversation with an empty message in it
            message = AssistantMessage(content=result.content, thought=result.thought, source=self._source)
            await self._context.add_message(message)
        return result

    async def _ask_typed(
        self, messages: list[LLMMessage], token: CancellationToken, emit: Emit, typed: type[BaseModel]
    ) -> CreateResult:
        begun, spent = False, RequestUsage(prompt_tokens=0, completion_tokens=0)

        async def passing_on(event: BaseAgentEvent) -> None:
            nonlocal begun
            begun = True
            await emit(event)

        schema = json.dumps(typed.model_json_schema(), ensure_ascii=False)
        explained = [*messages, UserMessage(content=SCHEMA.format(schema=schema), source=self._source)]
        for form in json_forms(self.client, typed):
            if form in self._refused:
                continue
            try:
                result = await self._ask(messages if form is typed else explained, token, passing_on, form)
            except Exception as error:
                # A server may refuse a form that the model's description promises.
                answered = unusable(error)
                if form is None or begun or not (answered or is_refusal(error)):
                    raise
                if answered is None:
                    self._refused.add(form)
                else:
                    spent = sum_usage(spent, answered.usage)
            else:
                return result.model_copy(update={"usage": sum_usage(spent, result.usage)})
        raise AssertionError("plain text is never left out")

    async def _ask(
        self, messages: list[LLMMessage], token: CancellationToken, emit: Emit, form: JsonForm = None
    ) -> CreateResult:
        async with aclosing(stream_answer(self.client, messages, token, stream=self._stream, form=form)) as answer:
            async for item in answer:
                if isinstance(item, str):
                    await emit(ModelClientStreamingChunkEvent(content=item, source=self._source))
                else:
                    result = item
        return result

    @asynccontextmanager
    async def restored_on_error(self) -> AsyncIterator[None]:
        """Restore the context if the body raises or is cancelled."""
        # Teams send an interrupted agent the same messages again; they must not be in the context twice.
        context, base = self._context, ChatCompletionContext
        if (type(context).save_state, type(context).load_state) == (base.save_state, base.load_state):
            kept = list(context._messages)  # what its state consists of, without writing all of it
            try:
                yield
            except BaseException:
                context._messages = kept
                raise
            return
        before = await context.save_state()
        try:
            yield
        except BaseException:
            await context.load_state(before)
            raise


def has_content(message: LLMMessage) -> bool:
    """Return whether a message is not empty."""
    return bool(message.content.strip() if isinstance(message.content, str) else message.content)
