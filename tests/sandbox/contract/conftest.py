"""The executors that the contract is checked on: what makes each of them, and what differs between them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor, Limits
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.backends.bubblewrap.cgroups import Cgroup

Make = Callable[..., Awaitable[SandboxCodeExecutor]]


@dataclass(frozen=True)
class Backend:
    """One kind of executor in one mode."""

    kind: type[DockerCommandLineCodeExecutor] | type[BubblewrapCommandLineCodeExecutor]
    fixture: str
    mode: str

    @property
    def session(self) -> bool:
        return self.mode == "session"

    def make(self, **options: Any) -> SandboxCodeExecutor:
        """An executor that has not been started."""
        return self.kind(mode=self.mode, **{"timeout": 30, **options})

    def require_memory_group(self) -> None:
        """Bubblewrap bounds the memory of all processes together only where it may make a control group."""
        if self.kind is DockerCommandLineCodeExecutor:
            return
        group = Cgroup.create("codeact-probe", Limits())
        if group is None:
            pytest.xfail("bubblewrap may make no control group here, so memory is bounded for each process alone")
        group.remove()


BACKENDS = {
    "docker-process": Backend(DockerCommandLineCodeExecutor, "sandbox_image", "process"),
    "docker-session": Backend(DockerCommandLineCodeExecutor, "sandbox_image", "session"),
    "bubblewrap-process": Backend(BubblewrapCommandLineCodeExecutor, "bubblewrap", "process"),
    "bubblewrap-session": Backend(BubblewrapCommandLineCodeExecutor, "bubblewrap", "session"),
}


EACH_ONCE = pytest.mark.parametrize("backend", ["docker-process", "bubblewrap-session"], indirect=True, scope="module")
"""For what the same code does in each backend: each backend once, and each mode once."""


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each of the executors in turn."""
    found = BACKENDS[request.param]
    request.getfixturevalue(found.fixture)
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(backend: Backend) -> AsyncIterator[SandboxCodeExecutor]:
    """One that runs while the statements are checked on it."""
    async with backend.make() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def make(backend: Backend) -> AsyncIterator[Make]:
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
