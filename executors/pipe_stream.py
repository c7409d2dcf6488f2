"""A runner on the other end of a pair of pipes."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import IO

DIAGNOSTICS_LIMIT = 16 * 1024


class PipeStream:
    """The standard input and output of a child process.

    Args:
        process: The process, started with pipes.
        diagnostics: File that holds its standard error.
    """

    def __init__(self, process: subprocess.Popen[bytes], diagnostics: IO[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._diagnostics = diagnostics
        self._stdin, self._stdout = process.stdin, process.stdout
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe.fileno(), False)

    @property
    def read_fd(self) -> int:
        """The process's standard output."""
        return self._stdout.fileno()

    @property
    def write_fd(self) -> int:
        """The process's standard input."""
        return self._stdin.fileno()

    def read(self) -> bytes:
        """Read what its standard output holds."""
        return os.read(self.read_fd, 256 * 1024)

    def write(self, data: memoryview) -> int:
        """Write to its standard input."""
        return os.write(self.write_fd, data)

    def wait_exit(self, timeout_s: float) -> str:
        """Its exit code and what it wrote to its standard error."""
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout_s)
        self._diagnostics.seek(0)
        said = self._diagnostics.read(DIAGNOSTICS_LIMIT).decode("utf-8", "replace").strip()
        text = f"its exit code is {code}" if code is not None else "its exit code is not known"
        return f"{text}; it said: {said}" if said else text

    def close(self) -> None:
        """Hang up; the runner reads the end of its input and exits."""
        for pipe in (self._stdin, self._stdout, self._diagnostics):
            with contextlib.suppress(OSError):
                pipe.close()
