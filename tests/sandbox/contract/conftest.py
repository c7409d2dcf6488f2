"""The executors that the contract is checked on: what makes each of them, and what differs between them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.abuse.subject import SUBJECTS, Kind

Make = Callable[..., Awaitable[SandboxCodeExecutor]]


EACH_ONCE = pytest.mark.parametrize("backend", ["docker-process", "bubblewrap-session"], indirect=True, scope="module")
"""For what the same code does in each backend: each backend once, and each mode once."""


def kind_of(request: pytest.FixtureRequest) -> Kind:
    """The kind of executor that a test is parametrised with; skipped where this machine has not got it."""
    kind = Kind(*request.param.split("-"))
    request.getfixturevalue("sandbox_image" if kind.engine == "docker" else "bubblewrap")
    return kind


@pytest.fixture(scope="module", params=map(str, SUBJECTS))
def backend(request: pytest.FixtureRequest) -> Kind:
    """Each of the executors in turn."""
    return kind_of(request)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(backend: Kind) -> AsyncIterator[SandboxCodeExecutor]:
    """One that runs while the statements are checked on it."""
    async with backend.make() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def make(backend: Kind) -> AsyncIterator[Make]:
    """Makes executors with options of their own, started, and stops them afterwards."""
    made: list[SandboxCodeExecutor] = []

    async def start(**options: Any) -> SandboxCodeExecutor:
        executor = backend.make(**options)
        made.append(executor)
        await executor.start()
        return executor

    yield start
    for executor in made:
        await executor.stop()
