"""What every case of the abuse suite stands on: a sandbox of its own, and the five oracles that look at it."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.image_requests import find_image
from codeact_sandbox.session.async_sandbox import AsyncSandbox
from codeact_sandbox.types.options import DEFAULT_IMAGE
from tests.sandbox.bubblewrapped import open_folder
from tests.sandbox.network.servers import Hosts, hosts_in

from .canaries import Canaries
from .engine_proxy import EngineProxy, engine_proxy
from .lag import Control
from .oracles import HostState
from .subject import SUBJECTS, Kind, Subject


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave the suite to `make test-hostile`, except the cases that the first promises need, which `make test` runs, too."""
    if item.get_closest_marker("first_promise") is None:
        item.add_marker(pytest.mark.hostile)


@pytest.fixture(scope="session")
def canaries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canaries]:
    """Files and ports of the host that no case may touch."""
    with Canaries(tmp_path_factory.mktemp("canaries")) as made:
        made.prove()
        yield made


@pytest.fixture(scope="module")
def control() -> Iterator[Control]:
    """A ticker in another process, for oracle 6."""
    made = Control()
    yield made
    made.close()


@pytest.fixture(scope="module", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder for this process's temporary files alone, so that each one left behind is ours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
        yield


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the host that the sandbox's user can write to."""
    with open_folder() as made:
        made.chmod(0o777)
        yield made


@pytest.fixture
def proxy() -> Iterator[EngineProxy]:
    """The engine behind a socket that misbehaves on request."""
    with engine_proxy() as made:
        yield made


@pytest.fixture(scope="session")
def default_image(docker_engine: str) -> None:
    """The image of the sandboxes, which is asked for once."""
    with connect() as client:
        if not find_image(client, DEFAULT_IMAGE):
            pytest.fail(f"{DEFAULT_IMAGE} is missing: run `make image`")


@pytest.fixture(params=SUBJECTS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Which executor in which mode; skipped where this machine has not got it."""
    kind: Kind = request.param
    if kind.engine == "docker":
        request.getfixturevalue("default_image")
    else:
        request.getfixturevalue("bubblewrap")
    return kind


@pytest_asyncio.fixture
async def subject(
    request: pytest.FixtureRequest, kind: Kind, canaries: Canaries, control: Control, tmp_path: Path
) -> AsyncIterator[Subject]:
    """A sandbox for one case; when the case is over, oracles 1 and 3 to 6 are checked (2 is the case's own)."""
    made = Subject(request, kind, canaries, control, tmp_path / "work")
    try:
        yield made
        if made.started:
            await made.check_next_block()
            await made.check_nothing_runs_on()
            made.check_little_is_written()
            made.check_event_loop()
    finally:
        await made.end()
        try:
            await made.check_host()
        finally:
            made.forget()


@pytest_asyncio.fixture
async def untouched(canaries: Canaries) -> AsyncIterator[None]:
    """Oracles 4 and 5 alone, for cases that make their executors themselves."""
    host = HostState.observe(canaries)
    yield
    await host.check(())


@pytest.fixture
def hosts(subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """Servers on loopback for a case with an allow-list; gone before the oracles look."""
    folder = tmp_path / "work"
    folder.mkdir()
    with hosts_in(folder) as made:
        monkeypatch.setattr(AsyncSandbox, "resolve_name", staticmethod(made.resolve))
        yield made
