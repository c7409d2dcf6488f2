"""Fixtures for tests of the viewer."""

import asyncio
from pathlib import Path

import pytest

from .runs import record_rich_run


@pytest.fixture(scope="session")
def rich_run(bubblewrap: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a recorded run of a team with all kinds of steps. It is shared: do not change it."""
    return asyncio.run(record_rich_run(tmp_path_factory.mktemp("runs") / "rich"))
