"""Stand-ins for a team's participants: each turn runs in a task of its own, which can be cut short, and undone."""

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

from autogen_codeact.teams.brake import Brake, Turn, settle

Message = BaseAgentEvent | BaseChatMessage
Task = str | BaseChatMessage | Sequence[BaseChatMessage] | None
P = TypeVar("P", bound=ChatAgent | BaseTeam)
# What a participant's stream ends with.
F = TypeVar("F", Response, TaskResult)

logger = logging.getLogger(__name__)


class _Guard(Generic[P]):
    """What the guards of agents and of teams have in common.

    Args:
        participant: The agent or team.
        known_types: The message types that the team knows.
        grace_s: Seconds that a turn has to end after it was cut short.
        busy_s: Seconds that the next turn waits for one that did not end.
    """

    def __init__(self, participant: P, known_types: MessageFactory, grace_s: float, busy_s: float) -> None:
        self.participant = participant
        self.grace_s = grace_s
        self.brake: Brake | None = None
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
        """Dump the participant; its guard has nothing to add."""
        return self.participant.dump_component()

    async def save_state(self) -> Mapping[str, Any]:
        """Return nothing: the team asks its participants itself, so that it can be rebuilt without touching them."""
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load nothing, for the same reason."""

    async def state(self) -> Mapping[str, Any]:
        """Return the participant's state; what it was before its turn, while that turn outruns its cancellation."""
        if self._overrun is not None and self._before is not None:
            return self._before
        return await self.participant.save_state()

    async def put_state(self, state: Mapping[str, Any]) -> None:
        """Load a state into the participant, or later, when a turn that outruns its cancellation has ended."""
        if self._overrun is not None:
            self._before = state
        else:
            await self.participant.load_state(state)

    async def roll_back(self) -> None:
        """Put the participant's state back to before the turn that was cut short, as far as it has a state to load.

        What cannot be put back is logged: the reason why the turn ended matters more.
        """
        if self._overrun is not None and self._overrun.done():
            self._overrun = None
        if self._before is None or self._overrun is not None:
            return
        before, self._before = self._before, None
        task = asyncio.ensure_future(self.participant.load_state(before))
        await asyncio.wait({task}, timeout=self.grace_s)
        if await settle(task, 0, f"{self.name!r} loading its state") and not task.cancelled() and task.exception():
            logger.warning("%r could not be put back to before its turn.", self.name, exc_info=task.exception())

    async def be_free(self) -> None:
        """Wait, within bounds, until a turn that outran its cancellation has ended, and undo it.

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
        listen: Callable[[CancellationToken], AsyncIterator[Any]],
    ) -> AsyncGenerator[Message | F, None]:
        """Yield what the participant yields; end early, and pull the brake, where it fails or the brake is pulled."""
        assert self.brake is not None
        brake = self.brake
        brake.turn = Turn(self.name, tuple(given))
        if brake.is_pulled:
            return
        items: asyncio.Queue[Message | F | None] = asyncio.Queue()
        token = CancellationToken()
        task = asyncio.create_task(self._relay(listen, token, final, items))

        def wake(_: asyncio.Future[Any]) -> None:
            items.put_nowait(None)

        task.add_done_callback(wake)
        brake.pulled.add_done_callback(wake)
        try:
            while (item := await items.get()) is not None and not brake.is_pulled:
                yield item
        finally:
            brake.pulled.remove_done_callback(wake)
            await self._end(task, token)
        if task.done() and not task.cancelled() and (error := task.exception() or task.result()):
            brake.pull(error)
        if not brake.is_pulled:
            brake.turn = None
            self._before = None

    async def _end(self, task: asyncio.Task[Any], token: CancellationToken) -> None:
        if not task.done():
            token.cancel()
        if not await settle(task, self.grace_s, f"The turn of {self.name!r}"):
            self._overrun = task

    async def _relay(
        self,
        listen: Callable[[CancellationToken], AsyncIterator[Any]],
        token: CancellationToken,
        final: type[F],
        items: asyncio.Queue[Message | F | None],
    ) -> BaseException | None:
        """Pass the participant's stream on; return what it raised, whatever it is, a stray `CancelledError` too."""
        try:
            await self.be_free()
            self._before = await self.snapshot()
            answered = False
            async for item in listen(token):
                self._check(item)
                answered = answered or isinstance(item, final)
                items.put_nowait(item)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (handed on, and raised by the team)
            return error
        return None if answered else RuntimeError(f"{self.name!r} ended its turn without a {final.__name__}.")

    async def snapshot(self) -> Mapping[str, Any] | None:
        """Return a copy of the participant's state; None where it can't save one."""
        try:
            # A copy: some agents hand out the very lists that they go on appending to.
            return copy.deepcopy(await self.participant.save_state())
        except Exception:  # an agent need not be able to save its state; its turn then can't be undone
            logger.debug("%r can't save its state.", self.name, exc_info=True)
            return None

    def _check(self, item: Any) -> None:
        """Refuse a message that would crash AutoGen's team later, and leave it stuck."""
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


class AgentGuard(_Guard[ChatAgent], ChatAgent):
    """Stands in for an agent."""

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the agent's answers."""
        return self.participant.produced_message_types

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        """Let the agent do one turn and return its answer."""
        async for item in self.on_messages_stream(messages, cancellation_token):
            if isinstance(item, Response):
                response = item
        return response

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Message | Response, None]:
        """Let the agent do one turn; where it is cut short, a marker is the answer."""
        given = list(messages)
        async for item in self._turn(given, Response, lambda token: self.participant.on_messages_stream(given, token)):
            yield item
        if self.brake is not None and self.brake.is_pulled:
            yield Response(chat_message=self.brake.marker)

    async def run(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> TaskResult:
        """Run the agent alone, unguarded: it has no turn then."""
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
        """Run the agent alone, unguarded: it has no turn then."""
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


class TeamGuard(_Guard[BaseTeam], BaseTeam):
    """Stands in for a team that is a participant."""

    async def run(
        self,
        *,
        task: Task = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> TaskResult:
        """Let the team do one turn and return its result."""
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
        """Let the team do one turn; where it is cut short, a marker is the result."""
        assert not isinstance(task, str | BaseChatMessage)
        given = list(task or ())

        def listen(token: CancellationToken) -> AsyncIterator[Any]:
            # A team refuses an empty list; it goes on with what it has when there is no task.
            return self.participant.run_stream(
                task=given or None, cancellation_token=token, output_task_messages=output_task_messages
            )

        async for item in self._turn(given, TaskResult, listen):
            yield item
        if self.brake is not None and self.brake.is_pulled:
            yield TaskResult(messages=[self.brake.marker])

    async def reset(self) -> None:
        """Reset the team."""
        await self.participant.reset()

    async def pause(self) -> None:
        """Pause the team."""
        await self.participant.pause()

    async def resume(self) -> None:
        """Resume the team."""
        await self.participant.resume()
