"""Descriptors that a child process inherits."""

from __future__ import annotations

import contextlib
import fcntl
import os


class InheritedFiles:
    """Descriptors that a child process inherits; a context manager that closes those that are still open."""

    def __init__(self) -> None:
        self.fds: list[int] = []
        self._own: list[int] = []

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
        self._own.append(own_end)
        self.fds.append(child_end)
        fcntl.fcntl(own_end, fcntl.F_SETPIPE_SZ, 1)
        return own_end, child_end

    def close_child_ends(self) -> None:
        """Close what the child has inherited by now."""
        while self.fds:
            os.close(self.fds.pop())

    def __enter__(self) -> InheritedFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_child_ends()
        while self._own:
            with contextlib.suppress(OSError):
                os.close(self._own.pop())
