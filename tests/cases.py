"""Many cases in one test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def case(*what: Any) -> Iterator[None]:
    """Name the case in the report if the block fails."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(map(repr, what))[:1000]}")
        raise
