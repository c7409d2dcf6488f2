"""The pool as callers have it: sandboxes that are ready, and one for each user."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import cached_property, partial
from typing import Unpack

from codeact_sandbox.session.async_sandbox import AsyncSandbox
from codeact_sandbox.session.keyed_sandboxes import KeyedSandboxes
from codeact_sandbox.session.pool import Pool
from codeact_sandbox.types.limits import parse_seconds
from codeact_sandbox.types.option_types import SandboxKeywords


class SandboxPool(Pool):
    """Keeps sandboxes started, each for one use: a lease, from `acquire` until the sandbox is stopped.

    `AsyncSandbox(pool=pool)` takes a started sandbox instead of starting one. When it stops, its sandbox ends; the pool has
    started another one in the background. Use it with `async with`, or with `start` and `stop`. It serves several event loops
    and threads.

    Args:
        size: Sandboxes that are started in advance. Default 2. With 0 each is started when it is requested.
        backend: "docker", "bubblewrap", or "auto" (the default): Docker if an engine answers, else bubblewrap. Or the options
            of the sandboxes.
        tools: Functions of this process that the code can call.
        max_alive: Sandboxes that exist at the same time, those in use included. Further requests wait. Default 32.
        acquire_timeout: Seconds that a request waits for a sandbox. Default 60.
        progress: Called with a line for each step that takes long. By default it goes to standard error.
        options: Fields of `DockerOptions` or `BubblewrapOptions`. Default of `mode`: "session".

    Raises:
        TypeError: An option is unknown or has a wrong type.
        ValueError: An argument is invalid; the message says which.
    """

    @cached_property
    def _sessions(self) -> KeyedSandboxes:
        return KeyedSandboxes(self.max_alive)

    async def stop(self) -> None:
        """Stop all sandboxes, those in use included; repeated calls, also before `start`, are harmless."""
        await self._sessions.end_all()
        await super().stop()

    def session(
        self, key: str, *, idle: float = 600, **options: Unpack[SandboxKeywords]
    ) -> AbstractAsyncContextManager[AsyncSandbox]:
        """Return the sandbox of a key, such as a user's name, as `async with pool.session(key) as box`.

        The first use of a key takes a sandbox of the pool; later ones have its variables and files. Blocks of uses at the same
        time run one after the other. It ends when it was idle for long, when room is needed for another key, with
        `end_session`, and with the pool; files of `work_dir` stay. All uses are in one event loop.

        Args:
            key: What the sandbox is found by.
            idle: Seconds without a use after which it ends.
            options: As for `AsyncSandbox`; they count at the first use.

        Raises:
            SandboxError: All sandboxes are in use.
        """
        parse_seconds("idle", idle)

        make = partial(AsyncSandbox, pool=self, tools=self._given_tools, **options)
        return self._sessions.use(key, make, idle)

    async def end_session(self, key: str) -> None:
        """End the sandbox of a key, if there is one."""
        await self._sessions.end(key)
