"""What tests of rebuilt sessions share."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.session.async_sandbox import AsyncSandbox
from tests.agents.replay.support import Make
from tests.sandbox.network.servers import Hosts, hosts_in

ENGINES = {"docker": DockerCommandLineCodeExecutor, "bubblewrap": BubblewrapCommandLineCodeExecutor}


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """What sandboxes run in: bubblewrap, which starts fastest, where a test names no other."""
    name: str = getattr(request, "param", "bubblewrap")
    request.getfixturevalue("docker_engine" if name == "docker" else "bubblewrap")
    return name


@pytest_asyncio.fixture
async def make(engine: str, tmp_path: Path) -> AsyncIterator[Make]:
    """Makes sessions, one after the other, that share a folder of the host."""
    made: list[SandboxCodeExecutor] = []

    async def start(**options: Any) -> SandboxCodeExecutor:
        while made:
            await made.pop().stop()
        folder = {} if "bind_dir" in options else {"work_dir": tmp_path / "work"}
        executor = ENGINES[engine](mode="session", **{"timeout": 20, **folder, **options})
        await executor.start()
        made.append(executor)
        return executor

    yield start
    for executor in made:
        await executor.stop()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The folder of the host."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """Servers on loopback."""
    with hosts_in(tmp_path) as made:
        monkeypatch.setattr(AsyncSandbox, "resolve_name", staticmethod(made.resolve))
        yield made
