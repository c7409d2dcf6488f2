"""The host's client of a runner: starts it, sends it requests, and stops it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Protocol

from autogen_codeact.executors.checks import check_hello, checked_entries, number_of
from autogen_codeact.sandbox.egress.gateway import Gateway
from autogen_codeact.sandbox.errors import SandboxError, SandboxFileError, SandboxStartError, SandboxTimeout
from autogen_codeact.sandbox.files.temporary_folder import remove_abandoned_in_background
from autogen_codeact.sandbox.host import protocol
from autogen_codeact.sandbox.host.connection import Connection, Listener, Reply
from autogen_codeact.sandbox.host.environment import interpreter_variables
from autogen_codeact.sandbox.host.loops import Promise, within
from autogen_codeact.sandbox.host.stream import ByteStream, Launcher
from autogen_codeact.sandbox.host.turns import Turns
from autogen_codeact.sandbox.limits import CheckpointMode

logger = logging.getLogger("autogen_codeact")

CHUNK = 256 * 1024
OUTPUT_SLACK = 64 * 1024
ANSWER_TIMEOUT_S = 20.0
WORDS_PER_LEASE = 4
# An engine that starts dozens of containers at once answers none of them in time.
STARTS_AT_ONCE = 8
CANCEL_PATIENCE_S = 5.0
MOST_MISSED = 20_000
_starts: defaultdict[str, Turns] = defaultdict(lambda: Turns(STARTS_AT_ONCE))


@dataclass(frozen=True)
class RunnerSettings:
    """How the runner is to behave; it becomes the first message to it.

    Args:
        mode: `process` or `session`.
        workspace: The working directory in the sandbox.
        preload: Modules imported ahead.
        output_limit: Bytes of output kept of each stream of a block.
        split_streams: Whether standard output and error are kept apart.
        checkpoint: Whether a session is checkpointed before each block; "adaptive" where that is worth what it costs.
        memory_bytes: The sandbox's memory limit, or None.
        rlimits: Resource limits of everything in the sandbox but the supervisor, by the name behind `RLIMIT_`.
        rlimit_without_cgroup: Further ones for where no control group bounds the sandbox.
        concurrency: Blocks that run at the same time in process mode; the others wait for their turn.
        proxy: How the supervisor offers a way out (`Gateway.SETTINGS`), or None for no network at all.
        lease_s: Seconds without a word from the host after which the runner ends itself, where the stream crosses a network;
            the stream itself decides about others. None for no such limit.
        tools: Host tools for the code: `sources` of their stubs by name, `in_flight` and `call_bytes`; None for none.
        own_shm: Whether only the sandbox uses /dev/shm; then process mode empties it when no block is running.
        environment: Variables for the code. They are sent over the stream; an engine, a process list or a log would show them.
    """

    mode: str
    workspace: str
    preload: tuple[str, ...]
    output_limit: int
    split_streams: bool
    checkpoint: CheckpointMode
    memory_bytes: int | None
    rlimits: Mapping[str, int] = field(default_factory=dict)
    rlimit_without_cgroup: Mapping[str, int] = field(default_factory=dict)
    concurrency: int = 32
    proxy: Mapping[str, int] | None = None
    lease_s: float | None = None
    tools: Mapping[str, Any] | None = None
    own_shm: bool = False
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


class Calls(Protocol):
    """Who takes the calls that a block makes to host tools."""

    def open(self, send: Callable[[bytes], None]) -> None:
        """Learn how to answer: a call's number and its answer, from any thread."""
        ...

    def hear(self, kind: bytes, payload: bytes) -> None:
        """Take a call, or the word that nobody waits for one any more, in the connection's thread.

        Raises:
            SandboxProtocolError: It is more than the limits allow.
        """
        ...

    def end(self) -> None:
        """Call off what runs; nothing is answered any more."""
        ...


