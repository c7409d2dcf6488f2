"""Fixtures for tests with a live model. `make live-model` fetches its weights: the tests use no network."""

from collections.abc import AsyncIterator, Iterator

import pytest
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.live.server import NAME, ModelServer, model_server


@pytest.fixture(scope="session")
def server() -> Iterator[ModelServer]:
    """The server of a very small model."""
    with model_server(context=4096, max_tokens=200) as running:
        yield running


@pytest.fixture
async def live(server: ModelServer) -> AsyncIterator[OpenAIChatCompletionClient]:
    """The model, with short answers."""
    client = client_of(server, max_tokens=80)
    yield client
    await client.close()


def client_of(server: ModelServer, *, max_tokens: int) -> OpenAIChatCompletionClient:
    """Return AutoGen's client of a server."""
    info = ModelInfo(vision=False, function_calling=True, json_output=True, structured_output=True, family="unknown")
    options = {"max_tokens": max_tokens, "temperature": 0.0, "max_retries": 0}
    return OpenAIChatCompletionClient(
        model=NAME, base_url=f"{server.url}/v1", api_key=server.key, model_info=info, **options
    )


@pytest.fixture
async def session(bubblewrap: None) -> AsyncIterator[SandboxCodeExecutor]:
    """A real sandbox with one interpreter that lives on."""
    async with BubblewrapCommandLineCodeExecutor(mode="session", timeout=20) as executor:
        yield executor
