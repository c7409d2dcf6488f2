"""Sandboxes with `allow_domains`, and hosts for them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.abuse.subject import Kind
from tests.sandbox.contract.conftest import kind_of
from tests.sandbox.network.servers import Hosts, hosts_in

Allow = Callable[..., Awaitable[SandboxCodeExecutor]]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Servers on loopback, under any names."""
    folder = tmp_path / "work"
    folder.mkdir()
    with hosts_in(folder) as made:
        yield made


@pytest.fixture(params=["docker-session", "bubblewrap-process"])
def backend(request: pytest.FixtureRequest) -> Kind:
    """Each engine and each mode once: clients are programs of their own, or the same Python in all of them."""
    return kind_of(request)


@pytest_asyncio.fixture
async def allow(backend: Kind, hosts: Hosts) -> AsyncIterator[Allow]:
    """Start a sandbox with these entries, with the CA's certificate in its workspace."""
    made: list[SandboxCodeExecutor] = []

    async def make(*entries: str, **options: Any) -> SandboxCodeExecutor:
        executor = backend.make(allow_domains=entries, work_dir=hosts.ca_file.parent, **options)
        executor.sandbox.resolve_name = hosts.resolve  # type: ignore[method-assign]
        made.append(executor)
        await executor.start()
        return executor

    yield make
    for executor in made:
        await executor.stop()
