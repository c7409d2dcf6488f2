"""The host's client of a runner, from its start to its stop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from codeact_sandbox.host import protocol
from codeact_sandbox.host.connection import Connection, State
from codeact_sandbox.host.processes import Processes
from codeact_sandbox.host.protocol import Hello, RunnerSettings
from codeact_sandbox.host.requests import Requests, RunningBlocks
from codeact_sandbox.host.runner_modules import RunnerModules, boot
from codeact_sandbox.host.stream import ByteStream, Launcher
from codeact_sandbox.host.threads import start_thread
from codeact_sandbox.host.waiting import Completion, CrossLoopSemaphore, wait_for
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.types.environment import interpreter_variables
from codeact_sandbox.types.errors import SandboxError, SandboxStartError, SandboxTimeout

if TYPE_CHECKING:
    from codeact_sandbox.network.channels import Channels
    from codeact_sandbox.network.gateway import Gateway

KEEP_ALIVES_PER_LEASE = 4
# An engine that starts dozens of containers at once answers none of them in time.
STARTS_AT_ONCE = 8
CANCEL_TIMEOUT_S = 5.0
_starts: defaultdict[str, CrossLoopSemaphore] = defaultdict(lambda: CrossLoopSemaphore(STARTS_AT_ONCE))


class RunnerClient:
    def __init__(
        self,
        launcher: Launcher,
        settings: RunnerSettings,
        name: str,
        *,
        start_timeout_s: float = 60.0,
        grace_s: float = 10.0,
        gateway: Gateway | None = None,
    ) -> None:
        self.name = name
        self.requests = Requests(
            name, self.stop, settings.output_limit, grace_s
        )  # requests about files and the session
        self.blocks = RunningBlocks(self.requests)
        self.processes = Processes(self.requests)
        self._grace_s = grace_s
        self.settings = settings
        self.gateway = gateway
        self.ports: Channels | None = None  # the forwarded ports, if there have been any
        self._launcher = launcher
        self._start_timeout_s = start_timeout_s
        self.hello: Hello | None = None  # the runner's first message; None before the start
        self._stop_lock = threading.Lock()

    @property
    def alive(self) -> bool:
        return self.requests.connection is not None and self.requests.connection.state is State.READY

    def when_ended(self, callback: Callable[[SandboxError], None]) -> None:
        """Call a function when a started sandbox has ended, for whatever reason."""
        assert self.requests.connection is not None
        self.requests.connection.ended.add_done_callback(lambda ended: callback(ended.result()))

    async def start(self) -> Hello:
        """Start it. Of the sandboxes that share an engine, at most `STARTS_AT_ONCE` start at the same time."""
        engine = self._launcher.engine
        async with _starts[engine] if engine is not None else contextlib.nullcontext():
            return await self._start()

    def cancel_start(self) -> None:
        """Let a start that runs fail early where it takes long."""
        self._launcher.cancel()

    async def _start(self) -> Hello:
        launched = Completion[ByteStream]()
        start_thread(f"codeact-start-{self.name}", self._launch, launched, daemon=False)
        try:
            stream = await asyncio.wrap_future(launched)
        except asyncio.CancelledError:
            await self._undo_launch(launched)
            raise
        finally:
            # Its exception refers to this function's variables: together they would keep sockets open.
            del launched
        try:
            return await self._configure(stream)
        except BaseException:
            await asyncio.to_thread(self.stop_blocking)
            raise

    def _launch(self, launched: Future[ByteStream]) -> None:
        try:
            variables = interpreter_variables(self.settings.environment)
            launched.set_result(self._launcher.launch(boot(variables)))
        except BaseException as error:  # noqa: BLE001 - it is raised where the launch is awaited
            self._launcher.close()
            launched.set_exception(error)
            del launched  # as in `_start`

    async def _undo_launch(self, launched: Future[ByteStream]) -> None:
        """End a sandbox whose start was cancelled, as soon as it is there; the event loop may be closed by then."""
        undone = Completion[None]()
        self._launcher.cancel()

        def undo() -> None:
            try:
                if launched.exception() is None:
                    launched.result().close()
                    self._launcher.kill()
                    self._launcher.close()
            finally:
                undone.set_result(None)

        start_thread(f"codeact-undo-{self.name}", undo, daemon=False)
        with contextlib.suppress(SandboxTimeout):
            await wait_for(undone, CANCEL_TIMEOUT_S, "the engine has not answered")

    async def _configure(self, stream: ByteStream) -> Hello:
        """Send the runner its modules and its configuration, and wait for its hello."""
        lease_s = stream.lease_s
        keep_alive_s = lease_s / KEEP_ALIVES_PER_LEASE if lease_s is not None else None
        connection = self.requests.connection = Connection(stream, self.name, keep_alive_s=keep_alive_s)
        if self.gateway is not None:
            self.gateway.attach(connection, self.name)
        self.blocks.take_calls(connection)
        self.processes.attach(connection)
        modules = RunnerModules(connection, self._launcher.python)
        connection.open()
        modules.send()
        connection.send(protocol.pack(wire.CONFIGURATION, 0, {**vars(self.settings), "lease_s": lease_s}))
        try:
            message = await wait_for(connection.hello, self._start_timeout_s, f"the sandbox {self.name} did not start")
        except SandboxTimeout:
            modules.forget()
            raise
        except SandboxError as error:
            modules.forget()
            raise SandboxStartError(f"the sandbox did not start: {error}") from error
        hello = self.hello = Hello.parse(message)
        hello.check()
        return hello

    async def stop(self) -> None:
        await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(self.stop_blocking)))

    def stop_blocking(self) -> None:
        """Stop it, in a thread; a second call waits for the first."""
        with self._stop_lock:
            connection = self.requests.connection
            try:
                if connection is not None:
                    connection.close(self._grace_s)
                self._launcher.kill()
            finally:
                for each in (self.gateway, self.ports):
                    if each is not None:
                        each.close()
                self._launcher.close()
