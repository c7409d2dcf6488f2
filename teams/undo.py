"""Undoes interrupted turns of participants, also of those that ignore their cancellation and go on for a while."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from autogen_agentchat.base import ChatAgent, TerminationCondition
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.teams import BaseGroupChat

logger = logging.getLogger(__name__)

# asyncio itself holds tasks weakly; an abandoned one must not be garbage-collected.
_left: set[asyncio.Task[Any]] = set()


async def end_tasks(tasks: Mapping[str, asyncio.Task[Any]], grace_s: float) -> None:
    """Wait for the end of tasks that were cancelled, within bounds."""
    if tasks:
        await asyncio.wait(tasks.values(), timeout=grace_s)
    for what, task in tasks.items():
        if not task.done():
            logger.warning(
                "%s did not end within %.1f s of being cancelled. It keeps running; its output is discarded.",
                what,
                grace_s,
            )
            _left.add(task)
            task.add_done_callback(_forget)


def _forget(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # else asyncio reports it as never retrieved


async def close_all(parts: Sequence[Any]) -> None:
    """Close agents, teams and policies, each also if another one fails; then raise the first failure."""
    errors = []
    for part in parts:
        try:
            await part.close()
        except Exception as error:  # noqa: BLE001 (raised below)
            errors.append(error)
    if errors:
        raise errors[0]


async def snapshot(participant: ChatAgent | BaseTeam) -> Mapping[str, Any] | None:
    """Return a copy of a participant's state; None where it can't save one."""
    try:
        # A copy: some agents return the very lists to which they append later.
        return copy.deepcopy(await participant.save_state())
    except Exception:  # an agent need not be able to save its state; then its turn can't be undone
        logger.debug("%r can't save its state.", participant.name, exc_info=True)
        return None


class TeamLock:
    """Makes sure that a team does one thing at a time."""

    def __init__(self) -> None:
        self._holder: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Future[None] | None = None

    async def is_free(self) -> bool:
        """Wait for a run whose reader has left; return whether the team does nothing now."""
        for _ in range(3):
            # What ran in an event loop that was closed under it can't go on.
            if self._holder is None or self._holder.is_closed():
                return True
            # A stream that its reader left by `break` is closed by the event loop, a step or two later.
            await asyncio.sleep(0)
        if self._ending is not None:
            await asyncio.wait({self._ending})
        return self._holder is None

    @asynccontextmanager
    async def hold(self, refusal: Exception) -> AsyncIterator[None]:
        """Lock the team, or raise the refusal."""
        if not await self.is_free():
            raise refusal
        holder = self._holder = asyncio.get_running_loop()
        try:
            yield
        finally:
            if self._holder is holder:
                self._holder = None

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Let others wait, because the lock is released soon."""
        ending = self._ending = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._ending = None
            ending.set_result(None)


class Undo:
    """Undoes interrupted turns between two runs."""

    def __init__(
        self,
        participants: Sequence[ChatAgent | BaseTeam],
        condition: TerminationCondition | None,
        grace_s: float,
        busy_s: float,
    ) -> None:
        self._participants = {participant.name: participant for participant in participants}
        self._condition = condition
        self._grace_s = grace_s
        self._busy_s = busy_s
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._states: dict[str, Mapping[str, Any]] = {}
        self._before: dict[str, Mapping[str, Any] | None] = {}  # the states before the turns under way
        self._reset_is_due = False
        self._unusable: set[str] = set()

    async def begin(self, name: str) -> None:
        """Note the state of a participant whose turn begins; before that, `wait`."""
        await self.wait(name)
        self._before[name] = await snapshot(self._participants[name])

    def commit(self) -> None:
        """Leave the turns under way as they have ended."""
        self._before.clear()

    def add(self, turns: Mapping[str, asyncio.Task[None]]) -> None:
        """Note an interrupted run, with its turns under way."""
        # A turn that waits for an earlier one does not take its place.
        self._busy.update({name: task for name, task in turns.items() if not self._is_busy(name)})
        states = {name: state for name, state in self._before.items() if state is not None}
        autogens = {name for name in turns if isinstance(self._participants[name], BaseGroupChat)}
        self._unusable |= autogens
        self._states.update({name: state for name, state in states.items() if name not in autogens})
        self._before.clear()
        self._reset_is_due = True

    def _is_busy(self, name: str) -> bool:
        task = self._busy.get(name)
        if task is not None and (task.done() or task.get_loop().is_closed()):
            del self._busy[name]
        return name in self._busy

    async def undo(self) -> None:
        """Reset the termination condition, and put back whoever is not busy any more."""
        if self._reset_is_due:
            if self._condition is not None:
                await self._within_grace(self._condition.reset(), "Resetting the termination condition")
            self._reset_is_due = False
        for name in [name for name in self._states if not self._is_busy(name)]:
            await self._restore(name)

    async def _restore(self, name: str) -> None:
        loading = self._participants[name].load_state(self._states[name])
        await self._within_grace(loading, f"Restoring {name!r} to before its turn")
        self._states.pop(name, None)  # only now: whoever cancels this leaves it to the next run

    async def _within_grace(self, work: Any, what: str) -> None:
        """Do what may hang or fail; that is logged, not raised, because the reason why the run ended matters more."""
        task = asyncio.ensure_future(work)
        await asyncio.wait({task}, timeout=self._grace_s)
        if not task.done():
            task.cancel()
            await end_tasks({what: task}, 0)
        elif not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("%s failed.", what, exc_info=error)

    async def wait(self, name: str) -> None:
        """Wait until a participant's turn that ignored its cancellation has ended, and undo it."""
        if name in self._unusable:
            raise RuntimeError(
                f"{name!r} is a team of AutoGen's whose run was interrupted: its reset() does not make it usable again. "
                "Make it anew, or make it a Team, which goes on."
            )
        if self._is_busy(name):
            self._busy[name].cancel()
            await asyncio.wait({self._busy[name]}, timeout=self._busy_s)
            if self._is_busy(name):
                raise RuntimeError(
                    f"{name!r} is still busy with a turn that was cancelled before: it ignores its cancellation. "
                    "Wait until it has ended, or make it let asyncio.CancelledError through."
                )
        if name in self._states:
            await self._restore(name)

    async def state(self, name: str) -> Mapping[str, Any]:
        """Return a participant's state; that from before its turn, if one is under way or ignores its cancellation."""
        if (before := self._before.get(name)) is not None:
            return before
        if self._is_busy(name) and name in self._states:
            return self._states[name]
        return await self._participants[name].save_state()

    async def state_or_nothing(self, name: str) -> Mapping[str, Any]:
        """Return a participant's state; nothing where it can't save one."""
        try:
            return await self.state(name)
        except Exception:  # as in `snapshot`
            logger.debug("%r can't save its state.", name, exc_info=True)
            return {}

    async def set_state(self, name: str, state: Mapping[str, Any]) -> None:
        """Load a state into a participant; after a turn that ignores its cancellation, when that has ended."""
        if self._is_busy(name):
            self._states[name] = state
        else:
            await self._participants[name].load_state(state)
