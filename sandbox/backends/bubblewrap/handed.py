"""Descriptors that a child process is started with."""

from __future__ import annotations

import contextlib
import os


class Handed:
    """Descriptors for a child; a context that closes whatever is still open."""

    def __init__(self) -> None:
        self.fds: list[int] = []
        self._kept: list[int] = []

    def file(self, content: bytes) -> int:
        """A descriptor for the child to read the content from; it has no name, so nobody else can write to it."""
        fd = os.memfd_create("codeact", os.MFD_CLOEXEC)
        self.fds.append(fd)
        with os.fdopen(os.dup(fd), "wb") as copy:
            copy.write(content)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def from_child(self) -> tuple[int, int]:
        """A pipe that the child writes to, as (ours, the child's); it is the caller's to close ours."""
        ours, theirs = os.pipe()
        self.fds.append(theirs)
        return ours, theirs

    def gate(self) -> tuple[int, int]:
        """A pipe that holds one byte for the child, as (ours, the child's): ours is writable again when it was read."""
        import fcntl  # noqa: PLC0415 - Windows has none, and must be able to import this package

        theirs, ours = os.pipe2(os.O_DIRECT | os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(theirs, True)
        self._kept.append(ours)
        self.fds.append(theirs)
        fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, 1)
        return ours, theirs

    def close_childs(self) -> None:
        """Close what the child has by now."""
        while self.fds:
            os.close(self.fds.pop())

    def __enter__(self) -> Handed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_childs()
        while self._kept:
            with contextlib.suppress(OSError):
                os.close(self._kept.pop())
