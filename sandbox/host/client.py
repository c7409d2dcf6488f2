"""The host's client of a runner: starts it, sends it requests, and stops it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from autogen_codeact.sandbox.egress.gateway import Gateway
from autogen_codeact.sandbox.errors import (
    SandboxDied,
    SandboxError,
    SandboxFileError,
    SandboxStartError,
    SandboxTimeout,
    SandboxUnavailable,
)
from autogen_codeact.sandbox.files.filenames import printable
from autogen_codeact.sandbox.files.temporary_folder import remove_abandoned_in_background
from autogen_codeact.sandbox.host import bootstrap, protocol
from autogen_codeact.sandbox.host.connection import Connection, OutputCallback, Reply, State
from autogen_codeact.sandbox.host.environment import interpreter_variables
from autogen_codeact.sandbox.host.messages import Hello, RunnerSettings, checked_entries, number_of
from autogen_codeact.sandbox.host.protocol import Frame
from autogen_codeact.sandbox.host.runner_modules import RunnerModules
from autogen_codeact.sandbox.host.stream import ByteStream, Calls, Launcher
from autogen_codeact.sandbox.host.waiting import Completion, CrossLoopSemaphore, iterating, wait_for

logger = logging.getLogger("autogen_codeact")

CHUNK = 256 * 1024
OUTPUT_SLACK = 64 * 1024
ANSWER_TIMEOUT_S = 20.0
KEEP_ALIVES_PER_LEASE = 4
# An engine that starts dozens of containers at once answers none of them in time.
STARTS_AT_ONCE = 8
CANCEL_TIMEOUT_S = 5.0
MAX_UNDELIVERED = 20_000
RESET_SLACK_S = 1.0
MAX_PROBLEM = 500
_starts: defaultdict[str, CrossLoopSemaphore] = defaultdict(lambda: CrossLoopSemaphore(STARTS_AT_ONCE))


class RunnerClient:
    """A runner in a sandbox, from start to stop.

    Args:
        launcher: Starts the sandbox.
        settings: How its runner behaves.
        name: Name of the sandbox, for messages.
        start_timeout_s: How long the runner may take to send its hello, in seconds.
        grace_s: How long after a block's deadline its result may come, in seconds.
        gateway: Connects the code to the allowed hosts, or None for no network.
    """

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
        self.settings = settings
        self.name = name
        self.gateway = gateway
        self._launcher = launcher
        self._start_timeout_s = start_timeout_s
        self._grace_s = grace_s
        self.undelivered: dict[str, dict[str, Any]] = {}
        """Files of cancelled blocks, by name; they are not on the host yet."""
        self.hello: Hello | None = None
        """The runner's first message; None before the start."""
        self._connection: Connection | None = None
        self._idents = itertools.count(1)
        self._stop_lock = threading.Lock()
        self._time_limits: dict[int, float] = {}
        self._calls: dict[int, Calls] = {}
        self.give_back: Callable[[RunnerClient], bool] | None = None
        """Called at the end of a use; returns whether the sandbox stays for another one."""
        self._use_lock = threading.Lock()
        self._given_back = False

    @property
    def engine(self) -> str | None:
        """Name of the engine that runs it, if the user has chosen one."""
        return self._launcher.host_name

    @property
    def python(self) -> Hashable | None:
        """What identifies its Python and the packages of its image; None if that is not known."""
        return self._launcher.python

    @property
    def alive(self) -> bool:
        """Whether it can run blocks."""
        return self._connection is not None and self._connection.state is State.READY

    def when_ended(self, callback: Callable[[SandboxError], None]) -> None:
        """Call a function when a started sandbox has ended, for whatever reason.

        Args:
            callback: Called once, in some thread, with the reason; at once if it has ended already.
        """
        assert self._connection is not None
        self._connection.ended.add_done_callback(lambda ended: callback(ended.result()))

    async def start(self) -> Hello:
        """Start it. Of the sandboxes that share an engine, at most `STARTS_AT_ONCE` start at the same time.

        Returns:
            The runner's first message.

        Raises:
            SandboxError: It did not start; nothing is left of it.
            asyncio.CancelledError: The start was cancelled. Nothing is left of it, or will be when an engine that hangs answers.
        """
        engine = self._launcher.engine
        async with _starts[engine] if engine is not None else contextlib.nullcontext():
            return await self._start()

    def cancel_start(self) -> None:
        """Let a start that runs fail early where it takes long."""
        self._launcher.cancel()

    async def _start(self) -> Hello:
        launched = Completion[ByteStream]()
        threading.Thread(target=self._launch, args=(launched,), name=f"codeact-start-{self.name}").start()
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
            remove_abandoned_in_background()
            boot = bootstrap.boot(interpreter_variables(self.settings.environment))
            launched.set_result(self._launcher.launch(boot))
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

        threading.Thread(target=undo, name=f"codeact-undo-{self.name}").start()
        with contextlib.suppress(SandboxTimeout):
            await wait_for(undone, CANCEL_TIMEOUT_S, "the engine has not answered")

    async def _configure(self, stream: ByteStream) -> Hello:
        """Send the runner its modules and its configuration, and wait for its hello."""
        lease_s = stream.lease_s(self.settings.lease_s) if self.settings.lease_s is not None else None
        keep_alive_s = lease_s / KEEP_ALIVES_PER_LEASE if lease_s is not None else None
        connection = self._connection = Connection(stream, self.name, keep_alive_s=keep_alive_s)
        if self.gateway is not None:
            self.gateway.attach(connection, self.name)
        self._take_calls(connection)
        modules = RunnerModules(connection, self._launcher.python)
        connection.open()
        modules.send()
        connection.send(protocol.pack(Frame.CONFIGURATION, 0, {**vars(self.settings), "lease_s": lease_s}))
        try:
            message = await wait_for(connection.hello, self._start_timeout_s, f"the sandbox {self.name} did not start")
        except SandboxTimeout:
            modules.forget()
            raise
        except SandboxError as error:
            modules.forget()
            if stream.lost is not None:
                raise SandboxUnavailable(f"the sandbox did not start: {stream.lost}") from error
            raise SandboxStartError(f"the sandbox did not start: {error}") from error
        hello = self.hello = Hello.parse(message)
        hello.check()
        return hello

    def _take_calls(self, connection: Connection) -> None:
        for kind in (Frame.TOOL_CALL, Frame.CANCEL_CALL):
            connection.handlers[kind] = partial(self._on_call_frame, kind)

    def _on_call_frame(self, kind: Frame, ident: int, payload: bytes) -> None:
        calls = self._calls.get(ident)
        if calls is not None:
            calls.on_frame(kind, payload)

    async def stop(self) -> None:
        """Stop it and everything in it; repeated calls are harmless."""
        await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(self.stop_blocking)))

    async def end_use(self) -> None:
        """End its use: it stays for another one if its pool takes it back, and is stopped if not."""
        if self.give_back is None or not self.give_back(self):
            await self.stop()

    def renew(self) -> RunnerClient | None:
        """Make the client for the next use of the sandbox, which has nothing of this one; this one can't be used any more.

        Returns:
            The new client; `reset_blocking` comes first. None if something of this use still goes on.
        """
        # A stop that runs keeps the lock for as long as the engine takes; the caller may be an event loop.
        if not self._stop_lock.acquire(blocking=False):
            return None
        try:
            with self._use_lock:
                connection = self._connection
                if connection is None or not connection.is_quiet or self._calls or self._time_limits:
                    return None
                if self.gateway is not None and not self.gateway.renew():
                    return None
                following = RunnerClient(
                    self._launcher,
                    self.settings,
                    self.name,
                    start_timeout_s=self._start_timeout_s,
                    grace_s=self._grace_s,
                    gateway=self.gateway,
                )
                # The numbers go on: an answer that comes late can't be taken for one of the next use.
                following.hello, following._idents = self.hello, self._idents
                following._connection, self._connection, self._given_back = connection, None, True
                following._take_calls(connection)
            return following
        finally:
            self._stop_lock.release()

    def reset_blocking(self, timeout_s: float) -> str | None:
        """End and remove everything of the uses so far, in a thread.

        Args:
            timeout_s: How long that may take, in seconds.

        Returns:
            None, or why the sandbox must not be used again.
        """
        try:
            reply = self._send(Frame.RESET, {"seconds": timeout_s}).result(timeout_s + RESET_SLACK_S)
        except TimeoutError:
            return f"it was not reset within {timeout_s:g} s"
        except SandboxError as error:
            return str(error)
        problem = reply.message.get("problem", "it gave no answer")
        return None if problem is None else printable(str(problem)[:MAX_PROBLEM])

    def stop_blocking(self) -> None:
        """Stop it, in a thread; a second call waits for the first."""
        with self._stop_lock:
            if self._given_back:
                return
            connection = self._connection
            try:
                if connection is not None:
                    connection.close(self._grace_s)
                self._launcher.kill()
            finally:
                if self.gateway is not None:
                    self.gateway.close()
                self._launcher.close()

    async def run(
        self,
        request: dict[str, Any],
        code: bytes,
        timeout_s: float,
        on_output: OutputCallback | None = None,
        calls: Calls | None = None,
        *,
        on_sent: Callable[[], None] | None = None,
    ) -> Reply:
        """Run one block.

        Args:
            request: The message that describes it.
            code: The code.
            timeout_s: How long it may run, in seconds.
            on_output: Called with its output as it comes, in another thread.
            calls: Answers its calls to host tools; None if it can't make any.
            on_sent: Called when the block has been sent; does not raise.

        Returns:
            The block's result and output.

        Raises:
            SandboxError: The sandbox broke.
            asyncio.CancelledError: The caller was cancelled; the block is dead by then.
        """
        ident = next(self._idents)
        room = 2 * self.settings.output_limit + OUTPUT_SLACK
        message = {**request, "timeout": float(timeout_s), "tools": calls is not None}
        with self._use_lock:
            connection = self._connection
            if connection is None:
                raise self._not_usable()
            if calls is not None:
                send = connection.send
                calls.open(lambda answer: send(protocol.pack(Frame.TOOL_ANSWER, ident, None, answer)))
                self._calls[ident] = calls
            reply = connection.request(Frame.RUN_BLOCK, ident, message, code, output_room=room, on_output=on_output)
            # Blocks that were sent before may have to end first.
            self._time_limits[ident] = timeout_s + self._grace_s
        try:
            limit = sum(list(self._time_limits.values()))
            if on_sent is not None:
                on_sent()
            return await wait_for(reply, limit, f"the sandbox {self.name} did not answer within {limit:g} s")
        except asyncio.CancelledError:
            await self._kill_block(connection, ident, reply)
            raise
        except SandboxTimeout:
            await self.stop()
            raise
        finally:
            del self._time_limits[ident]
            self._calls.pop(ident, None)

    async def _kill_block(self, connection: Connection, ident: int, reply: Future[Reply]) -> None:
        """Kill a block and wait for its death."""
        if ident in self._calls:
            self._calls[ident].end()
        connection.send(protocol.pack(Frame.KILL_BLOCK, ident, {}))
        try:
            killed = await wait_for(reply, self._grace_s, "the sandbox did not confirm the cancellation")
            self.add_undelivered(checked_entries(killed.message.get("files", [])))
        except SandboxTimeout as error:
            logger.warning("%s; it is stopped", error)
            await self.stop()
        except SandboxError:
            pass  # the sandbox has ended, and the block with it

    def interrupt(self) -> bool:
        """Kill the blocks that run; whoever waits for one gets its result, with the error `sandbox.result.STOPPED`.

        Returns:
            Whether there was one.
        """
        connection = self._connection
        running = list(self._time_limits)
        if connection is None or not running:
            return False
        for ident in running:
            if (calls := self._calls.get(ident)) is not None:
                calls.end()
            connection.send(protocol.pack(Frame.KILL_BLOCK, ident, {}))
        return True

    def add_undelivered(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Record files of a cancelled block: the runner does not report them again."""
        for entry in entries:
            self.undelivered[entry["name"]] = {"name": entry["name"], "size": entry["size"], "mode": entry["mode"]}
        for name in list(itertools.islice(self.undelivered, max(0, len(self.undelivered) - MAX_UNDELIVERED))):
            del self.undelivered[name]

    async def command(self, kind: bytes, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request about the session (checkpoint, rollback).

        Returns:
            The answer.

        Raises:
            ValueError: The runner refused; the text says why.
            SandboxError: The sandbox broke.
        """
        reply = await self._answer(self._send(kind, message))
        if "error" in reply.message:
            raise ValueError(str(reply.message["error"]))
        return reply.message

    async def write_file(self, name: str, mode: int, chunks: Iterable[bytes] | AsyncIterable[bytes]) -> None:
        """Send a file into the sandbox.

        Args:
            name: Its path in the sandbox, relative to the workspace or absolute.
            mode: Its permissions.
            chunks: Its content, in pieces of about 256 KiB at most.

        Raises:
            SandboxFileError: The sandbox could not store it.
        """
        ident = next(self._idents)
        begun = False
        waiting = b""
        async with iterating(chunks) as pieces:
            try:
                async for chunk in pieces:
                    if waiting:
                        begun = True
                        await self.file_request({"op": "write", "name": name}, waiting, ident)
                    waiting = chunk
                last = {"op": "write", "name": name, "mode": mode, "final": True}
                await self.file_request(last, waiting, ident)
            except BaseException:
                if begun:
                    # Nobody waits for the answer. It removes the part that was sent.
                    self._send(Frame.FILE_REQUEST, {"op": "write", "abandon": True}, ident=ident)
                raise

    async def read_file(self, name: str) -> AsyncGenerator[tuple[bytes, int], None]:
        """Read a file of the sandbox.

        Args:
            name: Its path in the sandbox, relative to the workspace or absolute.

        Yields:
            Pieces of its content, each with the size of the whole.

        Raises:
            SandboxFileError: It does not exist, or is not a regular file.
        """
        offset = 0
        while True:
            request = {"op": "read", "name": name, "offset": offset, "size": CHUNK}
            reply = await self.file_request(request)
            yield reply.data, number_of(reply.message, "size")
            offset += len(reply.data)
            if len(reply.data) < CHUNK:
                return

    async def answers(self, timeout_s: float) -> bool:
        """Return whether it answers a request that takes no work.

        Args:
            timeout_s: How long that may take, in seconds.
        """
        try:
            await wait_for(self._send(Frame.FILE_REQUEST, {"op": "list"}), timeout_s, "it did not answer")
        except SandboxError:
            return False
        return True

    async def list_files(self) -> list[dict[str, Any]]:
        """List the regular files of the workspace, each with `name`, `size` and `mode`."""
        return checked_entries((await self.file_request({"op": "list"})).message.get("files"))

    async def file_request(self, message: dict[str, Any], data: bytes = b"", ident: int | None = None) -> Reply:
        """Send a request about files.

        Args:
            message: The request.
            data: The bytes after it.
            ident: Its number. Default: a new one.

        Raises:
            SandboxFileError: The runner could not do it.
        """
        reply = await self._answer(self._send(Frame.FILE_REQUEST, message, data, ident))
        if "error" in reply.message:
            number = number_of(reply.message, "errno")
            raise SandboxFileError(number, str(reply.message["error"]), message.get("name"))
        return reply

    async def _answer(self, reply: Future[Reply]) -> Reply:
        """Wait for the answer to a request that takes little work; stop the sandbox if it does not come in time."""
        try:
            late = f"the sandbox {self.name} did not answer within {ANSWER_TIMEOUT_S:g} s"
            return await wait_for(reply, ANSWER_TIMEOUT_S, late)
        except SandboxTimeout:
            await self.stop()
            raise

    def _send(self, kind: bytes, message: dict[str, Any], data: bytes = b"", ident: int | None = None) -> Future[Reply]:
        """Send a request; the future fails if the sandbox has ended."""
        with self._use_lock:
            if self._connection is None:
                raise self._not_usable()
            return self._connection.request(kind, ident if ident is not None else next(self._idents), message, data)

    def _not_usable(self) -> SandboxError:
        """Return why it has no connection."""
        if self._given_back:
            return SandboxDied(f"this use of the sandbox {self.name} has ended: start again")
        return SandboxStartError("the sandbox has not been started")
