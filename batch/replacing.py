"""Writing files as a whole, so that neither a crash nor a full disk leaves half of one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def replace_file(path: Path, content: bytes) -> None:
    """Write a file as a whole: after a crash it has the old content or the new one."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write it as a whole; it is in its place when the block has ended without an error.

    Args:
        path: The file.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        # As the other files: answers are not for all users of the machine.
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise
