"""Proxies of a team's participants: each turn runs in a task of its own, which can be cancelled, and undone."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from autogen_agentchat.base import ChatAgent, Response, TaskResult
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, MessageFactory
from autogen_core import CancellationToken, ComponentModel

from autogen_codeact.teams.run_control import RunControl, Turn, cancel_and_wait

Message = BaseAgentEvent | BaseChatMessage
Task = str | BaseChatMessage | Sequence[BaseChatMessage] | None
P = TypeVar("P", bound=ChatAgent | BaseTeam)
# What a participant's stream ends with.
F = TypeVar("F", Response, TaskResult)

logger = logging.getLogger(__name__)


class _Proxy(Generic[P]):
    """What the proxies of agents and of teams have in common.

    Args:
        participant: The agent or team.
        known_types: The message types that the team knows.
        grace_s: Seconds that a turn has to end after it was cancelled.
        busy_s: Seconds that the next turn waits for one that did not end.
    """

    def __init__(self, participant: P, known_types: MessageFactory, grace_s: float, busy_s: float) -> None:
        self.participant = participant
        self.grace_s = grace_s
        self.control: RunControl | None = None
        self._busy_s = busy_s
        self._known_types = known_types
        self._overrun: asyncio.Task[Any] | None = None
        self._before: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The participant's name."""
        return self.participant.name

    @property
    def description(self) -> str:
        """The participant's description."""
        return self.participant.description

    def dump_component(self) -> ComponentModel:
        """Dump the participant; its proxy has nothing to add."""
        return self.participant.dump_component()

    async def save_state(self) -> Mapping[str, Any]:
        """Return nothing: the team saves its participants itself, so that it can be rebuilt without changing them."""
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load nothing, for the same reason."""

    async def state(self) -> Mapping[str, Any]:
        """Return the participant's state, or that from before a turn that ignores its cancellation."""
        if self._overrun is not None and self._before is not None:
            return self._before
        return await self.participant.save_state()

    async def set_state(self, state: Mapping[str, Any]) -> None:
        """Load a state into the participant; after a turn that ignores its cancellation, when that has ended."""
        if self._overrun is not None:
            self._before = state
        else:
            await self.participant.load_state(state)

    async def roll_back(self) -> None:
        """Restore the participant's state from before the interrupted turn, if it could save one.

        A failure is logged, not raised: the reason why the turn ended matters more.
        """
        if self._overrun is not None and self._overrun.done():
            self._overrun = None
        if self._before is None or self._overrun is not None:
            return
        before, self._before = self._before, None
        task = asyncio.ensure_future(self.participant.load_state(before))
        await asyncio.wait({task}, timeout=self.grace_s)
        if (
            await cancel_and_wait(task, 0, f"{self.name!r} loading its state")
            and not task.cancelled()
            and task.exception()
        ):
            logger.warning("%r could not be put back to before its turn.", self.name, exc_info=task.exception())

    async def wait_until_idle(self) -> None:
        """Wait until a turn that ignored its cancellation has ended, and undo it.

        Raises:
            RuntimeError: It still runs.
        """
        if self._overrun is None:
            return
        self._overrun.cancel()
        await asyncio.wait({self._overrun}, timeout=self._busy_s)
        if not self._overrun.done():
            raise RuntimeError(
                f"{self.name!r} is still busy with a turn that was cancelled before: it ignores its cancellation. "
                "Wait until it has ended, or make it let asyncio.CancelledError through."
            )
        await self.roll_back()

    async def _turn(
        self,
        given: Sequence[BaseChatMessage],
        final: type[F],
        start: Callable[[CancellationToken], AsyncIterator[Any]],
    ) -> AsyncGenerator[Message | F, None]:
        """Yield what the participant yields; end early if the run is stopped, and stop the run if the participant fails."""
        assert self.control is not None
        control = self.control
        control.turn = Turn(self.name, tuple(given))
        if control.is_stopped:
            return
        items: asyncio.Queue[Message | F | None] = asyncio.Queue()
        token = CancellationToken()
        task = asyncio.create_task(self._relay(start, token, final, items))

        def wake(_: asyncio.Future[Any]) -> None:
            items.put_nowait(None)

        task.add_done_callback(wake)
        control.stopped.add_done_callback(wake)
        try:
            while (item := await items.get()) is not None and not control.is_stopped:
                yield item
        finally:
            control.stopped.remove_done_callback(wake)
            await self._end(task, token)
        if task.done() and not task.cancelled() and (error := task.exception() or task.result()):
            control.stop(error)
        if not control.is_stopped:
            control.turn = None
            self._before = None

    async def _end(self, task: asyncio.Task[Any], token: CancellationToken) -> None:
        if not task.done():
            token.cancel()
        if not await cancel_and_wait(task, self.grace_s, f"The turn of {self.name!r}"):
            self._overrun = task

    async def _relay(
        self,
        start: Callable[[CancellationToken], AsyncIterator[Any]],
        token: CancellationToken,
        final: type[F],
        items: asyncio.Queue[Message | F | None],
    ) -> BaseException | None:
        """Forward the participant's stream; return what it raised, also a `CancelledError` of its own."""
        try:
            await self.wait_until_idle()
            self._before = await self.snapshot()
            answered = False
            async for item in start(token):
                self._check(item)
                answered = answered or isinstance(item, final)
                items.put_nowait(item)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (passed on, and raised by the team)
            return error
        return None if answered else RuntimeError(f"{self.name!r} ended its turn without a {final.__name__}.")

    async def snapshot(self) -> Mapping[str, Any] | None:
        """Return a copy of the participant's state; None where it can't save one."""
        try:
            # A copy: some agents return the very lists to which they append later.
            return copy.deepcopy(await self.participant.save_state())
        except Exception:  # an agent need not be able to save its state; then its turn can't be undone
            logger.debug("%r can't save its state.", self.name, exc_info=True)
            return None

    def _check(self, item: Any) -> None:
        """Refuse a message that would crash AutoGen's team later, and block it."""
        if isinstance(item, Response):
            said: Sequence[Any] = [*(item.inner_messages or ()), item.chat_message]
        else:
            said = item.messages if isinstance(item, TaskResult) else [item]
        for message in said:
            if not self._known_types.is_registered(type(message)):
                raise ValueError(
                    f"{self.name!r} produced a {type(message).__name__}, which the team doesn't know. "
                    "Name the type in custom_message_types when you make the team."
                )