class RunnerClient:
    """A runner in a sandbox, from start to stop.

    Args:
        launcher: How it is started.
        settings: How its runner is to behave.
        name: Its name in messages.
        start_timeout_s: How long the runner may take until it answers, in seconds.
        grace_s: How long beyond a block's own deadline an answer may take, in seconds.
        gateway: The way out to named hosts, or None.
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
        self.missed: dict[str, dict[str, Any]] = {}
        """Files of blocks whose results nobody got, by name; they are not on the host yet."""
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._launched: ByteStream | None = None
        self._abandoned = False
        self._undone: Promise[None] = Promise()
        self._ending = threading.Lock()
        self._limits: dict[int, float] = {}
        self._calls: dict[int, Calls] = {}

    @property
    def alive(self) -> bool:
        """Whether it can run blocks."""
        return self._connection is not None and self._connection.alive

    def when_ended(self, tell: Callable[[SandboxError], None]) -> None:
        """Have somebody told when a started sandbox has ended, however it came to that.

        Args:
            tell: Called once, in some thread, with the reason; at once where it has ended already.
        """
        assert self._connection is not None
        self._connection.ended.add_done_callback(lambda ended: tell(ended.result()))

    async def start(self) -> dict[str, Any]:
        """Start it; of those that share an engine, a few at a time.

        Returns:
            What the runner says of the place: Python's version, user id and so on.

        Raises:
            SandboxError: It did not come up; nothing is left of it.
            asyncio.CancelledError: It was cancelled; nothing is left of it, or will be when an engine that hangs answers.
        """
        async with _starts[self._launcher.engine]:
            return await self._start()

    async def _start(self) -> dict[str, Any]:
        launching = asyncio.get_running_loop().run_in_executor(None, self._launch)
        try:
            stream = await asyncio.shield(launching)
        except asyncio.CancelledError:
            await self._abandon()
            raise
        try:
            return await self._greet(stream)
        except BaseException:
            await self._tear_down()
            raise

    def _launch(self) -> ByteStream:
        remove_abandoned_in_background()
        try:
            stream = self._launcher.launch(protocol.boot(interpreter_variables(self.settings.environment)))
        except BaseException:
            self._launcher.close()
            self._undone.give(None)
            raise
        with self._lock:
            self._launched = stream
            abandoned = self._abandoned
        if abandoned:
            self._undo_launch(stream)
        return stream

    async def _abandon(self) -> None:
        """End a sandbox whose start is cancelled, now or when it is there; the event loop may be gone then."""
        with self._lock:
            self._abandoned = True
            stream = self._launched
        if stream is not None:
            threading.Thread(target=self._undo_launch, args=(stream,), name=f"codeact-undo-{self.name}").start()
        with contextlib.suppress(SandboxTimeout):
            await within(self._undone, CANCEL_PATIENCE_S, "")

    def _undo_launch(self, stream: ByteStream) -> None:
        try:
            stream.close()
            self._launcher.kill()
            self._launcher.close()
        finally:
            self._undone.give(None)

    async def _greet(self, stream: ByteStream) -> dict[str, Any]:
        lease_s = stream.lease_s(self.settings.lease_s) if self.settings.lease_s is not None else None
        keep_alive_s = lease_s / WORDS_PER_LEASE if lease_s is not None else None
        connection = self._connection = Connection(stream, self.name, keep_alive_s=keep_alive_s)
        if self.gateway is not None:
            self.gateway.attach(connection, self.name)
        for kind in (b"T", b"U"):
            connection.handlers[kind] = partial(self._hear_call, kind)
        connection.open()
        connection.send(protocol.runner_source())
        connection.send(protocol.pack(b"C", 0, {**vars(self.settings), "lease_s": lease_s}))
        try:
            hello = await within(connection.hello, self._start_timeout_s, f"the sandbox {self.name} did not start")
        except SandboxTimeout:
            raise
        except SandboxError as error:
            raise SandboxStartError(f"the sandbox did not start: {error}") from error
        check_hello(hello)
        return hello

    def _hear_call(self, kind: bytes, ident: int, payload: bytes) -> None:
        calls = self._calls.get(ident)
        if calls is not None:
            calls.hear(kind, payload)

    async def stop(self) -> None:
        """Stop it and everything in it; repeated calls are harmless."""
        await asyncio.shield(asyncio.ensure_future(self._tear_down()))

    async def _tear_down(self) -> None:
        await asyncio.to_thread(self.stop_blocking)

    def stop_blocking(self) -> None:
        """Stop it from a thread; who comes second waits for who came first."""
        with self._ending:
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
        listener: Listener | None = None,
        calls: Calls | None = None,
        *,
        meanwhile: Callable[[], None] | None = None,
    ) -> Reply:
        """Run one block.

        Args:
            request: The message that describes it.
            code: The code.
            timeout_s: Its deadline, in seconds.
            listener: Told of its output as it comes, in another thread.
            calls: Takes its calls to host tools; None if it can't make any.
            meanwhile: Done when the block has been sent; does not raise.

        Returns:
            What came back.

        Raises:
            SandboxError: The sandbox broke meanwhile.
            asyncio.CancelledError: The caller was cancelled; the block is dead by then.
        """
        connection = self._connected()
        ident = connection.next_ident()
        room = 2 * self.settings.output_limit + OUTPUT_SLACK
        message = {**request, "timeout": float(timeout_s), "tools": calls is not None}
        if calls is not None:
            calls.open(lambda answer: connection.send(protocol.frame(b"T", ident, answer)))
            self._calls[ident] = calls
        answer = connection.request(b"X", ident, message, code, output_room=room, listener=listener)
        # What was sent before may have to end first.
        self._limits[ident] = timeout_s + self._grace_s
        try:
            limit = sum(list(self._limits.values()))
            if meanwhile is not None:
                meanwhile()
            return await self._answer(answer, limit, lambda: self._cancel(connection, ident, answer))
        finally:
            del self._limits[ident]
            self._calls.pop(ident, None)

    async def _answer(self, answer: Promise[Reply], limit: float, cancel: Callable[[], Any]) -> Reply:
        """Wait for a block's answer until the host's own deadline."""
        try:
            return await within(answer, limit, f"the sandbox {self.name} did not answer within {limit:g} s")
        except asyncio.CancelledError:
            await cancel()
            raise
        except SandboxTimeout:
            await self.stop()
            raise

    async def _cancel(self, connection: Connection, ident: int, answer: Promise[Reply]) -> None:
        """Kill a block and wait for its death."""
        if ident in self._calls:
            self._calls[ident].end()
        connection.send(protocol.pack(b"K", ident, {}))
        try:
            reply = await within(answer, self._grace_s, "the sandbox did not confirm the cancellation")
            self.miss(checked_entries(reply.message.get("files", [])))
        except SandboxTimeout as error:
            logger.warning("%s; it is stopped", error)
            await self.stop()
        except SandboxError:
            pass  # it died meanwhile, and the block with it

    def miss(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Take note of files of a block whose result nobody gets: the runner does not name them again."""
        for entry in entries:
            self.missed[entry["name"]] = {"name": entry["name"], "size": entry["size"], "mode": entry["mode"]}
        for name in list(islice(self.missed, max(0, len(self.missed) - MOST_MISSED))):
            del self.missed[name]

    async def command(self, kind: bytes, message: dict[str, Any]) -> dict[str, Any]:
        """Ask for something other than a block (checkpoint, rollback).

        Returns:
            The answer.

        Raises:
            ValueError: The runner says why it can't be done.
            SandboxError: The sandbox broke.
        """
        connection = self._connected()
        answer = connection.request(kind, connection.next_ident(), message)
        reply = await self._promptly(answer)
        if "error" in reply.message:
            raise ValueError(str(reply.message["error"]))
        return reply.message

    async def write_file(self, name: str, mode: int, chunks: Iterable[bytes] | AsyncIterable[bytes]) -> None:
        """Send a file into the sandbox.

        Args:
            name: Where it goes, relative to the workspace or absolute.
            mode: Its permissions.
            chunks: Its content, in pieces of at most 256 KiB or so.

        Raises:
            SandboxFileError: The sandbox could not take it.
        """
        connection = self._connected()
        ident = connection.next_ident()
        begun = False
        waiting = b""
        try:
            async for chunk in chunks if isinstance(chunks, AsyncIterable) else _each(chunks):
                if waiting:
                    begun = True
                    await self._file_request(connection, ident, {"op": "write", "name": name}, waiting)
                waiting = chunk
            last = {"op": "write", "name": name, "mode": mode, "final": True}
            await self._file_request(connection, ident, last, waiting)
        except BaseException:
            if begun:
                # Nobody waits for the answer. Without this request the part that was sent would occupy space in the workspace.
                connection.request(b"F", ident, {"op": "write", "abandon": True})
            raise
        finally:
            # It may have an open file.
            if isinstance(chunks, Generator):
                chunks.close()
            elif isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def read_file(self, name: str) -> AsyncGenerator[tuple[bytes, int], None]:
        """Read a file of the sandbox.

        Args:
            name: Where it is, relative to the workspace or absolute.

        Returns:
            Its content, in pieces, each with the size of the whole.

        Raises:
            SandboxFileError: It is not there, or not a regular file.
        """
        connection = self._connected()
        offset = 0
        while True:
            request = {"op": "read", "name": name, "offset": offset, "size": CHUNK}
            reply = await self._file_request(connection, connection.next_ident(), request)
            yield reply.data, number_of(reply.message, "size")
            offset += len(reply.data)
            if len(reply.data) < CHUNK:
                return

    async def answers(self, timeout_s: float) -> bool:
        """Whether it answers a question that takes no work.

        Args:
            timeout_s: How long that may take, in seconds.
        """
        try:
            connection = self._connected()
            question = connection.request(b"F", connection.next_ident(), {"op": "list"})
            await within(question, timeout_s, "it did not answer")
        except SandboxError:
            return False
        return True

    async def list_files(self) -> list[dict[str, Any]]:
        """The regular files of the workspace, as name, size and mode."""
        connection = self._connected()
        reply = await self._file_request(connection, connection.next_ident(), {"op": "list"})
        return checked_entries(reply.message.get("files"))

    async def file_request(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request about files that has no content.

        Returns:
            The answer.

        Raises:
            SandboxFileError: It could not be done.
        """
        connection = self._connected()
        return (await self._file_request(connection, connection.next_ident(), message)).message

    async def _file_request(
        self, connection: Connection, ident: int, message: dict[str, Any], data: bytes = b""
    ) -> Reply:
        answer = connection.request(b"F", ident, message, data)
        reply = await self._promptly(answer)
        if "error" in reply.message:
            number = number_of(reply.message, "errno")
            raise SandboxFileError(number, str(reply.message["error"]), message.get("name"))
        return reply

    async def _promptly(self, answer: Promise[Reply]) -> Reply:
        """Wait for an answer that no user code can delay; a sandbox that does not give it is ended."""
        text = f"the sandbox {self.name} did not answer within {ANSWER_TIMEOUT_S:g} s"
        try:
            return await within(answer, ANSWER_TIMEOUT_S, text)
        except SandboxTimeout:
            await self.stop()
            raise

    def _connected(self) -> Connection:
        connection = self._connection
        if connection is None:
            raise SandboxStartError("the sandbox has not been started")
        if connection.over is not None:
            raise connection.over
        return connection


async def _each(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
