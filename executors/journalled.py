"""Which code in a session somebody keeps a journal of, so that it is known whether the journal is the whole story."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

_JOURNALLED: contextvars.ContextVar[object] = contextvars.ContextVar("journalled", default=None)


@contextlib.contextmanager
def journalled(executor: object) -> Iterator[None]:
    """Have what is run inside in one executor not count as code of others."""
    reset = _JOURNALLED.set(executor)
    try:
        yield
    finally:
        _JOURNALLED.reset(reset)


def is_journalled(executor: object) -> bool:
    """Whether somebody keeps a journal of what is run now."""
    return _JOURNALLED.get() is executor
