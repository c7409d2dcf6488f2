"""Fixtures for tests of run logs."""

from collections.abc import AsyncIterator

import pytest

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.sandbox import reused


@pytest.fixture
async def session(bubblewrap: None) -> AsyncIterator[SandboxCodeExecutor]:
    """A real sandbox with one interpreter that lives on."""
    async with reused.executor(BubblewrapCommandLineCodeExecutor, mode="session", timeout=20) as executor:
        yield executor
