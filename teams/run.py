"""One run of a team: what it yields, what it has used, and how it is ended early."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from autogen_agentchat.base import ChatAgent, Response, TaskResult
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    MessageFactory,
    ModelClientStreamingChunkEvent,
    StructuredMessage,
    TextMessage,
)
from autogen_core import CancellationToken
from pydantic import BaseModel, Field

from autogen_codeact.agents.budget import Meter, Used

Message = BaseAgentEvent | BaseChatMessage
Task = str | BaseChatMessage | Sequence[BaseChatMessage] | None


def task_messages(task: Task, known: MessageFactory) -> list[BaseChatMessage]:
    if task is None:
        return []
    if isinstance(task, str):
        task = TextMessage(content=task, source="user")
    messages = [*task] if isinstance(task, Sequence) else [task]
    if not messages or (isinstance(task, TextMessage) and not task.content.strip()):
        raise ValueError("The task is empty: say what to do, or leave it out to go on with what was said before.")
    if not all(isinstance(message, BaseChatMessage) for message in messages):
        raise ValueError("A task is a text, a chat message or a list of chat messages.")
    for message in messages:
        if not known.is_registered(type(message)):
            raise unknown_type("The task has", message)
    return messages


def unknown_type(who: str, message: Message) -> ValueError:
    """Return the error over a message that the team could save but not load."""
    return ValueError(
        f"{who} a {type(message).__name__}, which the team doesn't know. "
        "Name the type in custom_message_types when you make the team."
    )


def message_types(
    participants: Sequence[ChatAgent | BaseTeam], custom: Sequence[type[Message]]
) -> tuple[MessageFactory, list[type[Message]]]:
    """Return every message type that a team knows, and those among them that AutoGen does not."""
    types = list(custom)
    for participant in participants:
        if isinstance(participant, ChatAgent):
            types += [t for t in participant.produced_message_types if issubclass(t, StructuredMessage)]
        else:
            types += getattr(participant, "_new_types", [])  # of a nested `Team`
    known, new = MessageFactory(), []
    for message_type in types:
        if not known.is_registered(message_type):
            known.register(message_type)
            new.append(message_type)
    return known, new


logger = logging.getLogger(__name__)
TIMER_S = 0.005  # a timer can be a little early


class SavedRun(BaseModel):
    """A run between two turns, as part of a team's state."""

    messages: list[str | dict[str, Any]] = Field(default_factory=list)  # those of the thread by their id
    batches: list[int] = Field(default_factory=list)  # lengths, as the termination condition was given them
    used: Used = Field(default_factory=Used)