class AgentProxy(_Proxy[ChatAgent], ChatAgent):
    """The proxy of an agent."""

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the agent's answers."""
        return self.participant.produced_message_types

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        """Have the agent take a turn, and return its answer."""
        async for item in self.on_messages_stream(messages, cancellation_token):
            if isinstance(item, Response):
                response = item
        return response

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Message | Response, None]:
        """Have the agent take a turn; if it is interrupted, a marker is the answer."""
        given = list(messages)
        async for item in self._turn(given, Response, lambda token: self.participant.on_messages_stream(given, token)):
            yield item
        if self.control is not None and self.control.is_stopped:
            yield Response(chat_message=self.control.marker)

    async def run(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> TaskResult:
        """Run the agent alone, without a turn of the team."""
        return await self.participant.run(
            task=task, cancellation_token=cancellation_token, output_task_messages=output_task_messages
        )

    def run_stream(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[Message | TaskResult, None]:
        """Run the agent alone, without a turn of the team."""
        return self.participant.run_stream(
            task=task, cancellation_token=cancellation_token, output_task_messages=output_task_messages
        )

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Reset the agent."""
        await self.participant.on_reset(cancellation_token)

    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        """Pause the agent."""
        await self.participant.on_pause(cancellation_token)

    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        """Resume the agent."""
        await self.participant.on_resume(cancellation_token)

    async def close(self) -> None:
        """Let the agent release what it holds."""
        await self.participant.close()


class TeamProxy(_Proxy[BaseTeam], BaseTeam):
    """The proxy of a team that is a participant."""

    async def run(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> TaskResult:
        """Have the team take a turn, and return its result."""
        async for item in self.run_stream(
            task=task, cancellation_token=cancellation_token, output_task_messages=output_task_messages
        ):
            if isinstance(item, TaskResult):
                result = item
        return result

    async def run_stream(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[Message | TaskResult, None]:
        """Have the team take a turn; if it is interrupted, a marker is the result."""
        assert not isinstance(task, str | BaseChatMessage)
        given = list(task or ())

        def start(token: CancellationToken) -> AsyncIterator[Any]:
            # A team refuses an empty list; it goes on with what it has when there is no task.
            return self.participant.run_stream(
                task=given or None, cancellation_token=token, output_task_messages=output_task_messages
            )

        async for item in self._turn(given, TaskResult, start):
            yield item
        if self.control is not None and self.control.is_stopped:
            yield TaskResult(messages=[self.control.marker])

    async def reset(self) -> None:
        """Reset the team."""
        await self.participant.reset()

    async def pause(self) -> None:
        """Pause the team."""
        await self.participant.pause()

    async def resume(self) -> None:
        """Resume the team."""
        await self.participant.resume()
