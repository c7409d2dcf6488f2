"""What every test may ask for."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from autogen_codeact.executors import SandboxUnavailable
from autogen_codeact.sandbox.backends.bubblewrap.launcher import check_bubblewrap
from autogen_codeact.sandbox.backends.docker.engine import connect

# How fast a busy machine makes up examples says nothing about the code under test.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


def pytest_configure() -> None:
    """Take Ctrl-C as a terminal's program does: a run that was started in the background has it ignored, for its children too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def what_is_here_stays() -> Iterator[None]:
    """Many tests collect garbage, to see what they leave behind: what was here before need not be looked through each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of recorded real input that lies beside the checkout; `CODEACT_SHARED_DATA` names another."""
    beside = Path(__file__).parents[1] / "../shared/data"
    folder = Path(os.environ.get("CODEACT_SHARED_DATA") or beside).resolve()
    if not folder.is_dir():
        pytest.fail(
            f"The recorded test data is missing: {folder} is not a folder. Set CODEACT_SHARED_DATA to its place."
        )
    return folder


@pytest.fixture(scope="session")
def docker_engine() -> str:
    """The version of a Docker engine that answers; without one the test is skipped, or fails where REQUIRE_DOCKER=1."""
    try:
        with closing(connect()) as client:
            return str(client.version()["Version"])
    except SandboxUnavailable as error:
        if os.environ.get("REQUIRE_DOCKER") == "1":
            pytest.fail(f"REQUIRE_DOCKER=1, but {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def bubblewrap() -> None:
    """Bubblewrap works here; where it does not, the test is skipped, or fails where REQUIRE_BUBBLEWRAP=1."""
    try:
        check_bubblewrap()
    except SandboxUnavailable as error:
        if os.environ.get("REQUIRE_BUBBLEWRAP") == "1":
            pytest.fail(f"REQUIRE_BUBBLEWRAP=1, but {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel, which is what users install."""
    root = Path(__file__).parents[1]
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    # From what git would clone: a build must not depend on left-overs of the working tree.
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.check_output(listing, cwd=root, text=True, timeout=50).split("\0")
    for name in filter(None, files):
        if (root / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((root / name).read_bytes())
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run(build, cwd=source, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built