class Run:
    """One run; whoever ends it first determines how it ends."""

    def __init__(
        self,
        meter: Meter,
        known: MessageFactory,
        messages: Sequence[Message] = (),
        batches: Sequence[Sequence[Message]] = (),
    ) -> None:
        self.meter = meter
        self._known = known
        self.messages = list(messages)
        self.batches = list(batches)
        self.events: asyncio.Queue[Message | None] = asyncio.Queue()  # None is the end
        self.error: BaseException | None = None
        self.reason: str | None = None
        self.is_over = False
        self.is_interrupted = False
        # The turns under way: theirs is everything below, and it is dropped if the run is interrupted.
        self.token = CancellationToken()
        self.turns: dict[str, asyncio.Task[None]] = {}
        self.position: Any = None  # that of the policy, once it has named who has these turns
        self.answers: dict[str, tuple[list[Message], list[BaseChatMessage]]] = {}

    def stop(self, error: BaseException | None = None, reason: str | None = None) -> None:
        """End the run in the middle of what it does."""
        if not self.is_over:
            self.is_interrupted = True
            self.error = error
            if reason is not None and (left := [name for name in self.turns if name not in self.answers]):
                reason += f" The turn of {' and '.join(left)} was not finished."
            self.finish(reason)
            try:
                self.token.cancel()  # now: the reader, who ends the turns, may be busy with what it has read
            except Exception:  # of a callback; the run ends all the same
                logger.warning("A callback of the run's cancellation token failed.", exc_info=True)

    def finish(self, reason: str | None) -> None:
        """End the run, which is between two turns."""
        if not self.is_over:
            self.is_over = True
            self.reason = reason
            self.events.put_nowait(None)

    def loop_ended(self, driver: asyncio.Task[str | None]) -> None:
        self.stop_if_failed(driver)
        if not self.is_over:
            self.finish(driver.result())

    def stop_if_failed(self, task: asyncio.Task[Any]) -> None:
        """Stop the run if a part of it ended with an exception."""
        try:
            task.result()
        except BaseException as error:  # noqa: BLE001 (raised by the run, CancelledError too)
            self.stop(error)

    def stop_with(self, token: CancellationToken) -> None:
        """Stop the run when a token is cancelled, in any thread."""
        loop, run = asyncio.get_running_loop(), weakref.ref(self)  # a token keeps its callbacks for as long as it lives

        def stop() -> None:
            if (live := run()) is not None:
                live.stop(asyncio.CancelledError("The cancellation token was cancelled."))

        def stop_on_loop() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(stop)

        token.add_callback(stop_on_loop)

    def emit(self, message: Message) -> None:
        """Yield a message, unless the run is over."""
        if self.is_over:
            return
        self.events.put_nowait(message)
        if not isinstance(message, ModelClientStreamingChunkEvent):
            self.messages.append(message)

    def take(self, participant: ChatAgent | BaseTeam, item: Any, *, counted: bool) -> None:
        """Take what a participant yields in its turn, and stop the run if that uses up its budget."""
        name, ends = participant.name, isinstance(item, Response | TaskResult)
        if isinstance(item, Response):
            messages, chat_messages = [*(item.inner_messages or ()), item.chat_message], [item.chat_message]
        else:
            messages = list(item.messages) if isinstance(item, TaskResult) else [item]
            chat_messages = [message for message in messages if isinstance(message, BaseChatMessage)]
        if unknown := [message for message in messages if not self._known.is_registered(type(message))]:
            self.stop(unknown_type(f"{name!r} produced", unknown[0]))
        if self.is_over:
            return
        if ends:
            self.answers[name] = messages, chat_messages
        if not isinstance(item, TaskResult):
            self.emit(messages[-1])
        if not counted:
            self.meter.add(None if isinstance(item, TaskResult) else messages[-1].models_usage, turns=int(ends))
        # A whole turn stays, and a nested team ends by itself where it is between two turns of its own.
        whole = ends and len(self.answers) == len(self.turns)
        if not whole and (ends or not counted) and (reason := self.meter.spent()) is not None:
            self.stop(reason=reason)

    def check_answered(self, participant: ChatAgent | BaseTeam) -> None:
        """Stop the run if a participant's stream ended without an answer."""
        if participant.name not in self.answers:
            final = "TaskResult" if isinstance(participant, BaseTeam) else "Response"
            self.stop(RuntimeError(f"{participant.name!r} ended its turn without a {final}."))

    @property
    def turn_messages(self) -> dict[str, tuple[list[Message], list[BaseChatMessage]]]:
        """For each speaker, in their order: all messages of its turn, and those that the other participants receive."""
        return {name: self.answers[name] for name in self.turns}

    def commit(self) -> dict[str, tuple[list[Message], list[BaseChatMessage]]]:
        """Make the turns under way part of the run; return their messages, as `turn_messages` has them."""
        turns = self.turn_messages
        self.batches.append([message for messages, _ in turns.values() for message in messages])
        self.turns, self.answers = {}, {}
        return turns

    def limit_seconds(self, nested: Callable[[], bool], grace_s: float) -> asyncio.TimerHandle | None:
        """Stop the run when its time is used up."""
        if (seconds := self.meter.seconds_left) is None:
            return None
        loop = asyncio.get_running_loop()

        def time_is_up() -> None:
            loop.call_later(grace_s if nested() else 0, lambda: self.stop(reason=self.meter.spent()))

        return loop.call_later(seconds + TIMER_S, time_is_up)

    def saved(self, thread: Sequence[Message]) -> dict[str, Any]:
        known = {message.id for message in thread}
        messages = [each.id if each.id in known else dict(each.dump()) for each in self.messages]
        return SavedRun(
            messages=messages, batches=[len(batch) for batch in self.batches], used=self.meter.used
        ).model_dump()
