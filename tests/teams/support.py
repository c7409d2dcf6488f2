"""Participants that behave badly, a model that can fail, and words to compare conversations with."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response, TaskResult
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, TextMessage
from autogen_core import CancellationToken
from autogen_core.models import CreateResult, LLMMessage
from autogen_ext.models.replay import ReplayChatCompletionClient

PRINT_42 = "```python\nprint(42)\n```"


class NoQuotaLeft(Exception):
    """What a model client of somebody else's might raise."""


class ScriptedModel(ReplayChatCompletionClient):
    """Replays its script; an exception in it is raised, a callable is awaited before the next item is given."""

    def __init__(self, script: Iterable[str | BaseException | Callable[[], Any]]) -> None:
        super().__init__([])
        self.script = list(script)

    async def create(self, messages: Sequence[LLMMessage], **kwargs: Any) -> CreateResult:
        item = self.script.pop(0)
        if isinstance(item, BaseException):
            raise item
        if not isinstance(item, str):
            await item()
            item = self.script.pop(0)
        assert isinstance(item, str)
        self.chat_completions.append(item)
        return await super().create(messages, **kwargs)

    @property
    def told(self) -> list[list[tuple[str, str]]]:
        """What it received, call by call: who said what, `system` and `assistant` included."""
        return [
            [(_speaker(message), str(message.content)) for message in call["messages"]] for call in self.create_calls
        ]


def _speaker(message: LLMMessage) -> str:
    return {"SystemMessage": "system", "AssistantMessage": "assistant"}.get(message.type) or message.source  # type: ignore[union-attr]


def coder(model: ReplayChatCompletionClient, name: str = "coder") -> AssistantAgent:
    return AssistantAgent(name, model, system_message="Write code.")


class CountingAgent(BaseChatAgent):
    """Says how many messages it was given, which proves that none was lost and none given twice."""

    def __init__(self, name: str = "counting") -> None:
        super().__init__(name, "Repeats.")
        self.heard: list[list[str]] = []

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        self.heard.append([message.to_text() for message in messages])
        return Response(chat_message=TextMessage(content=f"heard {len(messages)}", source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        self.heard.clear()

    async def save_state(self) -> Mapping[str, Any]:
        return {"heard": self.heard}  # the very list, as careless agents do

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.heard = state["heard"]


class SleepingAgent(CountingAgent):
    """Ignores its token, and sleeps until its task is cancelled; from its second turn on it answers like a `CountingAgent`."""

    def __init__(self, name: str = "sleeping") -> None:
        super().__init__(name)
        self.begun = asyncio.Event()
        self.finished = False

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        if not self.begun.is_set():
            self.begun.set()
            await self.sleep()
            self.finished = True
        return await super().on_messages(messages, cancellation_token)

    async def sleep(self) -> None:
        await asyncio.sleep(3600)


class UncancellableAgent(SleepingAgent):
    """Ignores its token and swallows every cancellation too, until it is let go.

    After five seconds it gives up, far later than any test waits: a test that fails must not hang the event loop's end.
    """

    def __init__(self, name: str = "uncancellable") -> None:
        super().__init__(name)
        self.let_go = asyncio.Event()

    async def sleep(self) -> None:
        deadline = time.monotonic() + 5
        while not self.let_go.is_set() and (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(asyncio.CancelledError, TimeoutError):
                async with asyncio.timeout(left):
                    await self.let_go.wait()


class ScriptedAgent(CountingAgent):
    """Yields what it is told to, raising what is an exception, then answers like a `CountingAgent`."""

    def __init__(
        self, script: Sequence[BaseAgentEvent | BaseChatMessage | BaseException], name: str = "scripted"
    ) -> None:
        super().__init__(name)
        self.script = list(script)

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        while self.script:
            item = self.script.pop(0)
            if isinstance(item, BaseException):
                raise item
            yield item
        yield await self.on_messages(messages, cancellation_token)


class Stateless(SleepingAgent):
    """Can't save its state, and must not be asked to load one."""

    async def save_state(self) -> Mapping[str, Any]:
        raise NotImplementedError("no state here")

    async def load_state(self, state: Mapping[str, Any]) -> None:
        raise AssertionError("nothing was saved")


def texts_of(result: TaskResult) -> list[tuple[str, str]]:
    return [(message.source, message.to_text()) for message in result.messages]


async def ended(run: asyncio.Task[Any]) -> Any:
    """Return a run's result or its exception. It ends at once, not when its participants let it."""
    done, _ = await asyncio.wait({run}, timeout=20)
    assert done, "the run goes on"
    return (await asyncio.gather(run, return_exceptions=True))[0]


async def cancelled(run: asyncio.Task[Any]) -> Any:
    """Cancel a run and wait for its end."""
    run.cancel()
    return await ended(run)


async def begun(team: Any, agent: SleepingAgent, task: str = "one") -> asyncio.Task[Any]:
    """Begin a run, and wait until the agent's turn has begun."""
    run = asyncio.create_task(team.run(task=task))
    await agent.begun.wait()
    return run


async def cut_short(team: Any, agent: SleepingAgent, task: str = "one") -> None:
    """Cancel a run in the middle of the agent's turn."""
    assert isinstance(await cancelled(await begun(team, agent, task)), asyncio.CancelledError)


async def listen(stream: AsyncGenerator[Any, None], heard: list[tuple[str, str]]) -> None:
    """Note what a stream yields, up to its failure."""
    async for event in stream:
        if not isinstance(event, TaskResult):
            heard.append((event.source, event.to_text()))  # noqa: PERF401 (what came before a failure must stay)


def others() -> set[asyncio.Task[Any]]:
    """Every task that is running beside the one that asks."""
    current = asyncio.current_task()
    return {task for task in asyncio.all_tasks() if task is not current}
