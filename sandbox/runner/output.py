"""What a block writes: the head goes to the host as it comes, the tail is kept, the middle is dropped and counted."""

import array
import fcntl
import os
import termios

from . import wire

READ_SIZE = 64 * 1024
# Who has written so much gets a larger pipe, and its bytes no memory of their own: most of them are dropped.
PLENTY = 1024 * 1024
LARGE_PIPE = 512 * 1024
F_SETPIPE_SZ = 1031  # has no name before Python 3.10


class Capture:
    """Reads one pipe of a block.

    Args:
        kind: Type of the frames that carry its bytes.
        limit: Bytes kept: half of them from the head, half from the tail.
        emit: Called with (kind, bytes) for what goes to the host.
    """

    def __init__(self, kind, limit, emit):
        self.kind = kind
        self.fd, self.write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        self._emit = emit
        self._head_room = limit - limit // 2
        self._tail_limit = limit // 2
        self._tail = bytearray()
        self._came = 0
        self._buffer = None
        self.dropped = 0
        self.done = False
        self.at_end = False
        self.pause = None

    def close_write_end(self):
        """Forget the block's end, once the block has it."""
        os.close(self.write_fd)

    def pump(self):
        """Read what is there, once.

        Returns:
            How many bytes; 0 at the end of the stream, None when there was nothing.
        """
        try:
            data = os.read(self.fd, READ_SIZE) if self._buffer is None else self._read_much()
        except BlockingIOError:
            return None
        if not self.done:
            self._keep(data)
        self._came += len(data)
        if self._came > PLENTY and self._buffer is None and not self._head_room:
            self._expect_much()
        return len(data)

    def _expect_much(self):
        self._buffer = memoryview(bytearray(LARGE_PIPE))
        try:
            fcntl.fcntl(self.fd, F_SETPIPE_SZ, LARGE_PIPE)
        except OSError:
            pass  # the user's pipes together are as large as they may be

    def _read_much(self):
        return self._buffer[: os.readv(self.fd, [self._buffer])]

    def drain(self):
        """Read what lies in the pipe now and no more: someone may go on writing for ever."""
        waiting = array.array("i", [0])
        fcntl.ioctl(self.fd, termios.FIONREAD, waiting)
        left = waiting[0]
        while left > 0:
            try:
                data = os.read(self.fd, min(left, READ_SIZE))
            except BlockingIOError:
                return  # the code can open its end for reading, too, and was faster
            if not data:
                return
            left -= len(data)
            self._keep(data)

    def finish(self):
        """Send the tail and take no more.

        Returns:
            (bytes dropped before the tail, length of the tail).
        """
        self.drain()
        self._cut()
        self.done = True
        tail, self._tail = bytes(self._tail), bytearray()
        for start in range(0, len(tail), wire.MAX_PAYLOAD):
            self._emit(self.kind, tail[start : start + wire.MAX_PAYLOAD])
        return self.dropped, len(tail)

    def _keep(self, data):
        if self._head_room:
            head, data = data[: self._head_room], data[self._head_room :]
            self._head_room -= len(head)
            self._emit(self.kind, head)
        if not data:
            return
        self._tail += data
        # Cutting at every read would copy the tail each time; let it grow to twice its size first.
        if len(self._tail) > 2 * self._tail_limit + READ_SIZE:
            self._cut()

    def _cut(self):
        excess = len(self._tail) - self._tail_limit
        if excess > 0:
            del self._tail[:excess]
            self.dropped += excess
