"""Tests that go through their cases in a loop."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(*of: object) -> Iterator[None]:
    """Name the case in the report of a test that fails."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(map(repr, of))}"[:500])
        raise
