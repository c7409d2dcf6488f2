"""What of `work_dir` does not go into the sandbox, and files of blocks that were cancelled."""

import asyncio
import contextlib
import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors import Limits, SandboxFileError
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.abuse.subject import Kind
from tests.sandbox.sandboxes import out, run

MIB = 1024**2
SMALL = Limits(workspace="1m", files=100)
KINDS = pytest.mark.parametrize("kind", [Kind("docker", "session"), Kind("bubblewrap", "process")], ids=str)
# The host decides, by its own folder.
ONE_KIND = pytest.mark.parametrize("kind", [Kind("bubblewrap", "process")], ids=str)


def sparse(path: Path, size: int) -> None:
    """Make a file that takes no room."""
    with path.open("wb") as file:
        file.truncate(size)


@pytest.fixture(autouse=True)
def engines(request: pytest.FixtureRequest, kind: Kind) -> None:
    request.getfixturevalue("docker_engine" if kind.engine == "docker" else "bubblewrap")


@ONE_KIND
async def test_a_file_left_out_at_the_start_is_reported_with_each_result(kind: Kind, tmp_path: Path) -> None:
    sparse(tmp_path / "large.csv", 120 * MIB)
    (tmp_path / "link").symlink_to("large.csv")
    note = (
        "Not sent to the sandbox: large.csv has 125,829,120 bytes; at most 104,857,600 are sent. data= shows it "
        "in /data without copying it, and bind_dir= mounts a folder that can be written; in Python, upload() sends it once."
    )
    async with kind.make(work_dir=tmp_path, delete_tmp_files=True) as executor:
        result = await run(executor, "open('large.csv')")
        assert result.error.type == "FileNotFoundError"
        # What no limit can change is said once.
        assert sorted(result.notes) == [note, "Not sent to the sandbox: link is a symbolic link."]
        for _ in range(2):
            assert (await run(executor, "print(1)")).notes == (note,)
        await executor.upload(tmp_path / "large.csv")
        assert await out(executor, "import os; print(os.path.getsize('large.csv'))") == f"{120 * MIB}\n"


@KINDS
async def test_files_that_do_not_fit_fail_the_start_with_sizes_and_the_option(kind: Kind, tmp_path: Path) -> None:
    for number in range(3):
        sparse(tmp_path / str(number), 3 * MIB)
    executor = kind.make(work_dir=tmp_path, limits=Limits(memory="1g", workspace="8m"))
    text = (
        "the files of work_dir do not fit into the sandbox: 3 files need 9,437,184 bytes, and its workspace has 8,388,608 "
        "bytes for at most 50,000 files and folders. Give it more with limits=Limits(workspace='25m', files=...), within its "
        "memory='1g' (--option workspace=25m on the command line), show large files with data=, "
        "or mount the folder with bind_dir="
    )
    with pytest.raises(SandboxFileError) as caught:
        await executor.start()
    assert (str(caught.value), caught.value.errno) == (text, errno.ENOSPC)
    await executor.stop()
    async with kind.make(work_dir=tmp_path, limits=Limits(workspace="25m")) as larger:
        assert await out(larger, "import os; print(os.path.getsize('2'))") == f"{3 * MIB}\n"


@KINDS
async def test_more_files_than_the_sandbox_may_have_fail_the_start_likewise(kind: Kind, tmp_path: Path) -> None:
    for number in range(150):
        (tmp_path / str(number)).touch()
    with pytest.raises(
        SandboxFileError, match=r"150 files need 0 bytes, .* for at most 100 files and folders.*files=\.\.\."
    ):
        await kind.make(work_dir=tmp_path, limits=SMALL).start()


async def cancelled_when(executor: SandboxCodeExecutor, code: str, when: Callable[[], bool]) -> None:
    token = CancellationToken()
    block = CodeBlock(code=code, language="python")
    running = asyncio.ensure_future(executor.execute_code_blocks([block], token))
    async with asyncio.timeout(20):
        while not when():  # noqa: ASYNC110 - on files
            await asyncio.sleep(0.005)
    token.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith("tmp_code_")}


@KINDS
async def test_files_of_a_block_that_is_cancelled_while_they_are_stored(kind: Kind, tmp_path: Path) -> None:
    many = "import os\nfor n in range(24):\n    open(f'{n}', 'wb').write(os.urandom(2 << 20))"
    async with kind.make(work_dir=tmp_path) as executor:
        await cancelled_when(executor, many, lambda: len(names(tmp_path)) > 2)
        result = await run(executor, "import os\nos.remove('23')\nopen('22', 'w').write('new')\nNone")
        assert names(tmp_path) == {str(number) for number in range(24)}
        assert (tmp_path / "22").read_text() == "new"
        assert (tmp_path / "21").stat().st_size == 2 << 20
        assert [artifact.name for artifact in result.artifacts] == ["22"]
        assert (await run(executor, "None")).artifacts == ()


@KINDS
async def test_files_of_a_block_that_is_cancelled_while_it_runs(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("old")
    async with kind.make(work_dir=tmp_path) as executor:
        called = asyncio.Event()

        def ready() -> None:
            """Say that the files are there."""
            called.set()

        executor.add_tools([ready])
        write = "open('made', 'w').write('1')\nopen('data', 'w').write('new')\n"
        await cancelled_when(executor, f"{write}ready()\nimport time\ntime.sleep(60)", called.is_set)
        # What the sandbox has is not what the host has: nobody may take it for that.
        await run(executor, "import time")
        assert (tmp_path / "made").read_text() == "1"
        assert (tmp_path / "data").read_text() == "new"
