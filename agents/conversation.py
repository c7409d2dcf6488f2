"""The conversation between an agent and its model."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    ThoughtEvent,
)
from autogen_core import CancellationToken, Image
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    SystemMessage,
    UserMessage,
)

from autogen_codeact.agents.images import with_encoded_images
from autogen_codeact.agents.model import (
    UnofferedCall,
    stream_answer,
    sum_usage,
)
from autogen_codeact.executors.tools.adapters import run_cancellable

IMAGE_CHARS = 4_000
"""What an image counts: models need about 1,000 tokens for one."""
MIN_BUDGET = 20_000
DEFAULT_BUDGET = 400_000
LATEST = 8
"""Messages at the end of a conversation that stay whole."""
SHORTEN_TO = 0.6
"""Share of the budget that is used after a request was too long. Until it is used up again, requests begin alike, so that the
caches of providers work."""
SHORT_CHARS = 600
"""An output that is left out as it is."""

LEFT_OUT = "[{what} left out to save space{where}]"
NO_FUNCTIONS = (
    "You called functions ({names}), but none are offered here, so nothing ran. Answer in text; write code that should run in a "
    "fenced block."
)
EARLIER = "[{count} earlier messages of this conversation are left out here to save space.]"
# What `observation.bounded` writes. Outputs can contain such text, too, but only of a file for outputs.
_IN_FILE = re.compile(
    r"; all (?:of it|that was kept of the output) is in the file (/workspace/\.codeact/\S{1,200}) …\]"
)

Keep = Callable[[str], Awaitable[str | None]]
"""Stores text in a file that code can read; returns the file's name, or None if that is not possible."""


class ContextBudget:
    """Fits conversations of one agent into a budget. The conversation itself is not changed, only what is sent.

    Over the budget, outputs are cut to the names of files that have them, the oldest first, until 60 % of it is used. If that is
    not enough, the earliest messages are left out. The system message, the latest message from another participant (the task)
    and the last 8 messages stay whole, even over the budget.
    """

    def __init__(self, limit: int | None, source: str, keep: Keep) -> None:
        self._limit = limit if limit is not None else sys.maxsize
        self._source = source
        self._keep = keep
        # By the id of a message: the message itself, so that the id stays its own, and what is sent instead of it, if anything.
        self._replaced: dict[int, tuple[LLMMessage, LLMMessage | None]] = {}

    async def fit(self, messages: Sequence[LLMMessage]) -> list[LLMMessage]:
        here = {id(message) for message in messages}
        self._replaced = {key: pair for key, pair in self._replaced.items() if key in here}
        if self._size(messages) > self._limit:
            await self._shorten(self._movable(messages), self._size(messages))
        sent = [(message, self._sent(message)) for message in messages]
        gone = [message for message, instead in sent if instead is None]
        note = UserMessage(content=EARLIER.format(count=len(gone)), source=self._source)
        return [instead or note for message, instead in sent if instead is not None or message is gone[0]]

    async def _shorten(self, movable: Sequence[LLMMessage], size: int) -> None:
        enough = int(self._limit * SHORTEN_TO)
        for message in movable:
            if size > enough and self._is_own(message) and id(message) not in self._replaced:
                shorter = await self._shortened(message)
                self._replaced[id(message)] = (message, shorter)
                size += size_of(shorter) - size_of(message)
        if size <= self._limit:
            return
        for message in movable:
            if size > enough and (sent := self._sent(message)) is not None:
                self._replaced[id(message)] = (message, None)
                size -= size_of(sent)

    def _size(self, messages: Sequence[LLMMessage]) -> int:
        sent = [self._sent(message) for message in messages]
        return sum(size_of(message) for message in sent if message is not None) + len(EARLIER) * (None in sent)

    def _sent(self, message: LLMMessage) -> LLMMessage | None:
        known = self._replaced.get(id(message))
        return message if known is None else known[1]

    def _movable(self, messages: Sequence[LLMMessage]) -> list[LLMMessage]:
        """Return the messages that need not stay whole: neither the system message, nor the task, nor the latest."""
        others = [message for message in messages if isinstance(message, UserMessage) and not self._is_own(message)]
        task = others[-1] if others else None
        early = messages[: max(0, len(messages) - LATEST)]
        return [message for message in early if message is not task and not isinstance(message, SystemMessage)]

    def _is_own(self, message: LLMMessage) -> bool:
        return isinstance(message, UserMessage) and message.source == self._source

    async def _shortened(self, message: LLMMessage) -> LLMMessage:
        text, images = _parts(message)
        what = [f"{images} image{'s' if images > 1 else ''}"] if images else []
        where = ""
        if len(text) > SHORT_CHARS:
            in_file = _IN_FILE.search(text)
            name = in_file[1] if in_file is not None else await self._keep(text)
            where = f"; the text is in the file {name}" if name is not None else ""
            what.insert(0, f"{len(text):,} characters")
            text = ""
        if not what:
            return message
        gap = LEFT_OUT.format(what=" and ".join(what), where=where)
        return message.model_copy(update={"content": f"{text.rstrip()}\n{gap}".lstrip()})


