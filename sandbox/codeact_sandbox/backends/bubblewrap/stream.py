"""The stream of a bubblewrap sandbox: a pair of pipes."""

from __future__ import annotations

import contextlib
import os
import subprocess

DIAGNOSTICS_LIMIT = 16 * 1024


class Diagnostics:
    """What a process writes to its standard error, at most what a pipe holds: nobody has to read it, and no disk fills."""

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
        """Return what the process has written so far."""
        with contextlib.suppress(OSError):
            while len(self._text) < DIAGNOSTICS_LIMIT and (piece := os.read(self._read_fd, DIAGNOSTICS_LIMIT)):
                self._text += piece
        return self._text.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Close both ends."""
        self.close_write_end()
        fd, self._read_fd = self._read_fd, -1
        if fd >= 0:
            os.close(fd)


class PipeStream:
    """The standard input and output of a child process."""

    lost = None

    def __init__(self, process: subprocess.Popen[bytes], diagnostics: Diagnostics) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._diagnostics = diagnostics
        self._stdin, self._stdout = process.stdin, process.stdout
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe.fileno(), False)
        self.read_fd, self.write_fd = self._stdout.fileno(), self._stdin.fileno()
        """The process's standard output and input; -1 when closed."""
        self.read, self.write = self._stdout.read, self._stdin.write

    def wait_exit(self, timeout_s: float) -> str:
        """Return its exit code and what it wrote to its standard error."""
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout_s)
        stderr = self._diagnostics.text()
        text = f"its exit code is {code}" if code is not None else "its exit code is not known"
        return f"{text}; it said: {stderr}" if stderr else text

    def lease_s(self, requested_s: float) -> None:
        """Return None: a pipe ends with the process at its other end."""

    def close(self) -> None:
        """Close both pipes; the runner reads the end of its input and exits."""
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self.read_fd = self.write_fd = -1
        self._diagnostics.close()
