"""Functions in configurations: refused by name, or omitted where the caller keeps their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

# AutoGen's `dump_component` takes no argument that could say it.
_OMITTED: ContextVar[list[str] | None] = ContextVar("_OMITTED", default=None)


@contextmanager
def omitting_functions() -> Iterator[list[str]]:
    """Let components be dumped without their functions, which are given again after loading.

    Yields:
        The names of what was omitted.
    """
    omitted: list[str] = []
    token = _OMITTED.set(omitted)
    try:
        yield omitted
    finally:
        _OMITTED.reset(token)


def refuse_functions(names: Sequence[str], message: str) -> None:
    """Refuse functions that can't be written into a configuration, unless they are to be omitted.

    Args:
        names: Their names.
        message: Text of the error.

    Raises:
        ValueError: There is one.
    """
    omitted = _OMITTED.get()
    if names and omitted is None:
        raise ValueError(message)
    if omitted is not None:
        omitted += names
