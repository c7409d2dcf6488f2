"""Standard streams of a block: written line by line, so that order and partial output survive a kill."""

import collections
import io
import os
import signal
import sys
import threading
import time

from . import system

LATE_LIMIT = 64 * 1024
FULL = 8 * 1024
QUIET_S = 0.02
# Taken here, because each line that is printed needs them, and user code may come to replace what the modules hold.
_set_handler, _main_thread, _this_thread = signal.signal, threading.main_thread, threading.current_thread
_now = time.monotonic


def point_at(stdout_fd, stderr_fd):
    """Make descriptors 0, 1 and 2 those of the block: nothing to read, its own pipes to write to.

    Args:
        stdout_fd: Where standard output goes; above 2, as is the next.
        stderr_fd: Where standard error goes.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(stdout_fd, 1)
    os.dup2(stderr_fd, 2)
    for fd in {null, stdout_fd, stderr_fd}:
        if fd > 2:
            os.close(fd)


def let_go():
    """Let what is written to descriptors 1 and 2 from now on go nowhere, so that the block's pipes come to their end."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
    except OSError:
        return  # there is no descriptor left: then they are the next block's to end
    os.dup2(null, 1)
    os.dup2(null, 2)
    if null > 2:
        os.close(null)


def open_streams(is_late=lambda: False, keep_late=None):
    """Give the interpreter fresh `sys.stdin`, `sys.stdout` and `sys.stderr` on descriptors 0, 1 and 2.

    Args:
        is_late: Whether the running thread belongs to an earlier block.
        keep_late: Takes what such a thread writes.
    """
    stdout = Output(1, None, is_late, keep_late)
    stderr = Output(2, stdout, is_late, keep_late)
    # The supervisor's last word before it kills the block: what is held back must not be lost.
    _set_handler(system.LAST_WORDS, lambda *_: (stdout.flush(), stderr.flush()))
    for name, stream in (("stdin", _input()), ("stdout", _text(stdout)), ("stderr", _text(stderr))):
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)


def flush():
    """Write out what is still held back, also behind streams that the block has put in the place of ours."""
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        try:
            getattr(sys, name).flush()
        except Exception:  # closed, deleted, or of the block's own making
            pass


def _is_open(stream):
    try:
        return not stream.closed
    except (AttributeError, ValueError):  # there is none yet, or the block has detached its buffer
        return False


def _input():
    return open(0, encoding="utf-8", closefd=False)


def _text(raw):
    # A lone surrogate must not turn a print into an exception.
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def thread_pool():
    """The class of thread pools; the first call takes milliseconds, so a session makes it before there is a block."""
    import concurrent.futures

    return concurrent.futures.ThreadPoolExecutor


class SessionStreams:
    """The streams of a session: text of a thread that outlives its block is kept apart from the next block's output."""

    def __init__(self):
        self.block = 0
        self.running = False
        self.late = bytearray()
        self.late_dropped = 0
        self.standard = ()

    def patch_threads(self):
        """Mark threads from now on with the block that started them."""
        _mark(threading.Thread, "start", self._start_marked)
        # A pool's threads outlive the block that made the pool, but a call belongs to the block that submitted it.
        _mark(thread_pool(), "submit", self._submit_marked)

    def begin(self, block):
        """Put the session's own streams in place for a block; new ones where a block has closed them."""
        if not all(map(_is_open, self.standard or (None,))):
            open_streams(self.is_late, self.keep_late)
            self.standard = (sys.stdin, sys.stdout, sys.stderr)
        sys.stdin, sys.stdout, sys.stderr = self.standard
        self.block = block
        self.running = True

    def end(self):
        """From now on all text of threads is late.

        Returns:
            Text of earlier blocks' threads since the last call.
        """
        self.running = False
        return self.take_late()

    def is_late(self):
        """Whether the running thread was started by an earlier block."""
        thread = _this_thread()
        if thread is _main_thread():
            return False
        return not self.running or getattr(thread, "_codeact_block", self.block) != self.block

    def keep_late(self, data):
        """Keep what a thread of an earlier block wrote."""
        room = max(0, LATE_LIMIT - len(self.late))
        self.late += data[:room]
        self.late_dropped += max(0, len(data) - room)

    def take_late(self):
        """Text of earlier blocks' threads since the last call."""
        text = bytes(self.late).decode("utf-8", "replace")
        if self.late_dropped:
            text += "[... %d bytes dropped ...]" % self.late_dropped
        self.late = bytearray()
        self.late_dropped = 0
        return text

    def _start_marked(self, start, thread, args, kwargs):
        thread._codeact_block = getattr(_this_thread(), "_codeact_block", self.block)
        return start(thread, *args, **kwargs)

    def _submit_marked(self, submit, pool, args, kwargs):
        if not args:
            return submit(pool, *args, **kwargs)
        block = self.block

        def call(*call_args, **call_kwargs):
            _this_thread()._codeact_block = block
            return args[0](*call_args, **call_kwargs)

        return submit(pool, call, *args[1:], **kwargs)


def _mark(owner, name, around):
    original = getattr(owner, name)

    def method(self, *args, **kwargs):
        return around(original, self, args, kwargs)

    method.__name__ = name
    method.__qualname__ = original.__qualname__
    method.__doc__ = original.__doc__
    method.__wrapped__ = original
    setattr(owner, name, method)


class Output(io.RawIOBase):
    """Writes to a descriptor at each end of a line, and at once when nothing was written for a while.

    A print is several writes; passing each on at once would cost a system call and a wake-up apiece.

    Args:
        fd: The descriptor.
        before: Another output whose text must not come after this one's, or None.
        is_late: Whether the running thread belongs to an earlier block.
        keep_late: Takes what such a thread writes.
    """

    mode = "wb"

    def __init__(self, fd, before, is_late, keep_late):
        super().__init__()
        self.name = fd
        self._fd = fd
        self._before = before
        self._is_late = is_late
        self._keep_late = keep_late
        # Pieces, not one buffer: threads may write at the same time, and appending is atomic.
        self._pieces = collections.deque()
        self._size = 0
        self._last = 0.0

    def writable(self):
        return True

    def fileno(self):
        return self._fd

    def write(self, data):
        data = bytes(data)
        if self._is_late():
            self._keep_late(data)
            return len(data)
        if self._before is not None:
            self._before.flush()
        self._pieces.append(data)
        self._size += len(data)
        if b"\n" in data or self._size >= FULL or _now() - self._last > QUIET_S:
            self.flush()
        return len(data)

    def flush(self):
        if not self._pieces:
            return
        pieces = []
        while self._pieces:
            pieces.append(self._pieces.popleft())
        self._size = 0
        view = memoryview(b"".join(pieces))
        while view:
            view = view[os.write(self._fd, view) :]
        self._last = _now()
