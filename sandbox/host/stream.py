"""The byte stream to a runner, whatever carries it."""

from __future__ import annotations

from typing import Protocol


class ByteStream(Protocol):
    """Bytes to and from a runner; nothing here blocks except `wait_exit`."""

    @property
    def any_thread_writes(self) -> bool:
        """Whether one thread may write while another reads, as it can't with TLS."""
        ...

    @property
    def read_fd(self) -> int:
        """Descriptor that becomes readable when there is something to read."""
        ...

    @property
    def write_fd(self) -> int:
        """Descriptor that becomes writable when there is room."""
        ...

    def read(self) -> bytes:
        """Read what is there.

        Returns:
            Bytes; empty at the end of the stream.

        Raises:
            BlockingIOError: There is nothing now.
            OSError: The stream is broken.
        """
        ...

    def write(self, data: memoryview) -> int:
        """Write what there is room for.

        Returns:
            Number of bytes taken.

        Raises:
            BlockingIOError: There is no room now.
            OSError: The stream is broken.
        """
        ...

    def wait_exit(self, timeout_s: float) -> str:
        """After the end of the stream: how the runner ended and what it said on its standard error, in a sentence."""
        ...

    def lease_s(self, asked_s: float) -> float | None:
        """How long the runner may hear nothing from this end before it takes it for dead.

        Args:
            asked_s: What the user chose for a stream that can break without either end hearing of it, in seconds.

        Returns:
            Seconds, or None where the kernel tells each end of the other's.
        """
        ...

    def close(self) -> None:
        """Let go of the stream; the runner reads its end and exits."""
        ...


class Launcher(Protocol):
    """A way to start a runner; all of it blocks and is called in threads."""

    @property
    def engine(self) -> str:
        """What serves the start, shared by all sandboxes with the same one."""
        ...

    def launch(self, boot: str) -> ByteStream:
        """Start `python3 -I -S -c boot` in a sandbox.

        Raises:
            SandboxError: It did not come up; nothing is left of it.
        """
        ...

    def kill(self) -> None:
        """End the sandbox now, whatever it does; repeated calls are harmless."""
        ...

    def close(self) -> None:
        """Let go of what the launcher holds on the host."""
        ...
