"""Closes the streams of sandboxes in forked children of this process.

A sandbox ends when it reads the end of its stream. A child that has inherited the stream would keep it open after the parent has
been killed.
"""

from __future__ import annotations

import os
from functools import cache

_descriptors: dict[int, None] = {}


def close_in_children(*descriptors: int) -> None:
    """Close descriptors in each process that is forked from this one from now on."""
    _register()
    _descriptors.update(dict.fromkeys(descriptors))


def forget(*descriptors: int) -> None:
    """Undo `close_in_children`, before the descriptors are closed: their numbers are reused."""
    for descriptor in descriptors:
        _descriptors.pop(descriptor, None)


@cache
def _register() -> None:
    os.register_at_fork(after_in_child=_close_all)


def _close_all() -> None:
    # Another thread may have held a lock during the fork, so none is taken here.
    descriptors = list(_descriptors)
    _descriptors.clear()
    if not descriptors:
        return
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in descriptors:
        # Replaced, not closed: objects that still have the number would close a reused descriptor later.
        os.dup2(null, descriptor, inheritable=False)
    os.close(null)
