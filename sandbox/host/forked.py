"""Closing a sandbox's streams in forked children of this process.

A sandbox ends when it reads the end of its stream. A child that has inherited the stream would keep it open after the parent has
been killed.
"""

from __future__ import annotations

import os
from functools import cache

_descriptors: dict[int, None] = {}


def keep_from_children(*descriptors: int) -> None:
    """Close descriptors in each process that is forked from this one.

    Args:
        descriptors: Of streams.
    """
    _register()
    _descriptors.update(dict.fromkeys(descriptors))


def forget(*descriptors: int) -> None:
    """Remove descriptors from the list before they are closed: their numbers are reused.

    Args:
        descriptors: The same as for `keep_from_children`.
    """
    for descriptor in descriptors:
        _descriptors.pop(descriptor, None)


@cache
def _register() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_let_go)


def _let_go() -> None:
    # Another thread may have held a lock during the fork, so none is taken here.
    descriptors = list(_descriptors)
    _descriptors.clear()
    if not descriptors:
        return
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in descriptors:
        # Replaced, not closed: objects that still have the number would close a reused descriptor later.
        os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
