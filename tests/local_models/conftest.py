"""Fixtures for tests with a live model. `make test-live` fetches its weights first: the tests use no network."""

from collections.abc import AsyncIterator, Iterator

import pytest

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.local_models import local_model, server
from autogen_codeact.local_models.client import LocalModelClient
from tests.sandbox import reused


@pytest.fixture(scope="session", autouse=True)
def stop_servers() -> Iterator[None]:
    """Stop the servers of models, which are shared by the tests of a process."""
    yield
    for each in server._servers.values():
        each.stop()


@pytest.fixture
async def live() -> AsyncIterator[LocalModelClient]:
    """The small model, with answers that are short."""
    client = local_model(context=2048, max_tokens=80)
    yield client
    await client.close()


@pytest.fixture
async def session(bubblewrap: None) -> AsyncIterator[SandboxCodeExecutor]:
    """A real sandbox with one interpreter that lives on."""
    async with reused.executor(BubblewrapCommandLineCodeExecutor, mode="session", timeout=20) as executor:
        yield executor
