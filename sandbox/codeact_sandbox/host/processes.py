"""Commands in a sandbox, beside its blocks: their input, output and end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import inspect
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from codeact_sandbox.host import protocol
from codeact_sandbox.host.chunks import STREAMS, Stream
from codeact_sandbox.host.connection import Connection, Reply
from codeact_sandbox.host.protocol import number_of
from codeact_sandbox.host.requests import ANSWER_TIMEOUT_S, Requests
from codeact_sandbox.host.waiting import Completion, in_thread, wait_for
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.types.displays import Display
from codeact_sandbox.types.errors import SandboxError, SandboxFileError, SandboxProtocolError, SandboxTimeout
from codeact_sandbox.types.filenames import printable

WINDOW = 256 * 1024  # bytes that either side may send before the other side has read them
PIECE = 64 * 1024
MAX_MESSAGE_CHARS = 2000
_KILLED = 128 + 9
_NOT_STARTED = ("NotStarted", "NoProcess")

T = TypeVar("T")
Input = bytes | str | Iterable[bytes] | AsyncIterable[bytes]
OnOutput = Callable[[Stream, bytes], Any]


@dataclass(frozen=True)
class Command:
    words: Sequence[str] | str  # program and arguments, or a line for `/bin/sh -c`
    cwd: str | None = None  # its directory: absolute, or relative to the workspace. None for the workspace
    env: Mapping[str, str] | None = None  # variables besides the sandbox's own
    stdin: bool = False  # whether its standard input is written to; else it is empty
    stream: bool = True  # whether `read` gives its whole output, as fast as it is read; else head and tail are kept
    timeout: float | None = None  # seconds after which it is killed, or None
    cpu_seconds: float | None = None  # processor time after which it is killed, in seconds, or None


@dataclass
class Kept:
    limit: int  # bytes that are kept: half of them are the head
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def add(self, data: bytes) -> None:
        room = self.limit - self.limit // 2 - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        if len(self.tail) > 2 * self.limit:
            self.cut()

    def cut(self) -> None:
        """Drop what is more than the limit, which happens from time to time only."""
        excess = max(0, len(self.tail) - self.limit // 2)
        del self.tail[:excess]
        self.dropped += excess


@dataclass(frozen=True)
class End:
    exit_code: int  # as a shell has it
    timed_out: bool  # whether it was killed because its time was over
    dropped: tuple[int, int]  # bytes of standard output and error that the sandbox has dropped
    duration_s: float
    notes: tuple[str, ...]  # what else there is to say

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> End:
        """Make it of the message of a result; raises an error if the command was not started."""
        try:
            outcome, error = message["outcome"], message["error"]
            kind, text = (error["type"], printable(str(error["message"])[:MAX_MESSAGE_CHARS])) if error else ("", "")
            if kind in _NOT_STARTED:
                raise SandboxError(f"the command was not started: {text}")
            if kind in errno.errorcode.values():
                raise SandboxFileError(getattr(errno, kind), f"the command's directory (cwd=): {text}")
            stdout, stderr = (int(count) for count in message["dropped"])
            code = _KILLED if outcome == "cancel" else int(message["exit_code"])
            notes = [printable(str(note)[:MAX_MESSAGE_CHARS]) for note in message["notes"]]
            if text and outcome in ("timeout", "oom"):
                notes.append(f"It was killed: {text}.")
            return cls(code, outcome == "timeout", (stdout, stderr), float(message["duration_s"]), tuple(notes))
        except (KeyError, TypeError, ValueError, ArithmeticError) as problem:
            if isinstance(problem, SandboxError):
                raise
            raise SandboxProtocolError(f"the sandbox sent a malformed result: {problem!r}") from problem


class Processes:
    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self._running: dict[int, Process] = {}

    def attach(self, connection: Connection) -> None:
        connection.handlers[wire.JOB] = self._on_frame

    def _on_frame(self, ident: int, payload: bytes) -> None:
        message, _ = protocol.unpack(payload)
        if (process := self._running.get(ident)) is not None:
            process.on_message(message)

    def open(self, command: Command) -> Process:
        """Start a command. It goes on until it ends, is killed, or the sandbox ends."""
        ident = next(self.requests.idents)
        message = {**vars(command), "op": "start", "command": command.words, "env": dict(command.env or {})}
        del message["words"]
        connection = self.requests.usable_connection()
        process = self._running[ident] = Process(self.requests, connection, ident, command)
        try:
            process.reply = connection.request(
                wire.JOB, ident, message, output_room=sys.maxsize, on_output=process.on_output, keep_output=False
            )
        except ValueError:  # it is too long
            del self._running[ident]
            raise
        process.reply.add_done_callback(lambda _: self._ended(process))
        return process

    def _ended(self, process: Process) -> None:
        del self._running[process.ident]
        process.on_end()

    @property
    def busy(self) -> bool:
        return bool(self._running)


class Process:
    """A command that was started. Its methods can be awaited in any event loop."""

    def __init__(self, requests: Requests, connection: Connection, ident: int, command: Command) -> None:
        self.ident = ident
        self.command = command
        self.reply: Future[Reply] = Completion()  # completed with its end
        # The output that is kept; if it is streamed, what `read` has returned.
        self.kept: dict[Stream, Kept] = {stream: Kept(requests.output_limit) for stream in STREAMS.values()}
        self.began = time.monotonic()
        self._requests = requests
        self._connection = connection
        self._name = requests.name
        # For what both the connection's thread and event loops use; each change completes the future.
        self._lock = threading.Lock()
        self._changed = Completion[None]()
        self._started = self._ended = False
        self._output: deque[tuple[Stream, bytes]] = deque()
        self._room = WINDOW if command.stream else requests.output_room
        self._unacknowledged = 0
        self._credit = WINDOW
        self._sending = False
        self._input_closed = not command.stdin

    # In the connection's thread

    def on_message(self, message: Mapping[str, Any]) -> None:
        op = message.get("op")
        with self._lock:
            if op == "credit":
                self._credit = min(self._credit + number_of(message, "bytes"), WINDOW)
            elif op == "closed":
                self._input_closed = True
            elif op == "started":
                self._started = True
            else:
                raise SandboxProtocolError(f"the sandbox {self._name} sent {op!r} about a command")
        self._notify()

    def on_output(self, kind: bytes, data: bytes | Display) -> None:
        if isinstance(data, Display):
            raise SandboxProtocolError(f"the sandbox {self._name} sent a display of a command")
        with self._lock:
            self._room -= len(data)
            if self._room < 0:
                raise SandboxProtocolError(f"the sandbox {self._name} sent more output than there is room for")
            if self.command.stream:
                self._output.append((STREAMS[kind], data))
            else:
                self.kept[STREAMS[kind]].add(data)
        if self.command.stream:
            self._notify()

    def on_end(self) -> None:
        self._ended = self._started = True
        self._notify()

    def _sent(self) -> None:
        self._sending = False
        self._notify()

    def _notify(self) -> None:
        with self._lock:
            changed, self._changed = self._changed, Completion()
        changed.set_result(None)

    # In an event loop

    def _send(self, op: str, **more: object) -> None:
        self._connection.send(protocol.pack(wire.JOB, self.ident, {**more, "op": op}))

    async def _until(self, take: Callable[[], T | None], until: float | None = None) -> T:
        """Wait until a function returns something; it is called again after each change."""
        while True:
            with self._lock:
                taken, changed = take(), self._changed
            if taken is not None:
                return taken
            await self._in_time(changed, until)

    async def started(self) -> None:
        """Wait until it runs; raises an error if it could not be started."""
        await self._until(lambda: self._started or None, time.monotonic() + ANSWER_TIMEOUT_S)
        if self._ended:
            self.end()

    async def read(self, until: float | None = None) -> tuple[Stream, bytes] | None:
        """Return the next output, None at its end. Until it is read, the command waits."""

        def take() -> tuple[Stream | None, bytes] | None:
            if not self._output:
                return (None, b"") if self._ended else None
            stream, data = self._output.popleft()
            self._room += len(data)
            self._unacknowledged += len(data)
            return stream, data

        stream, data = await self._until(take, until)
        if stream is None:
            self.end()
            return None
        if self._unacknowledged >= WINDOW // 4 and not self._ended:
            self._send("credit", bytes=self._unacknowledged)
            self._unacknowledged = 0
        return stream, data

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            with self._lock:
                self._check_input()
                size = 0 if self._sending else min(len(view), self._credit, PIECE)
                self._credit -= size
                self._sending = self._sending or size > 0
                changed = self._changed
            if size:
                frame = protocol.pack(wire.JOB, self.ident, {"op": "data"}, bytes(view[:size]))
                self._connection.send_bulk(frame, self._sent)
                view = view[size:]
            else:
                await asyncio.wrap_future(changed)

    async def close_stdin(self) -> None:
        """Close its standard input, after what was written."""
        await self._until(lambda: self._ended or not self._sending or None)
        self._input_closed = True
        self._send("end")

    def _check_input(self) -> None:
        if self._ended and (error := self.reply.exception()) is not None:
            raise error
        if not self.command.stdin:
            raise SandboxFileError(errno.EBADF, "the command was started without standard input (stdin=True)")
        if self._input_closed or self._ended:
            raise SandboxFileError(errno.EPIPE, "the command's standard input is closed, or it has ended")

    async def run(self, stdin: Input | None, on_output: OnOutput | None, limit: float) -> End:
        """Feed it and take its output until its end; it is killed if that is not awaited."""
        try:
            await self._feed_and_follow(stdin, on_output, time.monotonic() + limit + self._requests.grace_s)
        except BaseException:
            await self.kill()
            raise
        return self.end()

    async def _feed_and_follow(self, stdin: Input | None, on_output: OnOutput | None, until: float) -> None:
        following = asyncio.ensure_future(self._follow(on_output, until))
        feeding = asyncio.ensure_future(self._feed(stdin))
        try:
            await asyncio.wait({following, feeding}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                await feeding  # it may have ended with an exception of the given iterable
            await following
        finally:
            for task in (following, feeding):
                task.cancel()
            await asyncio.gather(following, feeding, return_exceptions=True)

    async def _follow(self, on_output: OnOutput | None, until: float) -> None:
        while on_output is not None and (item := await self.read(until)) is not None:
            self.kept[item[0]].add(item[1])
            done = on_output(*item)
            if inspect.isawaitable(done):
                await done
        await self.wait(until)

    async def _feed(self, stdin: Input | None) -> None:
        if stdin is None:
            return
        async with contextlib.aclosing(pieces_of(stdin)) as pieces:
            async for piece in pieces:
                try:
                    await self.write(piece)
                except SandboxFileError:
                    return  # it does not read all of its input, as `head`
        with contextlib.suppress(SandboxFileError):
            await self.close_stdin()

    async def wait(self, until: float | None = None) -> End:
        await self._in_time(self.reply, until)
        return self.end()

    def end(self) -> End:
        return End.parse(self.reply.result().message)

    def signal(self, number: int) -> None:
        self._send("signal", number=number)

    async def kill(self) -> None:
        if not self._ended:
            await self._requests.kill(self._connection, self.ident, self.reply)

    async def output(self) -> tuple[Kept, Kept]:
        late = f"the sandbox {self._name} did not answer"
        requests = self._requests
        asked = requests.usable_connection().request(
            wire.JOB, next(requests.idents), {"op": "output", "job": self.ident}, output_room=requests.output_room
        )
        reply = await wait_for(asked, ANSWER_TIMEOUT_S, late)
        dropped = reply.message.get("dropped")
        if self._ended or not isinstance(dropped, list) or len(dropped) != len(self.kept):
            return self.whole()
        out, err = (
            Kept(kept.limit, kept.head[:], reply.streams.get(kind, bytearray()), int(count))
            for kind, kept, count in zip(STREAMS, self.kept.values(), dropped, strict=True)
        )
        return out, err

    def whole(self) -> tuple[Kept, Kept]:
        for kept in self.kept.values():
            kept.cut()
        out, err = (
            replace(kept, dropped=kept.dropped + more)
            for kept, more in zip(self.kept.values(), self.end().dropped, strict=True)
        )
        return out, err

    async def _in_time(self, future: Future[Any], until: float | None) -> None:
        if until is None:
            await asyncio.wrap_future(future)
            return
        try:
            late = f"the sandbox {self._name} did not report a command's end"
            await wait_for(future, max(0.0, until - time.monotonic()), late)
        except SandboxTimeout:
            await self._requests.stop()
            raise


async def pieces_of(stdin: Input) -> AsyncGenerator[bytes]:
    if isinstance(stdin, str):
        yield stdin.encode()
    elif isinstance(stdin, bytes | bytearray | memoryview):
        yield bytes(stdin)
    elif isinstance(stdin, AsyncGenerator):
        async with contextlib.aclosing(stdin):  # it may have an open file
            async for piece in stdin:
                yield piece
    elif isinstance(stdin, AsyncIterable):
        async for piece in stdin:
            yield piece
    else:
        items = iter(stdin)
        while (item := await in_thread(next, items, None)) is not None:
            yield item
