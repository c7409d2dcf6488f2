"""Standard streams of a block: written through at once, so that order and partial output survive a kill."""

import io
import os
import sys
import threading

LATE_LIMIT = 64 * 1024


def point_at(stdout_fd, stderr_fd):
    """Make descriptors 0, 1 and 2 those of the block: nothing to read, its own pipes to write to."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(stdout_fd, 1)
    os.dup2(stderr_fd, 2)
    for fd in {null, stdout_fd, stderr_fd}:
        if fd > 2:
            os.close(fd)


def open_streams():
    """Give the interpreter fresh `sys.stdin`, `sys.stdout` and `sys.stderr` on descriptors 0, 1 and 2."""
    _install(io.FileIO(1, "w", closefd=False), io.FileIO(2, "w", closefd=False))


def _install(stdout, stderr):
    for name, stream in (("stdin", _input()), ("stdout", _text(stdout)), ("stderr", _text(stderr))):
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)


def _input():
    return open(0, encoding="utf-8", closefd=False)


def _text(raw):
    # A lone surrogate must not turn a print into an exception. Write-through is what `python -u` does.
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


class SessionStreams:
    """The streams of a session: text of a thread that outlives its block is kept apart from the next block's output."""

    def __init__(self):
        self.block = 0
        self.late = bytearray()
        self.late_dropped = 0

    def install(self):
        """Put the streams in place and mark threads with the block that started them."""
        _install(_Router(self, 1), _Router(self, 2))
        _mark(threading.Thread, "start", self._start_marked)
        import concurrent.futures

        # A pool's threads outlive the block that made the pool, but a call belongs to the block that submitted it.
        _mark(concurrent.futures.ThreadPoolExecutor, "submit", self._submit_marked)

    def is_late(self):
        """Whether the running thread was started by an earlier block."""
        thread = threading.current_thread()
        return thread is not threading.main_thread() and getattr(thread, "_codeact_block", self.block) != self.block

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
        thread._codeact_block = getattr(threading.current_thread(), "_codeact_block", self.block)
        return start(thread, *args, **kwargs)

    def _submit_marked(self, submit, pool, args, kwargs):
        if not args:
            return submit(pool, *args, **kwargs)
        block = self.block

        def call(*call_args, **call_kwargs):
            threading.current_thread()._codeact_block = block
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


class _Router(io.RawIOBase):
    """Writes to a descriptor, unless the thread belongs to an earlier block."""

    name = "<session>"
    mode = "wb"

    def __init__(self, streams, fd):
        super().__init__()
        self._streams = streams
        self._fd = fd

    def writable(self):
        return True

    def fileno(self):
        return self._fd

    def write(self, data):
        data = bytes(data)
        if self._streams.is_late():
            self._streams.keep_late(data)
            return len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        return len(data)
