"""Standard streams of a block: written line by line, so that the order is kept and a kill loses little."""

import collections
import io
import os
import signal
import sys
import threading
import time

from ..shared import system

LATE_LIMIT = 64 * 1024
BUFFER_LIMIT = 8 * 1024
IDLE_S = 0.02
# References of its own: each printed line needs these, and user code may replace the functions of the modules.
_set_handler, _main_thread, _this_thread = signal.signal, threading.main_thread, threading.current_thread
_now = time.monotonic


def redirect(stdout_fd, stderr_fd):
    """Set descriptors 0, 1 and 2 for a block: empty input, and its pipes."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(stdout_fd, 1)
    os.dup2(stderr_fd, 2)
    for fd in {null, stdout_fd, stderr_fd}:
        if fd > 2:
            os.close(fd)


def detach():
    """Redirect descriptors 1 and 2 to /dev/null, so that the ended block's pipes are closed."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
    except OSError:
        return  # no descriptor is left: the next block replaces them
    os.dup2(null, 1)
    os.dup2(null, 2)
    if null > 2:
        os.close(null)


def open_streams(is_late=lambda: False, keep_late=None):
    """Give the interpreter fresh `sys.stdin`, `sys.stdout` and `sys.stderr` on descriptors 0, 1 and 2."""
    stdout = Output(1, None, is_late, keep_late)
    stderr = Output(2, stdout, is_late, keep_late)
    # The supervisor sends this signal before it kills the block: what is buffered must not be lost.
    _set_handler(system.FLUSH_SIGNAL, lambda *_: (stdout.flush(), stderr.flush()))
    for name, stream in (("stdin", _input()), ("stdout", _text(stdout)), ("stderr", _text(stderr))):
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)


def flush():
    """Write out what is buffered, also by streams with which the block has replaced these."""
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        try:
            getattr(sys, name).flush()
        except Exception:  # closed, deleted, or replaced by an object without `flush`
            pass


def text_of(thing):
    """Return `str` of it, as a plain string; empty if that fails."""
    try:
        return "".join([str(thing)])  # not of its characters, each of which would take an object
    except BaseException:
        return ""


def _is_open(stream):
    try:
        return not stream.closed
    except (AttributeError, ValueError):  # there is no stream yet, or the block has detached its buffer
        return False


def _input():
    return open(0, encoding="utf-8", closefd=False)


def _text(raw):
    # A lone surrogate must not turn a print into an exception.
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def thread_pool():
    """Return the class of thread pools; the import takes milliseconds, so a session does it before the first block."""
    import concurrent.futures

    return concurrent.futures.ThreadPoolExecutor


class SessionStreams:
    """The streams of a session: output of threads that outlive their block is kept apart from the next block's output."""

    def __init__(self):
        self.block = 0
        self.running = False
        self.late = bytearray()
        self.late_dropped = 0
        self.standard = ()

    def patch_threads(self):
        _mark(threading.Thread, "start", self._start_marked)
        # Threads of a pool outlive the block that has made it; a call belongs to the block that has submitted it.
        _mark(thread_pool(), "submit", self._submit_marked)

    def begin(self, block):
        """Set the session's streams for a block; open new ones if a block has closed them."""
        if not all(map(_is_open, self.standard or (None,))):
            open_streams(self.is_late, self.keep_late)
            self.standard = (sys.stdin, sys.stdout, sys.stderr)
        sys.stdin, sys.stdout, sys.stderr = self.standard
        self.block = block
        self.running = True

    def end(self):
        """End the block: from now on, all output of threads is late; return what earlier blocks' threads have written."""
        self.running = False
        # A wrapper with which the block has replaced one goes now: it may close the block's descriptor.
        sys.stdin, sys.stdout, sys.stderr = self.standard
        text = bytes(self.late).decode("utf-8", "replace")
        if self.late_dropped:
            text += "[... %d bytes dropped ...]" % self.late_dropped
        self.late, self.late_dropped = bytearray(), 0
        return text

    def is_late(self):
        """Return whether the current thread was started by an earlier block."""
        thread = _this_thread()
        if thread is _main_thread():
            return False
        return not self.running or getattr(thread, "_codeact_block", self.block) != self.block

    def keep_late(self, data):
        room = max(0, LATE_LIMIT - len(self.late))
        self.late += data[:room]
        self.late_dropped += max(0, len(data) - room)

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
    """Writes to a descriptor at each end of a line, and at once if nothing was written for a while.

    A print is several writes; each of them would otherwise cost a system call and wake the supervisor.
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

    def close(self):
        """Only flush: a wrapper that code makes around it closes it when the wrapper goes."""
        self.flush()

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
        if b"\n" in data or self._size >= BUFFER_LIMIT or _now() - self._last > IDLE_S:
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
