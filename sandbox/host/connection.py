"""Requests to a runner and their answers.

A thread owns the stream. While requests come from an event loop in quick succession it lends the reading to that loop, which
saves waking two threads for each answer, and takes it back from a loop that has ended, is busy or has nothing to ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from autogen_codeact.sandbox.errors import SandboxDied, SandboxError, SandboxProtocolError
from autogen_codeact.sandbox.host import forked, protocol
from autogen_codeact.sandbox.host.loops import LoopReader, Promise
from autogen_codeact.sandbox.host.protocol import Frame
from autogen_codeact.sandbox.host.stream import ByteStream

EXIT_DETAIL_TIMEOUT_S = 2.0
READS_AT_ONCE = 64
# An event loop that has read nothing for so long no longer reads.
LOAN_S = 0.25
Listener = Callable[[bytes, bytes], None]
"""Called by whoever reads, a thread or an event loop, with the type of a frame of output and its bytes, as they come."""


@dataclass
class Reply:
    """What came back for one request.

    Args:
        message: The message of the last frame.
        data: Its bytes.
        streams: What came before it, by type of frame (`O` standard output, `E` standard error).
    """

    message: dict[str, Any]
    data: bytes
    streams: dict[bytes, bytearray]


@dataclass
class _Pending:
    answer: Promise[Reply]
    room: int
    listener: Listener | None
    streams: dict[bytes, bytearray] = field(default_factory=dict)


class Connection:
    """Frames over a stream.

    Args:
        stream: The stream; the connection closes it.
        name: Name of the sandbox, for the thread and for messages.
        keep_alive_s: Seconds after which the runner is told that this end lives, or None.
    """

    def __init__(self, stream: ByteStream, name: str, *, keep_alive_s: float | None = None) -> None:
        self.handlers: dict[bytes, Callable[[int, bytes], None]] = {}
        """By type: who takes further frames that nobody has asked for, one at a time, called by whoever reads: (id, payload)."""
        self.hello: Promise[dict[str, Any]] = Promise()
        self.ended: Future[SandboxError] = Future()
        self.ended.set_running_or_notify_cancel()
        self.over: SandboxError | None = None
        """Why it has ended, or None; what `ended` tells when it happens."""
        self._stream = stream
        self._name = name
        self._parser = protocol.Parser()
        self._pending: dict[int, _Pending] = {}
        self._idents = itertools.count(1)
        self._outgoing: deque[memoryview] = deque()
        self._bulk: deque[tuple[memoryview, Callable[[], None]]] = deque()
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._any_thread_writes = stream.any_thread_writes
        self._descriptors: tuple[int, ...] = ()
        self._lent: LoopReader | None = None
        self._loan_ends = 0.0
        self._trouble: Exception | None = None
        self._closing = False
        self._more = False
        self._keep_alive_s = keep_alive_s
        self._next_word = time.monotonic() + (keep_alive_s or 0.0)
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=f"codeact-{name}", daemon=True)

    def open(self) -> None:
        """Start the thread."""
        self._descriptors = (self._stream.read_fd, self._stream.write_fd)
        forked.keep_from_children(*self._descriptors)
        if self._any_thread_writes:
            with contextlib.suppress(OSError):
                self._lent = LoopReader(self._stream.read_fd, self._read_on_loop)
        self._thread.start()

    @property
    def _is_lent(self) -> bool:
        return self._lent is not None and self._lent.loop is not None

    @property
    def alive(self) -> bool:
        """Whether requests can still be answered."""
        self._read_lent()  # its end may have come while the loop was busy
        return self.over is None and not self._closing and self._trouble is None

    def next_ident(self) -> int:
        """A number for a request."""
        return next(self._idents)

    def send(self, frame: bytes) -> None:
        """Send a frame that has no answer."""
        with self._lock:
            self._outgoing.append(memoryview(frame))
        self._send_now()

    def send_bulk(self, frame: bytes, taken: Callable[[], None]) -> None:
        """Send a frame when nothing else waits, so that requests don't wait behind a download.

        Args:
            frame: The frame.
            taken: Called in the connection's thread when its turn has come; never, if the sandbox ends first.
        """
        with self._lock:
            self._bulk.append((memoryview(frame), taken))
        self._wake()

    def request(
        self,
        kind: bytes,
        ident: int,
        message: Mapping[str, Any],
        data: bytes = b"",
        *,
        output_room: int = 0,
        listener: Listener | None = None,
    ) -> Promise[Reply]:
        """Send a request.

        Args:
            kind: Type of the frame.
            ident: Its number.
            message: Its message.
            data: Its bytes.
            output_room: Bytes of output that may come before the answer.
            listener: Told of output as it comes.

        Returns:
            The answer to come; it fails with a `SandboxError` when the sandbox ends first.
        """
        frame = protocol.pack(kind, ident, message, data)
        answer: Promise[Reply] = Promise()
        with self._lock:
            if self.over is not None or self._closing:
                answer.fail(self.over or SandboxDied("the sandbox was stopped"))
                return answer
            self._pending[ident] = _Pending(answer, output_room, listener)
            self._outgoing.append(memoryview(frame))
        self._send_now()
        self._lend()
        return answer

    def close(self, timeout_s: float) -> bool:
        """Hang up and wait for the thread.

        Args:
            timeout_s: How long to wait, in seconds.

        Returns:
            Whether the thread has ended.
        """
        self._closing = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _send_now(self) -> None:
        """Write what waits from this thread, which saves waking the other; where that can't be, the other does."""
        if self._any_thread_writes and self._writing.acquire(blocking=False):
            try:
                if self.over is None and not self._closing and self._write(bulk=False):
                    return
            except OSError:
                pass  # the other thread finds the same, and ends
            finally:
                self._writing.release()
        self._wake()

    def _wake(self) -> None:
        # A full pipe means that a wake-up is on its way; a closed one that the thread has ended.
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0")

    def _lend(self) -> None:
        """Have the running event loop read, unless another one does."""
        lent, loop = self._lent, asyncio._get_running_loop()
        if lent is None or loop is None or lent.loop is loop or (lent.loop is not None and lent.loop.is_running()):
            return
        lent.take_back()
        if lent.lend(loop):
            self._wake()

    def _read_on_loop(self) -> None:
        assert self._lent is not None
        self._lent.used = True
        self._read_lent()

    def _read_lent(self) -> None:
        """Take in what has come, where the stream is lent; what goes wrong is the thread's business."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            if self._is_lent:
                self._receive(1)
        except Exception as broken:  # noqa: BLE001 - the thread raises it again
            self._give_up(broken)
        except BaseException as broken:
            self._give_up(SandboxProtocolError(f"reading from the sandbox {self._name} was broken off by {broken!r}"))
            raise
        finally:
            self._reading.release()

    def _give_up(self, trouble: Exception) -> None:
        assert self._lent is not None
        self._trouble = trouble
        self._lent.take_back()
        self._wake()

    def _run(self) -> None:
        try:
            self._loop()
            error: SandboxError = SandboxDied(f"the sandbox {self._name} was stopped")
        except SandboxError as broken:
            error = broken
        except EOFError:
            detail = self._stream.wait_exit(EXIT_DETAIL_TIMEOUT_S)
            error = SandboxDied(f"the sandbox {self._name} ended: {detail}")
        except OSError as broken:
            detail = self._stream.wait_exit(EXIT_DETAIL_TIMEOUT_S)
            error = SandboxDied(f"the stream to the sandbox {self._name} broke ({broken}); {detail}")
        except Exception as broken:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            error = SandboxProtocolError(f"talking to the sandbox {self._name} failed: {broken!r}")
        self._end(error)

    def _loop(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            watched: dict[int, int] = {}
            waiting = False
            while not self._closing:
                watched = self._watch(selector, watched, writing=waiting)
                for key, _ in selector.select(self._patience()):
                    if key.fileobj is self._wake_read:
                        with contextlib.suppress(BlockingIOError):
                            self._wake_read.recv(4096)
                with self._reading:
                    self._more = not self._is_lent and self._receive(READS_AT_ONCE)
                if self._trouble is not None:
                    raise self._trouble
                waiting = not self._flush()

    def _watch(self, selector: selectors.BaseSelector, watched: dict[int, int], *, writing: bool) -> dict[int, int]:
        """Have the selector watch what it should, and say what that is."""
        wanted = {} if self._is_lent else {self._stream.read_fd: selectors.EVENT_READ}
        if writing:
            fd = self._stream.write_fd
            wanted[fd] = wanted.get(fd, 0) | selectors.EVENT_WRITE
        if wanted != watched:
            for fd in watched:
                selector.unregister(fd)
            for fd, events in wanted.items():
                selector.register(fd, events)
        return wanted

    def _patience(self) -> float | None:
        """How long to wait for something to happen; does what it is time for."""
        if self._more:
            return 0
        waits = [wait for wait in (self._until_word(), self._until_loan_ends()) if wait is not None]
        return min(waits, default=None)

    def _until_word(self) -> float | None:
        """Seconds until a sign of life is due; gives it when it is."""
        if self._keep_alive_s is None:
            return None
        left = self._next_word - time.monotonic()
        if left > 0:
            return left
        self._next_word = time.monotonic() + self._keep_alive_s
        with self._lock:
            # Behind what does not go out, it would only pile up.
            if not self._outgoing:
                self._outgoing.append(memoryview(protocol.pack(Frame.KEEP_ALIVE, 0, {})))
        return 0

    def _until_loan_ends(self) -> float | None:
        """Seconds until the event loop that reads must have read something; takes the stream back when it has not."""
        lent = self._lent
        if lent is None or lent.loop is None:
            return None
        left = self._loan_ends - time.monotonic()
        if left > 0:
            return left
        if not lent.used:
            lent.take_back()
            return 0
        lent.used = False
        self._loan_ends = time.monotonic() + LOAN_S
        return LOAN_S

    def _receive(self, reads: int) -> bool:
        """Take in what has come; True where more may be there.

        Raises:
            EOFError: It is the end of the stream.
        """
        # Not without end: a sandbox that never stops talking must not keep this end from talking, or from hanging up.
        for _ in range(reads):
            try:
                data = self._stream.read()
            except BlockingIOError:
                return False
            if not data:
                raise EOFError
            for kind, ident, payload in self._parser.feed(data):
                self._take(kind, ident, payload)
        return True

    def _flush(self) -> bool:
        """Send what there is room for; True when nothing waits any more."""
        with self._writing:
            return self._write(bulk=True)

    def _write(self, *, bulk: bool) -> bool:
        while True:
            with self._lock:
                if not self._outgoing and self._bulk:
                    if not bulk:
                        return False
                    frame, taken = self._bulk.popleft()
                    self._outgoing.append(frame)
                    taken()
                if not self._outgoing:
                    return True
                chunk = self._outgoing[0]
            try:
                sent = self._stream.write(chunk)
            except BlockingIOError:
                return False
            with self._lock:
                if sent == len(chunk):
                    self._outgoing.popleft()
                    if not self._outgoing and not self._bulk:
                        return True
                else:
                    self._outgoing[0] = chunk[sent:]

    def _take(self, kind: bytes, ident: int, payload: bytes) -> None:
        if kind in (Frame.STDOUT, Frame.STDERR):
            self._take_output(kind, ident, payload)
        elif kind in (Frame.RESULT, Frame.ANSWER):
            message, data = protocol.unpack(payload)
            with self._lock:
                pending = self._pending.pop(ident, None)
            if pending is not None:
                pending.answer.give(Reply(message, data, pending.streams))
        elif kind == Frame.HELLO:
            message, _ = protocol.unpack(payload)
            if not self.hello.done:
                self.hello.give(message)
        elif kind == Frame.FATAL:
            message, _ = protocol.unpack(payload)
            raise SandboxProtocolError(f"the sandbox {self._name} gave up: {message.get('error')}")
        elif kind in self.handlers:
            self.handlers[kind](ident, payload)
        else:
            raise SandboxProtocolError(f"the sandbox {self._name} sent a frame of unknown type {kind!r}")

    def _take_output(self, kind: bytes, ident: int, payload: bytes) -> None:
        with self._lock:
            pending = self._pending.get(ident)
        if pending is None:
            return
        pending.room -= len(payload)
        if pending.room < 0:
            raise SandboxProtocolError(f"the sandbox {self._name} sent more output than its limit allows")
        pending.streams.setdefault(kind, bytearray()).extend(payload)
        if pending.listener is not None:
            pending.listener(kind, payload)

    def _end(self, error: SandboxError) -> None:
        # Nobody may use a descriptor that is closed: its number may be in use again.
        with self._writing, self._reading:
            forked.forget(*self._descriptors)
            self._stream.close()
            if self._lent is not None:
                self._lent.close()
            with self._lock:
                self.over = error
        self.ended.set_result(error)
        with self._lock:
            pending, self._pending = self._pending, {}
            self._outgoing.clear()
            self._bulk.clear()
        self._wake_read.close()
        self._wake_write.close()
        if not self.hello.done:
            self.hello.fail(error)
        for waiting in pending.values():
            waiting.answer.fail(error)
