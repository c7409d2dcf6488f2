"""Fixtures for all tests."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from autogen_codeact.executors import SandboxUnavailable
from codeact_sandbox.backends.bubblewrap.launcher import check_bubblewrap
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.launcher import DockerLauncher
from tests import environment

collect_ignore = ["frameworks"]  # these run in environments of their own: `make test-integrations`

# A busy machine generates examples slowly, which says nothing about the code under test.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that need a browser, which `make test-more` runs, except the one of `make test`."""
    needs_browser = "chromium" in getattr(item, "fixturenames", ())
    if needs_browser and item.get_closest_marker("one_browser_test") is None:
        item.add_marker(pytest.mark.more)


def pytest_configure() -> None:
    """Set what the tests' own processes and their child processes inherit."""
    # A background run ignores Ctrl-C, and one of nohup the end of its terminal; child processes would, too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.umask(0o022)
    sys.dont_write_bytecode = False
    environment.remove_settings()
    if runtime := os.environ.get("TEST_RUNTIME"):
        own = DockerLauncher._host_config
        # Not an option's default: it is part of configurations that tests compare.
        setattr(DockerLauncher, "_host_config", lambda self, data: {**own(self, data), "runtime": runtime})  # noqa: B010


@pytest.fixture(scope="session", autouse=True)
def own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the key of run logs out of the home of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of recorded input beside the checkout, or the one that `CODEACT_SHARED_DATA` names.

    It is not in the repository: without it, skip the test, or fail it with REQUIRE_DATA=1.
    """
    beside = Path(__file__).parents[1] / "../shared/data"
    folder = Path(os.environ.get("CODEACT_SHARED_DATA") or beside).resolve()
    if not folder.is_dir():
        reason = f"The recorded test data is missing: {folder} is not a folder. Set CODEACT_SHARED_DATA to its place."
        if os.environ.get("REQUIRE_DATA") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


@pytest.fixture(scope="session")
def docker_engine() -> str:
    """Return the version of the Docker engine; without one, skip the test, or fail it with REQUIRE_DOCKER=1."""
    try:
        with closing(connect()) as client:
            return str(client.version()["Version"])
    except SandboxUnavailable as error:
        if os.environ.get("REQUIRE_DOCKER") == "1":
            pytest.fail(f"REQUIRE_DOCKER=1, but {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def bubblewrap() -> None:
    """Require bubblewrap; if it does not work, skip the test, or fail it with REQUIRE_BUBBLEWRAP=1."""
    try:
        check_bubblewrap()
    except SandboxUnavailable as error:
        if os.environ.get("REQUIRE_BUBBLEWRAP") == "1":
            pytest.fail(f"REQUIRE_BUBBLEWRAP=1, but {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheels of both distributions, built from their source distributions, which is what users install."""
    root = Path(__file__).parents[1]
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    # From what git would clone: a build must not depend on left-overs of the working tree.
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.check_output(listing, cwd=root, text=True, timeout=50).split("\0")
    for name in filter(None, files):
        if (root / name).is_symlink() or (root / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, source / name, follow_symlinks=False)
    for project in (source / "sandbox", source):
        build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
        done = subprocess.run(build, cwd=project, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    (sandbox,), (agents,) = folder.glob("codeact_sandbox-*.whl"), folder.glob("autogen_codeact-*.whl")
    return sandbox, agents


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with the options that are the parameter of the test."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", folder]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user can't mount a file system")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
