"""Fixtures of the tests of all frameworks."""

import os
import shutil

import pytest
from scripted import OpenAIServer


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session", params=["docker", "bubblewrap"])
def engine(request):
    """The name of a backend of sandboxes, as for `Sandbox(engine)`."""
    program = {"docker": "docker", "bubblewrap": "bwrap"}[request.param]
    if shutil.which(program) is None and f"REQUIRE_{request.param.upper()}" not in os.environ:
        pytest.skip(f"{request.param} is not installed")
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
