"""Sandboxes that are found by a key, each for one user: made when it is first needed, ended when it was idle for long."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable

from codeact_sandbox.session.async_sandbox import AsyncSandbox
from codeact_sandbox.types.errors import SandboxError

logger = logging.getLogger("codeact_sandbox")


class _Session:
    """A sandbox, how many use it now, and what ends it when it was idle for long."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self.sandbox = sandbox
        self.users = 0
        self.timer: asyncio.TimerHandle | None = None


class KeyedSandboxes:
    """The sandboxes of all users, in one event loop.

    Args:
        most: Sandboxes at the same time. For a further one, that which was not used for longest is ended.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._sessions

    @contextlib.asynccontextmanager
    async def use(self, key: str, make: Callable[[], AsyncSandbox], idle_s: float) -> AsyncIterator[AsyncSandbox]:
        """Yield the sandbox of a key, which is not ended meanwhile."""
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = _Session(make())
        self._sessions.move_to_end(key)
        session.users += 1
        if session.timer is not None:
            session.timer.cancel()
        try:
            await self._make_room()
            yield session.sandbox
        finally:
            session.users -= 1
            if not session.users and self._sessions.get(key) is session:
                loop = asyncio.get_running_loop()
                session.timer = loop.call_later(idle_s, self._expire, key)

    async def end(self, key: str) -> None:
        session = self._sessions.pop(key, None)
        if session is None:
            return
        if session.timer is not None:
            session.timer.cancel()
        await session.sandbox.stop()

    async def end_all(self) -> None:
        await asyncio.gather(*map(self.end, list(self._sessions)), *self._ending, return_exceptions=True)

    def _expire(self, key: str) -> None:
        task = asyncio.create_task(self._end_quietly(key))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end_quietly(self, key: str) -> None:
        try:
            await self.end(key)
        except SandboxError as error:
            logger.warning("an idle sandbox could not be stopped: %s", error)

    async def _make_room(self) -> None:
        if len(self._sessions) > self._most:
            key = next((key for key, each in self._sessions.items() if not each.users), None)
            if key is None:
                self._sessions.popitem()  # the new one, which has not been started
                raise SandboxError(f"all {self._most} sessions are in use: try again later")
            await self.end(key)
