"""What the tests of pools are run on."""

import pytest

from tests.sandbox.pool.pooled import KINDS


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Docker and bubblewrap."""
    request.getfixturevalue("sandbox_image" if request.param == "docker" else "bubblewrap")
    return str(request.param)
