"""What tests of teams share."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.agents.conftest import executor, session

__all__ = ["executor", "session"]


@pytest.fixture
async def tidy() -> AsyncIterator[None]:
    """Fail where a task is left, or where asyncio reports something like an exception that was never retrieved."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    gc.freeze()  # the collection below looks at what the test has made, and at nothing else
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    gc.collect()
    gc.unfreeze()
    await asyncio.sleep(0)
    assert reports == []
    assert left == set()
