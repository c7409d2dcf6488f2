"""What a `RunnerClient` is given: the byte stream to a runner, and what starts it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol


class ByteStream(Protocol):
    """Bytes to and from a runner. Nothing here blocks except `wait_exit`; only one thread at a time reads, writes or closes.

    `read` and `write` are those of `io.RawIOBase` that does not block.
    """

    @property
    def read_fd(self) -> int:
        """Descriptor that becomes readable when there is something to read."""

    @property
    def write_fd(self) -> int:
        """Descriptor that becomes writable when there is room."""

    def read(self, size: int, /) -> bytes | None:
        """Read what is there: empty at the end of the stream, None if there is nothing now; OSError if it is broken."""

    def write(self, data: memoryview, /) -> int | None:
        """Write what there is room for, and return how much; None if there is no room now; OSError if it is broken."""

    def wait_exit(self, timeout_s: float) -> str:
        """Return how the runner ended and what it wrote to its standard error, as a sentence; after the end of the stream."""

    @property
    def lease_s(self) -> float | None:
        """Seconds without a byte from the host after which the runner exits; None if the kernel reports the end."""

    def close(self) -> None:
        """Close the stream; the runner reads its end and exits."""


class Launcher(Protocol):
    """A way to start a runner; its methods block and are called in threads."""

    @property
    def engine(self) -> str | None:
        """Name of what starts the sandbox; sandboxes with the same one share it. None if `launch` waits for its turn itself."""

    @property
    def python(self) -> Hashable | None:
        """What identifies the Python of the launched sandbox, and everything that its start can execute.

        What one sandbox has compiled is sent to all that have the same. None to keep nothing.
        """

    def launch(self, boot: str) -> ByteStream:
        """Start `python3 -I -S -c boot` in a sandbox."""

    def cancel(self) -> None:
        """Let a running `launch` end early where it takes long."""

    def kill(self) -> None:
        """Kill the sandbox; repeated calls are harmless."""

    def close(self) -> None:
        """Release what the launcher holds on the host."""
