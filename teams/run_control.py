"""Ends a run early: what a team, its proxies and its termination condition share during one run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from autogen_agentchat.base import TerminationCondition
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, StopMessage
from autogen_core import CancellationToken

T = TypeVar("T")

logger = logging.getLogger(__name__)

# asyncio itself holds tasks weakly; one that nobody awaits any longer must not be garbage-collected.
_abandoned: set[asyncio.Task[Any]] = set()


@dataclass(frozen=True)
class Turn:
    """A turn that has begun and not ended.

    Args:
        speaker: The participant's name.
        given: The messages that it received.
    """

    speaker: str
    given: tuple[BaseChatMessage, ...]


class RunControl:
    """Ends one run of a team; the first call of `stop` counts."""

    def __init__(self) -> None:
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: BaseException | None = None
        self.turn: Turn | None = None
        # Replaces the answer of the interrupted turn, so that AutoGen's team ends by itself, in order.
        self.marker = StopMessage(content="The run was cut short.", source="team")

    @property
    def is_stopped(self) -> bool:
        """Whether the run is to end."""
        return self.stopped.done()

    def stop(self, error: BaseException | None = None) -> None:
        """End the run.

        Args:
            error: What the run raises. Default: nothing, its caller has left.
        """
        if not self.is_stopped:
            self.error = error
            self.stopped.set_result(None)

    def stop_with(self, token: CancellationToken) -> None:
        """End the run when a token is cancelled, in any thread.

        A token keeps its callbacks for as long as it lives, and holds its lock while it calls them. So this callback references
        the run weakly, only schedules the rest, and ignores a closed event loop.
        """
        loop, control = asyncio.get_running_loop(), weakref.ref(self)

        def stop() -> None:
            if (live := control()) is not None:
                live.stop(asyncio.CancelledError("The cancellation token was cancelled."))

        def stop_on_loop() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(stop)

        token.add_callback(stop_on_loop)


async def cancel_and_wait(task: asyncio.Task[Any], grace_s: float, what: str) -> bool:
    """Cancel a task and wait for its end, within bounds.

    Args:
        task: The task.
        grace_s: Seconds that it has to end after the cancellation.
        what: Names the task in the warning that is logged when it does not end; it then runs on by itself.

    Returns:
        Whether it has ended.
    """
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=grace_s)
    if task.done():
        return True
    logger.warning("%s did not end within %.1f s of being cancelled. It is left running, unheard.", what, grace_s)
    _abandoned.add(task)
    task.add_done_callback(_forget)
    return False


def _forget(task: asyncio.Task[Any]) -> None:
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()  # else asyncio reports it as never retrieved


class StoppableTermination(TerminationCondition):
    """The team's own condition, which also ends when the run is stopped, and stops the run when it fails.

    Args:
        condition: The team's own condition; None for none.
        grace_s: Seconds that the condition has to end after it was cancelled.
    """

    def __init__(self, condition: TerminationCondition | None, grace_s: float) -> None:
        self._condition = condition
        self._grace_s = grace_s
        self.control: RunControl | None = None

    @property
    def terminated(self) -> bool:
        """Whether the team's own condition has been reached."""
        return self._condition is not None and self._condition.terminated

    async def __call__(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> StopMessage | None:
        """Return why the run ends, or None."""
        assert self.control is not None
        stop: StopMessage | None = None
        if self._condition is not None and not self.control.is_stopped:
            stop = await self._unless_stopped(self.control, self._condition(messages))
        return self.control.marker if self.control.is_stopped else stop

    async def reset(self) -> None:
        """Reset the team's own condition, unless the run was stopped: then the team does it."""
        if self._condition is not None and self.control is not None and not self.control.is_stopped:
            await self._unless_stopped(self.control, self._condition.reset())

    async def _unless_stopped(self, control: RunControl, work: Coroutine[Any, Any, T]) -> T | None:
        task = asyncio.create_task(work)
        either: set[asyncio.Future[Any]] = {task, control.stopped}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not await cancel_and_wait(task, self._grace_s, "The termination condition"):
            return None
        if task.cancelled():
            control.stop(asyncio.CancelledError("The termination condition was cancelled."))
        elif error := task.exception():
            control.stop(error)
        else:
            return task.result()
        return None
