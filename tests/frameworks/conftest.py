"""Fixtures of the tests of all frameworks."""

import os

import pytest
from scripted import OpenAIServer

from codeact_sandbox import Sandbox, SandboxUnavailable


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session", params=["docker", "bubblewrap"])
def engine(request):
    """The name of a backend of sandboxes, as for `Sandbox(engine)`."""
    try:
        with Sandbox(request.param):
            pass
    except SandboxUnavailable as error:
        if f"REQUIRE_{request.param.upper()}" in os.environ:
            raise
        pytest.skip(str(error))
    return request.param


@pytest.fixture
def serve():
    """Start a model server that answers from a script; see `OpenAIServer`. It is stopped after the test."""
    servers = []

    def start(replies):
        servers.append(OpenAIServer(replies).start())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
