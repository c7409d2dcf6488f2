"""Reads and writes a byte stream that does not block, for a connection."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from autogen_codeact.sandbox.host import forked
from autogen_codeact.sandbox.host.protocol import Frame, pack
from autogen_codeact.sandbox.host.stream import ByteStream

MAX_READS = 64
_KEEP_ALIVE = pack(Frame.KEEP_ALIVE, 0, {})


class Transport:
    """Reads a stream in one thread, and writes it from any.

    A frame is written by the thread that sends it, which saves waking another. The reading thread writes what the stream has no
    room for at once.

    Args:
        stream: The stream; `close` closes it.
        keep_alive_s: Seconds between two keep-alive frames, or None for none.
    """

    def __init__(self, stream: ByteStream, *, keep_alive_s: float | None = None) -> None:
        self._stream = stream
        self._keep_alive_s = keep_alive_s
        self._keep_alive_due = time.monotonic() + (keep_alive_s or 0.0)
        self._outgoing: deque[memoryview] = deque()
        self._bulk: deque[tuple[memoryview, Callable[[], None]]] = deque()
        self._queue_lock = threading.Lock()
        # The two directions of a TLS stream share their state, and a descriptor must not be used after it was closed.
        self._stream_lock = threading.Lock()
        self._stopped = False
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._descriptors = (stream.read_fd, stream.write_fd)
        forked.close_in_children(*self._descriptors)

    def send(self, frame: bytes) -> None:
        """Send a frame, after those before it."""
        if self._stopped:
            return
        with self._queue_lock:
            self._outgoing.append(memoryview(frame))
        if self._stream_lock.acquire(blocking=False):
            try:
                if not self._stopped and self._write():
                    return
            except OSError:
                pass  # the reading thread gets the same error
            finally:
                self._stream_lock.release()
        self._wake()

    def send_bulk(self, frame: bytes, on_start: Callable[[], None]) -> None:
        """Send a frame when no other frame is queued, so that requests don't wait behind a download.

        Args:
            frame: The frame.
            on_start: Called in the reading thread when the frame is next; never, if the stream ends first.
        """
        with self._queue_lock:
            self._bulk.append((memoryview(frame), on_start))
        self._wake()

    def serve(self, on_data: Callable[[bytes], None]) -> None:
        """Read, and write what is queued, until `stop` is called. The thread that calls this is the reading thread.

        Args:
            on_data: Called with what was read.

        Raises:
            EOFError: The other side has ended the stream.
            OSError: The stream is broken.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            selector.register(self._stream.read_fd, selectors.EVENT_READ)
            more_to_read = write_blocked = False
            while not self._stopped:
                pause = self._keep_alive(self._keep_alive_s) if self._keep_alive_s is not None else None
                for key, _ in selector.select(0 if more_to_read else pause):
                    if key.fileobj is self._wake_read:
                        with contextlib.suppress(BlockingIOError):
                            self._wake_read.recv(4096)
                more_to_read = self._read(on_data)
                was_blocked = write_blocked
                write_blocked = bool(self._outgoing or self._bulk) and not self._flush()
                if write_blocked != was_blocked:
                    self._watch_for_room(selector, watch=write_blocked)

    def stop(self) -> None:
        """Make `serve` return, and send nothing any more; from any thread."""
        self._stopped = True
        self._wake()

    def close(self) -> None:
        """Close the stream; after `serve` has returned."""
        self._stopped = True
        with self._stream_lock:
            forked.forget(*self._descriptors)
            self._stream.close()
        self._wake_read.close()
        self._wake_write.close()

    def _wake(self) -> None:
        # A full pipe means that the thread will wake up; a closed one that it has ended.
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0")

    def _write(self) -> bool:
        """Write what the stream has room for; return whether the queue is empty. The caller holds the stream's lock."""
        while True:
            with self._queue_lock:
                if not self._outgoing:
                    return True
                chunk = self._outgoing[0]
            try:
                written = self._stream.write(chunk)
            except BlockingIOError:
                return False
            with self._queue_lock:
                if written < len(chunk):
                    self._outgoing[0] = chunk[written:]
                else:
                    self._outgoing.popleft()

    def _flush(self) -> bool:
        """Write what is queued, bulk frames last; return whether the queues are empty."""
        while True:
            with self._stream_lock:
                if not self._write():
                    return False
            with self._queue_lock:
                if not self._bulk:
                    return True
                frame, on_start = self._bulk.popleft()
                self._outgoing.append(frame)
            on_start()

    def _read(self, on_data: Callable[[bytes], None]) -> bool:
        """Read what is available; return whether there may be more."""
        # With a bound: a sandbox that never stops sending must not keep the host from sending, or from stopping.
        for _ in range(MAX_READS):
            try:
                with self._stream_lock:
                    data = self._stream.read()
            except BlockingIOError:
                return False
            if not data:
                raise EOFError
            on_data(data)
        return True

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
        with self._queue_lock:
            # Behind frames that wait for room, more of these would only pile up.
            if not self._outgoing:
                self._outgoing.append(memoryview(_KEEP_ALIVE))
        return 0
