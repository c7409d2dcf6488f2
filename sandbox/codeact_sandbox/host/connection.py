"""The host's end of the stream to a runner: requests out, answers and output back.

One thread for each connection reads the stream. A frame is written by the thread that sends it, which saves waking another; the
reading thread writes what the stream has no room for at once.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from typing import Any, cast

from codeact_sandbox.host import protocol
from codeact_sandbox.host.display_frames import Displays
from codeact_sandbox.host.protocol import DisplayMessage
from codeact_sandbox.host.stream import ByteStream
from codeact_sandbox.host.waiting import Completion
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.types.displays import Display
from codeact_sandbox.types.errors import SandboxDied, SandboxError, SandboxProtocolError
from codeact_sandbox.types.filenames import printable

EXIT_DETAIL_TIMEOUT_S = 2.0
READ_BYTES = 64 * 1024
MAX_READS = 64
# Frames that may wait for room; far fewer do while the sandbox reads, since what it can ask for at once is limited.
MAX_UNSENT = 20_000
_KEEP_ALIVE = protocol.pack(wire.KEEP_ALIVE, 0, {})
# Called in the connection's thread with the type of a frame and its content, as they come: output, or a display.
OutputCallback = Callable[[bytes, bytes | Display], None]
Handler = Callable[[int, bytes], None]  # called in the connection's thread with the id and the payload of a frame


class State(Enum):
    CONNECTING = "connecting"  # the runner has not sent its hello
    READY = "ready"  # requests are answered
    CLOSING = "closing"  # one side has ended the stream, or it broke: nothing is sent or received any more
    CLOSED = "closed"  # the stream is closed, and all waiters have been notified


_NEXT = {
    State.CONNECTING: (State.READY, State.CLOSING),
    State.READY: (State.CLOSING,),
    State.CLOSING: (State.CLOSED,),
    State.CLOSED: (),
}
# A preloaded module may open a channel before the hello.
_ALLOWED = {
    State.CONNECTING: (wire.MODULE_SOURCES, wire.COMPILED_MODULES, wire.HELLO, wire.CHANNEL, wire.FATAL_ERROR),
    State.READY: (
        *(wire.STDOUT, wire.STDERR, wire.DISPLAY, wire.BLOCK_RESULT, wire.ANSWER),
        *(wire.TOOL_CALL, wire.CANCEL_CALL, wire.CHANNEL, wire.JOB, wire.FATAL_ERROR),
    ),
}


@dataclass
class Reply:
    message: dict[str, Any]  # the message of its frame
    data: bytes  # the bytes of its frame
    streams: dict[bytes, bytearray]  # the output before it, by type of frame (`wire.STDOUT`, `wire.STDERR`)
    displays: Displays = field(default_factory=Displays)  # what the block has shown before it
    value: Any = None  # the value of the block's last expression if it is plain, else None


@dataclass
class _Pending:
    """A request without an answer yet, and how much more output it may have."""

    reply: Future[Reply]
    output_room: int
    on_output: OutputCallback | None
    keep_output: bool
    streams: dict[bytes, bytearray] = field(default_factory=dict)
    displays: Displays = field(default_factory=Displays)


class Connection:
    def __init__(self, stream: ByteStream, name: str, *, keep_alive_s: float | None = None) -> None:
        self.hello = Completion[dict[str, Any]]()  # the runner's first message
        self.ended = Completion[SandboxError]()  # completed with the reason when the connection is closed
        self.error: SandboxError | None = None  # why it is closed, or None
        # Who processes frames, by type; to be completed before `open`.
        self.handlers: dict[bytes, Handler] = {
            wire.HELLO: self._on_hello,
            wire.STDOUT: partial(self._on_output, wire.STDOUT),
            wire.STDERR: partial(self._on_output, wire.STDERR),
            wire.DISPLAY: self._on_display,
            wire.BLOCK_RESULT: self._on_reply,
            wire.ANSWER: self._on_reply,
            wire.FATAL_ERROR: self._on_fatal,
        }
        self.state = State.CONNECTING  # only this class changes it
        self._stream = stream
        self._name = name
        self._keep_alive_s = keep_alive_s
        self._keep_alive_due = time.monotonic() + (keep_alive_s or 0.0)
        self._parser: Any = cast(Any, wire.Parser)()
        self._pending: dict[int, _Pending] = {}
        self._outgoing: deque[memoryview] = deque()
        self._bulk: deque[tuple[memoryview, Callable[[], None]]] = deque()
        self._lock = threading.Lock()  # for what may be changed by several threads
        # The two directions of a TLS stream share their state, and a descriptor must not be used after it was closed.
        self._stream_lock = threading.Lock()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._descriptors = (stream.read_fd, stream.write_fd)
        close_in_children(*self._descriptors)
        self._thread = threading.Thread(target=self._run, name=f"codeact-{name}", daemon=True)

    def open(self) -> None:
        self._thread.start()

    def send(self, frame: bytes) -> None:
        """Send a frame, after those before it; do nothing if the connection is being closed."""
        if self.state not in _ALLOWED:
            return
        with self._lock:
            self._outgoing.append(memoryview(frame))
        if self._stream_lock.acquire(blocking=False):
            try:
                if self.state in _ALLOWED and self._write():
                    return
            except OSError:
                pass  # the reading thread gets the same error
            finally:
                self._stream_lock.release()
        self._wake()

    def send_bulk(self, frame: bytes, on_start: Callable[[], None]) -> None:
        """Send a frame when no other frame is queued, so that requests don't wait behind a download."""
        with self._lock:
            self._bulk.append((memoryview(frame), on_start))
        self._wake()

    def request(
        self,
        kind: bytes,
        ident: int,
        message: Mapping[str, Any],
        data: bytes = b"",
        *,
        output_room: int = 0,
        on_output: OutputCallback | None = None,
        keep_output: bool = True,
    ) -> Future[Reply]:
        """Send a request; the future can't be cancelled, and fails with a `SandboxError` when the sandbox ends first."""
        frame = protocol.pack(kind, ident, message, data)
        reply = Completion[Reply]()
        with self._lock:
            if self.error is not None:
                reply.set_exception(self.error)
                return reply
            self._pending[ident] = _Pending(reply, output_room, on_output, keep_output)
        self.send(frame)
        return reply

    def close(self, timeout_s: float) -> bool:
        self._begin_closing()
        if self._thread.ident is None:
            self._finish(SandboxDied(f"the sandbox {self._name} was stopped"))
        elif self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _begin_closing(self) -> None:
        """Let the reading thread return, and send nothing any more; from any thread."""
        self._enter(State.CLOSING)
        self._wake()

    def _enter(self, state: State) -> bool:
        """Change the state, and return True; return False if the connection is already in a later state."""
        with self._lock:
            possible = state in _NEXT[self.state]
            if possible:
                self.state = state
        return possible

    # Writing, in any thread

    def _wake(self) -> None:
        # A full pipe means that the thread will wake up; a closed one that it has ended.
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0")

    def _write(self) -> bool:
        """Write what the stream has room for; return whether the queue is empty. The caller holds the stream's lock."""
        while True:
            with self._lock:
                if not self._outgoing:
                    return True
                chunk = self._outgoing[0]
            written = self._stream.write(chunk)
            if written is None:
                return False
            with self._lock:
                if written < len(chunk):
                    self._outgoing[0] = chunk[written:]
                else:
                    self._outgoing.popleft()

    # In the connection's thread

    def _run(self) -> None:
        error: SandboxError
        try:
            self._serve()
            error = SandboxDied(f"the sandbox {self._name} was stopped")
        except SandboxError as broken:
            error = broken
        except EOFError:
            error = SandboxDied(f"the sandbox {self._name} ended: {self._exit_detail()}")
        except OSError as broken:
            error = SandboxDied(f"the stream to the sandbox {self._name} broke ({broken}); {self._exit_detail()}")
        except Exception as broken:  # noqa: BLE001 - who waits must be notified of any error
            error = SandboxProtocolError(f"talking to the sandbox {self._name} failed: {broken!r}")
        self._finish(error)

    def _exit_detail(self) -> str:
        self._begin_closing()  # what follows may take a while
        return self._stream.wait_exit(EXIT_DETAIL_TIMEOUT_S)

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            selector.register(self._stream.read_fd, selectors.EVENT_READ)
            more_to_read = write_blocked = False
            while self.state in _ALLOWED:
                pause = self._keep_alive(self._keep_alive_s) if self._keep_alive_s is not None else None
                for key, _ in selector.select(0 if more_to_read else pause):
                    if key.fileobj is self._wake_read:
                        with contextlib.suppress(BlockingIOError):
                            self._wake_read.recv(4096)
                more_to_read = self._read()
                was_blocked = write_blocked
                write_blocked = bool(self._outgoing or self._bulk) and not self._flush()
                if write_blocked != was_blocked:
                    self._watch_for_room(selector, watch=write_blocked)

    def _read(self) -> bool:
        """Read what is available, and process the frames; return whether there may be more."""
        # With a bound: a sandbox that never stops sending must not keep the host from sending, or from stopping.
        for _ in range(MAX_READS):
            with self._stream_lock:
                data = self._stream.read(READ_BYTES)
            if data is None:
                return False
            if not data:
                raise EOFError
            for kind, ident, payload in self._parser.feed(data):
                state = self.state
                if state not in _ALLOWED:
                    return False  # it was sent before the connection was closed
                handler = self.handlers.get(kind)
                if handler is None:
                    raise SandboxProtocolError(f"the sandbox {self._name} sent a frame of unknown type {kind!r}")
                if kind not in _ALLOWED[state]:
                    raise SandboxProtocolError(f"the sandbox {self._name} sent {kind!r} while {state.value}")
                handler(ident, payload)
            if self._parser.error is not None:
                raise self._parser.error
            if len(self._outgoing) + len(self._bulk) > MAX_UNSENT:
                raise SandboxProtocolError(f"the sandbox {self._name} does not read the answers to what it sends")
        return True

    def _flush(self) -> bool:
        """Write what is queued, bulk frames last; return whether the queues are empty."""
        while True:
            with self._stream_lock:
                if not self._write():
                    return False
            with self._lock:
                if not self._bulk:
                    return True
                frame, on_start = self._bulk.popleft()
                self._outgoing.append(frame)
            on_start()

    def _watch_for_room(self, selector: selectors.BaseSelector, *, watch: bool) -> None:
        read_fd, write_fd = self._stream.read_fd, self._stream.write_fd
        if write_fd == read_fd:
            selector.modify(read_fd, selectors.EVENT_READ | (selectors.EVENT_WRITE if watch else 0))
        elif watch:
            selector.register(write_fd, selectors.EVENT_WRITE)
        else:
            selector.unregister(write_fd)

    def _keep_alive(self, interval_s: float) -> float:
        """Send a keep-alive frame when it is due; return the seconds until the next one is."""
        now = time.monotonic()
        if now < self._keep_alive_due:
            return self._keep_alive_due - now
        self._keep_alive_due = now + interval_s
        with self._lock:
            # Behind frames that wait for room, more of these would only pile up.
            if not self._outgoing:
                self._outgoing.append(memoryview(_KEEP_ALIVE))
        return 0

    def _on_hello(self, _ident: int, payload: bytes) -> None:
        message, _ = protocol.unpack(payload)
        if self._enter(State.READY):
            self.hello.set_result(message)

    def _on_output(self, kind: bytes, ident: int, payload: bytes) -> None:
        with self._lock:
            pending = self._pending.get(ident)
        if pending is None:
            return  # its caller has stopped waiting
        pending.output_room -= len(payload)
        if pending.output_room < 0:
            raise SandboxProtocolError(f"the sandbox {self._name} sent more output than its limit allows")
        if pending.keep_output:
            pending.streams.setdefault(kind, bytearray()).extend(payload)
        if pending.on_output is not None:
            pending.on_output(kind, payload)

    def _on_display(self, ident: int, payload: bytes) -> None:
        message, data = protocol.unpack(payload)
        checked = DisplayMessage.parse(message, len(data))
        with self._lock:
            pending = self._pending.get(ident)
        if pending is None:
            return  # its caller has stopped waiting
        shown = pending.displays.add(checked, data)
        if shown is not None and pending.on_output is not None:
            pending.on_output(wire.DISPLAY, shown)

    def _on_reply(self, ident: int, payload: bytes) -> None:
        message, data = protocol.unpack(payload)
        with self._lock:
            pending = self._pending.pop(ident, None)
        if pending is not None:
            value = protocol.decode_value(message.get("plain"))
            pending.reply.set_result(Reply(message, data, pending.streams, pending.displays, value))

    def _on_fatal(self, _ident: int, payload: bytes) -> None:
        message, _ = protocol.unpack(payload)
        raise SandboxProtocolError(f"the sandbox {self._name} gave up: {printable(str(message.get('error'))[:2000])}")

    def _finish(self, error: SandboxError) -> None:
        self._begin_closing()
        with self._stream_lock:
            forget(*self._descriptors)
            self._stream.close()
        self._wake_read.close()
        self._wake_write.close()
        with self._lock:
            if self.state is State.CLOSED:
                return
            self.state, self.error = State.CLOSED, error
            pending, self._pending = self._pending, {}
        self.ended.set_result(error)
        if not self.hello.done():
            self.hello.set_exception(error)
        for waiting in pending.values():
            waiting.reply.set_exception(error)


# A sandbox ends when it reads the end of its stream, which a forked child would keep open after its parent was killed.
_descriptors: dict[int, None] = {}


def close_in_children(*descriptors: int) -> None:
    """Close descriptors in each process that is forked from this one from now on."""
    _register()
    _descriptors.update(dict.fromkeys(descriptors))


def forget(*descriptors: int) -> None:
    """Undo `close_in_children`, before the descriptors are closed: their numbers are reused."""
    for descriptor in descriptors:
        _descriptors.pop(descriptor, None)


@cache
def _register() -> None:
    os.register_at_fork(after_in_child=_close_all)


def _close_all() -> None:
    # Another thread may have held a lock during the fork, so none is taken here.
    descriptors = list(_descriptors)
    _descriptors.clear()
    if not descriptors:
        return
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in descriptors:
        # Replaced, not closed: objects that still have the number would close a reused descriptor later.
        os.dup2(null, descriptor, inheritable=False)
    os.close(null)
