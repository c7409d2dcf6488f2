"""What the tests of pools are run on."""

from collections.abc import Iterator

import pytest

from tests.sandbox.pool.pooled import KINDS, left, what_is_new


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Docker and bubblewrap."""
    request.getfixturevalue("sandbox_image" if request.param == "docker" else "bubblewrap")
    return str(request.param)


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    """Containers, processes, threads, descriptors and control groups are after the test what they were before it."""
    before = left()
    yield
    assert what_is_new(before) == {}
