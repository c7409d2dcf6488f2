"""Ending a run early: what a team, its guards and its termination condition share while one run lasts."""

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

# asyncio itself holds tasks weakly; one that nobody waits for any more must not be collected half-way.
_abandoned: set[asyncio.Task[Any]] = set()


@dataclass(frozen=True)
class Turn:
    """A turn that has begun and not ended.

    Args:
        speaker: The participant's name.
        given: The messages that it was given.
    """

    speaker: str
    given: tuple[BaseChatMessage, ...]


class Brake:
    """Ends one run of a team: whoever holds it may pull it, the first pull counts."""

    def __init__(self) -> None:
        self.pulled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: BaseException | None = None
        self.turn: Turn | None = None
        # Stands where the answer of the interrupted turn would: AutoGen's team then ends by itself, in order.
        self.marker = StopMessage(content="The run was cut short.", source="team")

    @property
    def is_pulled(self) -> bool:
        """Whether the run is to end."""
        return self.pulled.done()

    def pull(self, error: BaseException | None = None) -> None:
        """End the run.

        Args:
            error: What the run is to raise. Default: nothing, its caller has gone.
        """
        if not self.is_pulled:
            self.error = error
            self.pulled.set_result(None)

    def obey(self, token: CancellationToken) -> None:
        """Let a token pull the brake, from whatever thread it is cancelled in.

        A token keeps its callbacks for as long as it lives and holds its lock while it calls them. So this one holds
        the run weakly, does next to nothing, and does not mind that the loop may be closed by then.
        """
        loop, brake = asyncio.get_running_loop(), weakref.ref(self)

        def pull() -> None:
            if (live := brake()) is not None:
                live.pull(asyncio.CancelledError("The cancellation token was cancelled."))

        def pull_in_the_loop() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(pull)

        token.add_callback(pull_in_the_loop)


async def settle(task: asyncio.Task[Any], grace_s: float, what: str) -> bool:
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
        task.exception()  # asyncio complains about an exception that nobody looked at


class BrakedTermination(TerminationCondition):
    """The team's own condition, which also ends the run when the brake is pulled or when the condition itself fails.

    Args:
        condition: The team's own condition; None for none.
        grace_s: Seconds that the condition has to end after it was cancelled.
    """

    def __init__(self, condition: TerminationCondition | None, grace_s: float) -> None:
        self._condition = condition
        self._grace_s = grace_s
        self.brake: Brake | None = None

    @property
    def terminated(self) -> bool:
        """Whether the team's own condition has been reached."""
        return self._condition is not None and self._condition.terminated

    async def __call__(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> StopMessage | None:
        """Return why the run ends, or None."""
        assert self.brake is not None
        stop: StopMessage | None = None
        if self._condition is not None and not self.brake.is_pulled:
            stop = await self._heeding(self.brake, self._condition(messages))
        return self.brake.marker if self.brake.is_pulled else stop

    async def reset(self) -> None:
        """Reset the team's own condition, unless the run is being cut short: the team does it then."""
        if self._condition is not None and self.brake is not None and not self.brake.is_pulled:
            await self._heeding(self.brake, self._condition.reset())

    async def _heeding(self, brake: Brake, work: Coroutine[Any, Any, T]) -> T | None:
        task = asyncio.create_task(work)
        either: set[asyncio.Future[Any]] = {task, brake.pulled}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not await settle(task, self._grace_s, "The termination condition"):
            return None
        if task.cancelled():
            brake.pull(asyncio.CancelledError("The termination condition was cancelled."))
        elif error := task.exception():
            brake.pull(error)
        else:
            return task.result()
        return None
