"""Fixtures for tests with a live model. `make test-live` fetches its weights first: the tests use no network."""

from collections.abc import AsyncIterator

import pytest

from autogen_codeact.local_models import local_model
from autogen_codeact.local_models.client import LocalModelClient


@pytest.fixture
async def live() -> AsyncIterator[LocalModelClient]:
    """The small model; its server is shared by the tests of a process."""
    client = local_model(context=2048, max_tokens=200)
    yield client
    await client.close()
