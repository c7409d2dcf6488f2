"""Names the case of a loop that failed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def case(*values: Any) -> Iterator[None]:
    """Add the values of a case to whatever its assertions raise."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(repr(value)[:200] for value in values)}")
        raise
