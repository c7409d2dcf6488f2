"""The stream of a bubblewrap sandbox: a pair of pipes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Callable

DIAGNOSTICS_LIMIT = 16 * 1024


class Diagnostics:
    """What a process writes to its standard error, at most what a pipe holds: it need not be read, and no disk fills."""

    def __init__(self) -> None:
        self._read_fd, self.write_fd = os.pipe()
        # The process has the same end of the pipe, so it does not block either: what it writes beyond the pipe's room is lost.
        os.set_blocking(self.write_fd, False)
        os.set_blocking(self._read_fd, False)
        self._text = b""

    def close_write_end(self) -> None:
        """Close this process's copy of the end that the child has inherited."""
        fd, self.write_fd = self.write_fd, -1
        if fd >= 0:
            os.close(fd)

    def text(self) -> str:
        with contextlib.suppress(OSError):
            while len(self._text) < DIAGNOSTICS_LIMIT and (piece := os.read(self._read_fd, DIAGNOSTICS_LIMIT)):
                self._text += piece
        return self._text.decode("utf-8", "replace").strip()

    def close(self) -> None:
        self.close_write_end()
        fd, self._read_fd = self._read_fd, -1
        if fd >= 0:
            os.close(fd)


class PipeStream:
    lease_s: float | None = None  # a pipe ends with the process at its other end

    def __init__(self, process: subprocess.Popen[bytes], diagnostics: Diagnostics) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._diagnostics = diagnostics
        self._stdin, self._stdout = process.stdin, process.stdout
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe.fileno(), False)
        # The process's standard output and input; -1 when closed.
        self.read_fd, self.write_fd = self._stdout.fileno(), self._stdin.fileno()
        self.read: Callable[[int], bytes | None] = self._stdout.read
        self.write: Callable[[memoryview], int | None] = self._stdin.write

    def wait_exit(self, timeout_s: float) -> str:
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout_s)
        stderr = self._diagnostics.text()
        text = f"its exit code is {code}" if code is not None else "its exit code is not known"
        return f"{text}; it said: {stderr}" if stderr else text

    def close(self) -> None:
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self.read_fd = self.write_fd = -1
        self._diagnostics.close()


class InheritedFiles(contextlib.ExitStack):
    """Descriptors that a child process inherits; those that are still open are closed at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.fds: list[int] = []
        self.callback(self.close_child_ends)

    def file(self, content: bytes) -> int:
        """Return a descriptor for the child to read the content from; it has no name, so no other process can write to it."""
        fd = os.memfd_create("codeact", os.MFD_CLOEXEC)
        self.fds.append(fd)
        with os.fdopen(os.dup(fd), "wb") as copy:
            copy.write(content)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def pipe_from_child(self) -> tuple[int, int]:
        """Return a pipe that the child writes to, as (own end, child's end); the caller closes its own end.

        The child's end can be read as well, so that the pipe always has a reader: bwrap whose write failed because this
        process was killed would end at once, and the process that it has just started would wait for it for ever.
        """
        own_end, write_only = os.pipe()
        try:
            child_end = os.open(f"/proc/self/fd/{write_only}", os.O_RDWR | os.O_CLOEXEC)
        except BaseException:
            os.close(own_end)
            raise
        finally:
            os.close(write_only)
        self.fds.append(child_end)
        return own_end, child_end

    def gate(self) -> tuple[int, int]:
        """Return a pipe that holds one byte for the child, as (own end, child's end): writable again when the byte was read."""
        child_end, own_end = os.pipe2(os.O_DIRECT | os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(child_end, True)
        self.callback(os.close, own_end)
        self.fds.append(child_end)
        fcntl.fcntl(own_end, fcntl.F_SETPIPE_SZ, 1)
        return own_end, child_end

    def close_child_ends(self) -> None:
        while self.fds:
            os.close(self.fds.pop())
