"""A runner on the other end of a pair of pipes."""

from __future__ import annotations

import contextlib
import os
import subprocess

DIAGNOSTICS_LIMIT = 16 * 1024


class Diagnostics:
    """What a process writes to its standard error: as much as a pipe holds, so that nobody need read it and no disk fills."""

    def __init__(self) -> None:
        self._read_fd, self.write_fd = os.pipe()
        # The flag belongs to the pipe's end, not to this process: who writes more loses it, and does not wait.
        os.set_blocking(self.write_fd, False)
        os.set_blocking(self._read_fd, False)
        self._said = b""

    def close_write_end(self) -> None:
        """Let go of the end that the process has by now."""
        fd, self.write_fd = self.write_fd, -1
        if fd >= 0:
            os.close(fd)

    def text(self) -> str:
        """What it has said so far."""
        with contextlib.suppress(OSError):
            while len(self._said) < DIAGNOSTICS_LIMIT and (piece := os.read(self._read_fd, DIAGNOSTICS_LIMIT)):
                self._said += piece
        return self._said.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Let go of both ends."""
        self.close_write_end()
        fd, self._read_fd = self._read_fd, -1
        if fd >= 0:
            os.close(fd)


class PipeStream:
    """The standard input and output of a child process.

    Args:
        process: The process, started with pipes.
        diagnostics: Its standard error.
    """

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

    def read(self) -> bytes:
        """Read what its standard output holds."""
        return os.read(self.read_fd, 64 * 1024)

    def write(self, data: memoryview) -> int:
        """Write to its standard input."""
        return os.write(self.write_fd, data)

    def wait_exit(self, timeout_s: float) -> str:
        """Its exit code and what it wrote to its standard error."""
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout_s)
        said = self._diagnostics.text()
        text = f"its exit code is {code}" if code is not None else "its exit code is not known"
        return f"{text}; it said: {said}" if said else text

    def lease_s(self, requested_s: float) -> None:
        """Return None: a pipe ends with the process at its other end."""

    def close(self) -> None:
        """Hang up; the runner reads the end of its input and exits."""
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self.read_fd = self.write_fd = -1
        self._diagnostics.close()
