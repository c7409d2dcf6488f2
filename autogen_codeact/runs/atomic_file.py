"""Atomic writing: a file is replaced by its new content as a whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO

PART = ".part"  # end of the names of files that are being written; they begin with a dot


@contextmanager
def atomic_text_file(target: Path) -> Iterator[TextIO]:
    """Open a new text file, which replaces `target` at the end of the block; after an exception `target` is unchanged."""
    with atomic_binary_file(target) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="\n")
        yield text
        text.flush()
        text.detach()


@contextmanager
def atomic_binary_file(target: Path, *, private: bool = False, sync: bool = False) -> Iterator[BinaryIO]:
    """Open a new binary file, which replaces `target` at the end of the block; after an exception `target` is unchanged.

    `private`: only this user may read it. `sync`: it is on the disk first, so that it is complete after a loss of power, too.
    """
    descriptor, part = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=PART, dir=target.parent)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            if not private:
                umask = os.umask(0)
                os.umask(umask)
                os.fchmod(file.fileno(), 0o666 & ~umask)
            if sync:
                os.fsync(file.fileno())
        os.replace(part, target)
        if sync:
            sync_directory(target.parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def sync_directory(folder: Path) -> None:
    """Write the entries of a directory to the disk: without its new name, a file would be lost after a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
