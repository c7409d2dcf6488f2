"""Fixtures for tests of batches."""

from collections.abc import AsyncIterator

import pytest

from autogen_codeact.executors import ExecutorPool
from tests.batch.support import MakeAgent, answer
from tests.openai_server import OpenAIServer


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    """A model that doubles numbers."""
    async with OpenAIServer(answer) as started:
        yield started


@pytest.fixture
def make(bubblewrap: None, server: OpenAIServer) -> MakeAgent:
    """Makes agents that ask it."""
    return MakeAgent(server.client())


@pytest.fixture
async def pool(bubblewrap: None) -> AsyncIterator[ExecutorPool]:
    """Sandboxes that outlive a batch."""
    async with ExecutorPool(1, backend="bubblewrap", mode="session") as started:
        yield started
