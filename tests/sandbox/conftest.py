"""What tests on a real engine share; and after each of them a look at what it left behind."""

import asyncio
import functools
import gc
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.image_requests import find_image
from codeact_sandbox.files.workspace import Workspace
from codeact_sandbox.types.options import DEFAULT_IMAGE
from tests.abuse import oracles
from tests.sandbox.sandboxes import out, shared_executor

MakeExecutor = Callable[..., Awaitable[SandboxCodeExecutor]]


def pytest_itemcollected(item: pytest.Item) -> None:
    """No test may leave a task behind in its event loop."""
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.obj = _ends_its_tasks(item.obj)


def _ends_its_tasks(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def checked(*args: Any, **kwargs: Any) -> None:
        before = asyncio.all_tasks()
        await test(*args, **kwargs)
        left = asyncio.all_tasks() - before
        if left:
            await asyncio.wait(left, timeout=20)
        assert not {task for task in left if not task.done()}

    return checked


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of `workspace` on the host."""
    return tmp_path / "work"


@pytest.fixture
def workspace(root: Path) -> Workspace:
    workspace = Workspace(root)
    workspace.prepare()
    return workspace


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the workspace that nothing may touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "canary.txt").write_text("alive")
    return folder


@pytest.fixture(scope="session")
def sandbox_image(docker_engine: str) -> str:
    """The default image; it must be there."""
    with closing(connect()) as client:
        if not find_image(client, DEFAULT_IMAGE):
            pytest.fail(f"{DEFAULT_IMAGE} is missing: run `make image`")
    return DEFAULT_IMAGE


@pytest.fixture(params=["docker", "bubblewrap"])
def backend(request: pytest.FixtureRequest) -> Any:
    """Each kind of sandbox; skipped where this machine has not got it."""
    request.getfixturevalue("sandbox_image" if request.param == "docker" else "bubblewrap")
    return request.param


@pytest_asyncio.fixture
async def make_executor(bubblewrap: None) -> AsyncIterator[MakeExecutor]:
    """Makes executors with bubblewrap, which starts fastest; they have been started, and are stopped after the test."""
    async with _makes(BubblewrapCommandLineCodeExecutor) as make:
        yield make


@pytest_asyncio.fixture
async def make_docker(sandbox_image: str) -> AsyncIterator[MakeExecutor]:
    """Makes executors with Docker, for tests that are about it or need its image."""
    async with _makes(DockerCommandLineCodeExecutor) as make:
        yield make


@asynccontextmanager
async def _makes(kind: type[SandboxCodeExecutor]) -> AsyncIterator[MakeExecutor]:
    async with AsyncExitStack() as started:

        async def make(**options: Any) -> SandboxCodeExecutor:
            return await started.enter_async_context(kind(**options))

        yield make


session = shared_executor(kind=DockerCommandLineCodeExecutor, mode="session", timeout=30)
"""One session for all tests of a module."""


@pytest_asyncio.fixture(loop_scope="module")
async def known(session: DockerCommandLineCodeExecutor) -> DockerCommandLineCodeExecutor:
    """The session with a variable to look for afterwards, in its own directory, with its own environment."""
    await out(session, "import os; os.chdir('/workspace'); mark = ['set']")
    return session


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def module_loop() -> None:
    """Make the module's event loop before any test counts descriptors, whichever test is the first to use it."""


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Containers, threads and descriptors are after the test what they were before it."""
    if "docker_engine" not in request.fixturenames:
        yield
        return
    request.getfixturevalue("docker_engine")
    before = present()
    yield
    left = oracles.empty_in_time(lambda: leftovers(before))
    assert not left, f"left behind: {left}"


def present() -> dict[str, set[str]]:
    """The containers of this process, its threads of ours and its descriptors."""
    return {"containers": oracles.containers(), "threads": oracles.threads(), "descriptors": oracles.descriptors()}


def leftovers(before: dict[str, set[str]]) -> dict[str, set[str]]:
    """What there is more than before."""
    if not any(_more_than(before).values()):
        return {}
    gc.collect()  # garbage may hold what is left
    return {kind: found for kind, found in _more_than(before).items() if found}


def _more_than(before: dict[str, set[str]]) -> dict[str, set[str]]:
    now = present()
    left = {kind: now[kind] - before[kind] for kind in now}
    if len(now["descriptors"]) <= len(before["descriptors"]):
        left["descriptors"] = set()  # what tests of a module share may have replaced its connection
    return left
