"""Writes a file as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def whole_file(target: Path) -> Iterator[TextIO]:
    """Open a file that takes the place of `target` when the block ends; if it raises, `target` stays as it is.

    Args:
        target: The file, which may exist.

    Raises:
        OSError: It can't be written.
    """
    descriptor, part = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".part", dir=target.parent)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
            yield file
            umask = os.umask(0)
            os.umask(umask)
            os.fchmod(file.fileno(), 0o666 & ~umask)
        os.replace(part, target)
    except BaseException:
        os.unlink(part)
        raise
