"""Capture of a block's output: the head goes to the host at once, the tail is kept, the middle is dropped and counted."""

import array
import collections
import contextlib
import fcntl
import os
import selectors
import termios

from ..shared import wire

READ_SIZE = 64 * 1024
# Beyond this much output the pipe is enlarged, and read into one buffer: most of the output will be dropped.
LARGE_OUTPUT = 1024 * 1024
LARGE_PIPE = 512 * 1024
# How long output collects in a pipe before it is read, so that not every line wakes the supervisor.
COLLECT_S = 0.002
# A pipe with at least this much is read on at once.
FEW_BYTES = 4096
MAX_DRAINED_PIPES = 64
# What `read` returns if there is no room for output: it is to be called again after `OutputReader.resume`.
PAUSED = -1
F_SETPIPE_SZ = 1031  # has no name before Python 3.10


class OutputCapture:
    def __init__(self, limit, emit):
        self.fd, self.write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        self._emit = emit
        self._head_room = limit - limit // 2
        self._tail_limit = limit // 2
        self._tail = bytearray()
        # Bytes so far, also those that were dropped.
        self.received = 0
        self._buffer = None
        self.dropped = 0
        self.done = False
        self.at_end = self.paused = False
        # The timer until it is read again.
        self.timer = None

    def read(self):
        """Read once; return the number of bytes: 0 at the end of the stream, None if there was nothing."""
        try:
            large = self._buffer
            data = os.read(self.fd, READ_SIZE) if large is None else large[: os.readv(self.fd, [large])]
        except BlockingIOError:
            return None
        if not self.done:
            self.keep(data)
        if self.received > LARGE_OUTPUT and self._buffer is None and not self._head_room:
            self._enlarge()
        return len(data)

    def _enlarge(self):
        self._buffer = memoryview(bytearray(LARGE_PIPE))
        with contextlib.suppress(OSError):  # the user's pipes have together reached their limit
            fcntl.fcntl(self.fd, F_SETPIPE_SZ, LARGE_PIPE)

    def waiting(self):
        count = array.array("i", [0])
        fcntl.ioctl(self.fd, termios.FIONREAD, count)
        return count[0]

    def drain(self):
        """Read what is in the pipe now and no more: a process may go on writing for ever."""
        left = self.waiting()
        while left > 0:
            try:
                data = os.read(self.fd, min(left, READ_SIZE))
            except BlockingIOError:
                return  # the code can open the pipe for reading, too, and was faster
            if not data:
                return
            left -= len(data)
            self.keep(data)

    def finish(self):
        """Send the tail and drop everything later; return the bytes dropped before the tail, and its length."""
        self.drain()
        self._cut()
        self.done = True
        tail, self._tail = bytes(self._tail), bytearray()
        for start in range(0, len(tail), wire.MAX_PAYLOAD):
            self._emit(tail[start : start + wire.MAX_PAYLOAD])
        return self.dropped, len(tail)

    def so_far(self):
        """Return the tail until now, and the number of bytes dropped before it."""
        self.drain()
        self._cut()
        return bytes(self._tail), self.dropped

    def keep(self, data):
        self.received += len(data)
        if self._head_room:
            head, data = data[: self._head_room], data[self._head_room :]
            self._head_room -= len(head)
            self._emit(head)
        if not data:
            return
        self._tail += data
        # Cutting at each read would copy the tail each time; it may grow to twice its size first.
        if len(self._tail) > 2 * self._tail_limit + READ_SIZE:
            self._cut()

    def _cut(self):
        excess = len(self._tail) - self._tail_limit
        if excess > 0:
            del self._tail[:excess]
            self.dropped += excess


class OutputReader:
    def __init__(self, loop):
        self._loop = loop
        # Pipes of ended blocks to which processes of the session may still write.
        self._drained = collections.deque()

    def start(self, capture):
        """Read a pipe, beginning in a moment: a short block has ended by then."""
        capture.timer = self._loop.call_later(COLLECT_S, lambda: self._watch(capture))

    def _watch(self, capture):
        capture.timer = None
        self._loop.selector.register(capture.fd, selectors.EVENT_READ, lambda _: self._read(capture))

    def _read(self, capture):
        count = capture.read()
        if count == PAUSED:
            self._loop.selector.unregister(capture.fd)
            capture.paused = True
        elif count == 0:
            self._loop.selector.unregister(capture.fd)
            capture.at_end = True
            if capture.done:
                self._drained.remove(capture)
                os.close(capture.fd)
        elif count is not None and count < FEW_BYTES:
            self._loop.selector.unregister(capture.fd)
            self.start(capture)

    def resume(self, capture):
        if capture.paused:
            capture.paused = False
            self._watch(capture)

    def stop(self, capture, drain):
        """Stop reading a pipe: close it, or (`drain`) read and drop what is still written to it."""
        if drain and not capture.at_end:
            self.resume(capture)
            self._drained.append(capture)
            if len(self._drained) > MAX_DRAINED_PIPES:
                self._close(self._drained.popleft())
        else:
            self._close(capture)

    def _close(self, capture):
        if capture.timer is not None:
            self._loop.cancel(capture.timer)
        elif not (capture.at_end or capture.paused):
            self._loop.selector.unregister(capture.fd)
        capture.paused = False
        os.close(capture.fd)