def check_budget(limit: int | None) -> None:
    """Check an agent's argument."""
    if limit is not None and limit < MIN_BUDGET:
        raise ValueError(
            f"context_budget must be at least {MIN_BUDGET:,} characters, not {limit}; None is for no limit."
        )


def size_of(message: LLMMessage) -> int:
    """Return what a message counts: its characters, and 4,000 for each image."""
    if isinstance(message.content, str):
        return len(message.content)
    text, images = _parts(message)
    return len(text) + images * IMAGE_CHARS


def _parts(message: LLMMessage) -> tuple[str, int]:
    content = message.content
    if isinstance(content, str):
        return content, 0
    parts: Iterable[object] = content
    texts = [part if isinstance(part, str) else "" if isinstance(part, Image) else str(part) for part in parts]
    return "\n".join(filter(None, texts)), sum(isinstance(part, Image) for part in content)


Emit = Callable[[BaseAgentEvent], Awaitable[None]]
"""Passes an event on, and waits until the reader of the agent's stream asks for the next one."""


class Conversation:
    """The conversation of an agent with its model; `source` is the agent's name, which signs what it adds."""

    def __init__(
        self,
        context: ChatCompletionContext,
        client: ChatCompletionClient,
        source: str,
        *,
        stream: bool,
        budget: ContextBudget,
    ) -> None:
        self._context = context
        self.client = client
        self._source = source
        self.system_message: str | None = None
        """Put before the conversation; None for no system message."""
        self._stream = stream
        self._budget = budget

    async def messages(self, token: CancellationToken, *question: LLMMessage) -> list[LLMMessage]:
        """Return all messages of the next request to the model, with a question that is not kept."""
        system = [SystemMessage(content=self.system_message)] if self.system_message is not None else []
        kept = await self._context.get_messages()
        return [*await run_cancellable(self._budget.fit([*system, *kept]), token), *question]

    async def add_messages(self, messages: Sequence[BaseChatMessage], interruption: str | None = None) -> None:
        """Add the messages of others, and a note about interrupted turns, if there is one."""
        for message in messages:
            if isinstance(message, HandoffMessage):
                for earlier in message.context:
                    await self._context.add_message(earlier)
            received = message.to_model_message()
            if has_content(received):  # as below in add_answer: providers refuse empty messages
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

    async def generate(self, token: CancellationToken, emit: Emit) -> CreateResult:
        """Call the model, and add its answer to the context."""
        result = await self.ask(token, emit)
        await self.add_answer(result)
        return result

    async def add_answer(self, result: CreateResult, end: int | None = None) -> None:
        """Add the model's answer to the context, up to `end`, where its last block of code ends.

        What is behind it was written before the output was seen; an invented output would be taken for the real one.
        """
        content = str(result.content)
        if end is not None:
            whole = content.replace("\r\n", "\n").replace("\r", "\n")
            content = whole[:end] if whole[end:].strip() else content
        if content.strip():  # several providers refuse a conversation with an empty message in it
            message = AssistantMessage(content=content, thought=result.thought, source=self._source)
            await self._context.add_message(message)

    async def ask(self, token: CancellationToken, emit: Emit) -> CreateResult:
        """Call the model, and return its answer, which is not added to the context."""
        messages = await self.messages(token)
        try:
            return await self._ask(messages, token, emit)
        except UnofferedCall as call:  # such as the `python` of gpt-oss: the model gets one warning
            told = UserMessage(content=NO_FUNCTIONS.format(names=call.names), source=self._source)
            result = await self._ask([*messages, told], token, emit)
            return result.model_copy(update={"usage": sum_usage(call.result.usage, result.usage)})

    async def _ask(self, messages: list[LLMMessage], token: CancellationToken, emit: Emit) -> CreateResult:
        try:
            async with aclosing(stream_answer(self.client, messages, token, stream=self._stream)) as answer:
                async for item in answer:
                    if isinstance(item, str):
                        await emit(ModelClientStreamingChunkEvent(content=item, source=self._source))
                    else:
                        result = item
        except UnofferedCall as call:
            if call.result.thought:
                await emit(ThoughtEvent(content=call.result.thought, source=self._source))
            raise
        if result.thought:
            await emit(ThoughtEvent(content=result.thought, source=self._source))
        return result

    @asynccontextmanager
    async def restored_on_error(self) -> AsyncIterator[None]:
        """Restore the context if the body raises or is cancelled."""
        # Teams send an interrupted agent the same messages again; they must not be in the context twice.
        before = await self._context.save_state()
        try:
            yield
        except BaseException:
            await self._context.load_state(with_encoded_images(before))
            raise


def has_content(message: LLMMessage) -> bool:
    return bool(message.content.strip() if isinstance(message.content, str) else message.content)
