"""What is said between an agent and its model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, ModelClientStreamingChunkEvent, ThoughtEvent
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeResult
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    SystemMessage,
    UserMessage,
)

from autogen_codeact.agents.model import converse
from autogen_codeact.agents.observation import as_message


class Conversation:
    """An agent's model and what it has been told so far.

    Args:
        context: Keeps the messages.
        client: The model.
        source: Name of the agent, which signs what it adds.
        stream: Whether the model's answer is also yielded in chunks.
    """

    def __init__(
        self,
        context: ChatCompletionContext,
        client: ChatCompletionClient,
        *,
        source: str,
        stream: bool,
    ) -> None:
        self._context = context
        self._client = client
        self._source = source
        self.system_message: str | None = None
        """Put before the conversation; None for no system message."""
        self._stream = stream

    async def messages(self) -> list[LLMMessage]:
        """All that the model is told when it is asked next."""
        system = [SystemMessage(content=self.system_message)] if self.system_message is not None else []
        return [*system, *await self._context.get_messages()]

    async def add_messages(self, messages: Sequence[BaseChatMessage], interruption: str | None = None) -> None:
        """Add what others said.

        Args:
            messages: The messages.
            interruption: What the model should know of interrupted turns, or None.

        Raises:
            ValueError: There is no task: nothing was said, now or before.
        """
        for message in messages:
            if isinstance(message, HandoffMessage):
                for said_before in message.context:
                    await self._context.add_message(said_before)
            told = message.to_model_message()
            if says_something(told):  # as below in generate: providers refuse empty messages
                await self._context.add_message(told)
        if not any(map(says_something, await self._context.get_messages())):
            raise ValueError("There is no task: give the agent a message that says what to do.")
        if interruption is not None:
            await self.tell(interruption)

    async def tell(self, words: str) -> None:
        """Tell the model something in the agent's name."""
        await self._context.add_message(UserMessage(content=words, source=self._source))

    async def note_plan(self, plan: str) -> None:
        """Keep in mind what the model means to do, in its own name."""
        if plan.strip():
            await self._context.add_message(AssistantMessage(content=plan, source=self._source))

    async def observe(self, result: CodeResult, *, limit: int, whole: str | None = None, session: bool = False) -> None:
        """Tell the model what came out of its code.

        Args:
            result: The result.
            limit: Characters of output to keep.
            whole: File in the sandbox that holds all of the output, or None.
            session: Whether the code ran in a session.
        """
        vision = bool(self._client.model_info.get("vision"))
        message = await as_message(result, self._source, vision=vision, limit=limit, whole=whole, session=session)
        await self._context.add_message(message)

    async def generate(
        self, token: CancellationToken
    ) -> AsyncGenerator[ModelClientStreamingChunkEvent | ThoughtEvent | CreateResult, None]:
        """Let the model speak; yields chunks, its thought, last the result, which is then in the context."""
        told = await self.messages()
        async with aclosing(converse(self._client, told, token, stream=self._stream)) as answer:
            async for item in answer:
                if isinstance(item, str):
                    yield ModelClientStreamingChunkEvent(content=item, source=self._source)
                    continue
                if item.thought:
                    yield ThoughtEvent(content=item.thought, source=self._source)
                if str(item.content).strip():  # several providers refuse a conversation with an empty message in it
                    said = AssistantMessage(content=item.content, thought=item.thought, source=self._source)
                    await self._context.add_message(said)
                yield item

    @asynccontextmanager
    async def restored_on_error(self) -> AsyncIterator[None]:
        """Put the context back to how it was if what is done inside raises or is cancelled."""
        # Teams hand an interrupted agent the same messages again; they must not be in the context twice.
        before = await self._context.save_state()
        try:
            yield
        except BaseException:
            await self._context.load_state(before)
            raise


def says_something(message: LLMMessage) -> bool:
    """Whether there is anything in a message."""
    return bool(message.content.strip() if isinstance(message.content, str) else message.content)
