"""`data=`: files and folders of the host that the code can read in /data, and not write."""

import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from autogen_codeact.executors import (
    DockerCommandLineCodeExecutor,
    SandboxStartError,
)
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.types.option_parsing import parse_options
from codeact_sandbox.types.options import BubblewrapOptions, DockerOptions
from tests.abuse.engine_proxy import engine_proxy
from tests.abuse.subject import Kind
from tests.sandbox.bubblewrapped import open_folder
from tests.sandbox.pool.pooled import until
from tests.sandbox.sandboxes import out

KINDS = [Kind("docker", "session"), Kind("bubblewrap", "process")]
LOOK = """
    import json, os
    print(json.dumps([open("/data/one.csv").read(), sorted(os.listdir("/data")), sorted(os.listdir("/data/folder")),
                      open("/data/folder/link").read(), os.readlink("/data/folder/away"), open("/data/linked.csv").read()]))
"""
SEEN = [
    "a,b\n1,2\n",
    ["folder", "linked.csv", "one.csv"],
    ["away", "below", "link", "x.txt"],
    "x",
    "/etc/shadow",
    "linked",
]
WRITE = """
    import errno, json, os
    def attempt(function, *arguments):
        try:
            function(*arguments)
        except OSError as error:
            return errno.errorcode[error.errno]
    print(json.dumps([
        attempt(open, "/data/one.csv", "a"), attempt(os.truncate, "/data/one.csv", 0), attempt(open, "/data/new", "w"),
        attempt(open, "/data/folder/new", "w"), attempt(os.remove, "/data/folder/x.txt"), attempt(os.mkdir, "/data/folder/d"),
        attempt(os.rename, "/data/one.csv", "/data/two.csv"), attempt(os.link, "/data/folder/x.txt", "/data/folder/y"),
        attempt(os.symlink, "x", "/data/folder/s"), attempt(os.chmod, "/data/one.csv", 0o777),
        attempt(os.chmod, "/data/folder", 0o777), attempt(os.chmod, "/data", 0o777), attempt(os.utime, "/data/one.csv"),
        attempt(os.setxattr, "/data/one.csv", "user.x", b"1"), attempt(os.chown, "/data/one.csv", 65534, 65534),
        attempt(os.open, "/data/folder", os.O_RDWR | os.O_TMPFILE),
    ]))
"""
REFUSED = {"EROFS", "EACCES", "EPERM"}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder with a file, a folder and symbolic links."""
    with open_folder() as root:
        (root / "one.csv").write_text("a,b\n1,2\n")
        (root / "real.csv").write_text("linked")
        (root / "linked.csv").symlink_to("real.csv")
        inner = root / "folder"
        (inner / "below").mkdir(parents=True)
        (inner / "x.txt").write_text("x")
        (inner / "link").symlink_to("x.txt")
        (inner / "away").symlink_to("/etc/shadow")
        yield root


def entries(folder: Path) -> list[Path | str]:
    return [folder / "one.csv", f"{folder}/folder/", folder / "linked.csv"]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    request.getfixturevalue("docker_engine" if chosen.engine == "docker" else "bubblewrap")
    return chosen


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(kind: Kind, folder: Path) -> AsyncIterator[SandboxCodeExecutor]:
    async with kind.make(data=entries(folder)) as started:
        yield started


@pytest.mark.asyncio(loop_scope="module")
async def test_files_and_folders_are_in_data(executor: SandboxCodeExecutor) -> None:
    assert json.loads(await out(executor, LOOK)) == SEEN


async def test_data_that_the_sandboxs_user_can_not_read_fails_the_start(kind: Kind, tmp_path: Path) -> None:
    if kind.engine == "bubblewrap":
        pytest.skip("its user is this one, or can't reach the folder at all")
    (tmp_path / "closed.csv").write_text("1")
    (tmp_path / "closed.csv").chmod(0o600)
    (tmp_path / "closed").mkdir(0o700)
    for name in ("closed.csv", "closed"):
        path = tmp_path / name
        with pytest.raises(SandboxStartError) as caught:
            await kind.make(data=[path]).start()
        assert str(caught.value) == (
            f"data='{path}' can't be read by the sandbox's user: let all users read it (`chmod -R a+rX {path}`)"
        )


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ("big.csv", TypeError, "data is one string: give a list, ['big.csv']"),
        (Path("big.csv"), TypeError, "data is one path: give a list, ['big.csv']"),
        (["none.csv"], ValueError, "data='none.csv': there is no such file or folder"),
        (
            ["one/x", "two/x"],
            ValueError,
            "data= has two entries that would be /data/x: 'one/x' and 'two/x'. Rename one, or give a folder with both",
        ),
        (["/"], ValueError, "data='/' can't be shown to the sandbox: it describes or controls this machine"),
        (["/proc/self"], ValueError, "data='/proc/self' can't be shown to the sandbox"),
        (["socket"], ValueError, "data='socket' is neither a file nor a folder"),
        (["-rf"], ValueError, "data='-rf': The file name `-rf` has a part that begins with `-`"),
        (["circle"], ValueError, "data='circle' can't be read: "),
        (["a\0b"], ValueError, "data='a\\x00b' is not a path"),
        (["one/x"] * 101, ValueError, "data= has 101 entries, and at most 100 are allowed: give a folder of them"),
    ],
)
def test_wrong_data_is_refused_at_construction(given, error, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one/x", "two/x", "-rf"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    Path("circle").symlink_to("circle")
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind("socket")
        with pytest.raises(error) as caught:
            parse_options(DockerOptions, {"data": given})
    assert str(caught.value).startswith(words)


def test_k_folders_that_code_could_replace_by_links_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "bound" / "sub").mkdir(parents=True)
    (tmp_path / "bound" / "out").symlink_to(tmp_path)
    (tmp_path / "alias").symlink_to("bound")
    (tmp_path / "in").symlink_to("bound/sub")
    bound = {"bind_dir": tmp_path / "bound"}
    for path in ("bound/sub", "bound/out", "alias/sub", "in"):
        for kind, option in ((DockerOptions, "data"), (BubblewrapOptions, "data"), (BubblewrapOptions, "readable")):
            with pytest.raises(
                ValueError, match=rf"{option}='.*' is in bind_dir=, where code could replace it by a link"
            ):
                parse_options(kind, {**bound, option: [tmp_path / path]})
    (tmp_path / "beside").mkdir()
    parse_options(BubblewrapOptions, {**bound, "data": [tmp_path / "beside"], "readable": [tmp_path / "bound"]})


# An engine on another machine


@pytest.fixture
def remote(sandbox_image: str) -> Iterator[str]:
    """The address of an engine that is reached over a network."""
    with engine_proxy(network=True) as proxy:
        yield proxy.address


def volumes(container: str | None = None) -> set[str]:
    """The names of all volumes, or of those that a container has."""
    with closing(connect()) as client:
        if container is None:
            return {volume["Name"] for volume in client.volumes()["Volumes"] or ()}
        mounts = client.inspect_container(container)["Mounts"]
    return {mount["Name"] for mount in mounts if mount["Type"] == "volume"}


async def test_an_engine_elsewhere_is_sent_the_data(remote: str, folder: Path) -> None:
    os.mkfifo(folder / "folder/pipe")
    try:
        async with DockerCommandLineCodeExecutor(
            data=entries(folder), docker_host=remote, progress=(lines := []).append
        ) as executor:
            assert json.loads(await out(executor, LOOK)) == SEEN
            assert [each for each in json.loads(await out(executor, WRITE)) if each not in REFUSED] == []
            (sent,) = volumes(executor.container_name)
    finally:
        (folder / "folder/pipe").unlink()
    assert lines == ["sending the files of data= to the Docker engine"]
    await until(lambda: sent not in volumes())
