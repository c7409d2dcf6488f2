"""What of `work_dir` does not go into the sandbox, and files of blocks that were cancelled."""

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors import Limits, SandboxFileError
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.files import sync
from codeact_sandbox.files.workspace import fingerprint_of, make_manifest
from codeact_sandbox.types.run_context import Block, RunContext
from tests.abuse.lag import MOST_EXCESS_S, median_excess
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
        "Not sent to the sandbox: large.csv has 125,829,120 bytes; at most 104,857,600 are sent. upload() sends it once, "
        "data= shows it in /data without copying it, and bind_dir= mounts a folder that can be written."
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


@ONE_KIND
async def test_many_files_left_out_are_a_few_sentences(kind: Kind, tmp_path: Path) -> None:
    for number in range(30):
        sparse(tmp_path / f"large{number:02}", 120 * MIB)
    async with kind.make(work_dir=tmp_path, delete_tmp_files=True) as executor:
        notes = (await run(executor, "print(1)")).notes
    assert len(notes) == 9
    assert notes[-1] == "Not sent to the sandbox: 22 more files."


@KINDS
async def test_files_that_do_not_fit_fail_the_start_with_sizes_and_the_option(kind: Kind, tmp_path: Path) -> None:
    for number in range(3):
        sparse(tmp_path / str(number), 3 * MIB)
    executor = kind.make(work_dir=tmp_path, limits=Limits(memory="1g", workspace="8m"))
    text = (
        "the files of work_dir do not fit into the sandbox: 3 files need 9,437,184 bytes, and its workspace has 8,388,608 "
        "bytes for at most 50,000 files and folders. Give it more with limits=Limits(workspace='25m', files=...), within its "
        "memory='1g' (--disk 25m on the command line), show large files with data= (--data), or mount the folder with bind_dir="
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


@ONE_KIND
async def test_a_download_ignores_other_files_in_the_target_folder(kind: Kind, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    for number in range(10_050):
        (full / str(number)).touch()
    async with kind.make(work_dir=tmp_path / "work") as executor:
        await run(executor, "open('mine', 'w').write('mine')")
        assert (await executor.download("mine", full / "mine")).read_text() == "mine"
        # Its name is the user's own choice, too.
        assert (await executor.download("mine", full / ".envrc")).read_text() == "mine"


@ONE_KIND
async def test_a_work_dir_with_many_files_does_not_hold_up_the_event_loop(kind: Kind, tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / str(number)).write_bytes(os.urandom(100))
    async with kind.make(work_dir=tmp_path, delete_tmp_files=True) as executor:

        async def change_all() -> None:
            for number in range(2000):
                os.utime(tmp_path / str(number))
            for _ in range(3):
                await run(executor, "print(1)")

        assert await median_excess(change_all) < MOST_EXCESS_S


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
        assert names(tmp_path) - {"23"} == {str(number) for number in range(23)}
        assert (tmp_path / "22").read_text() == "new"
        assert (tmp_path / "21").stat().st_size == 2 << 20
        # Nobody was told of them before.
        assert {artifact.name for artifact in result.artifacts} == {str(number) for number in range(23)}
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


@pytest.mark.parametrize("kind", [Kind("docker", "session"), Kind("bubblewrap", "session")], ids=str)
async def test_a_manifest_does_not_confuse_files_of_a_cancelled_block_with_those_of_the_host(kind, tmp_path):
    (tmp_path / "data").write_text("old")
    async with kind.make(work_dir=tmp_path) as executor:
        await run(executor, "None")
        sandbox, workspace = executor.sandbox.client, executor.sandbox._folder.workspace
        assert sandbox is not None
        assert workspace is not None

        async def fingerprint() -> str:
            known, listed = workspace.list_sandbox(sandbox.requests)
            reply = await asyncio.wrap_future(listed)
            return (await make_manifest(sandbox.requests, known, listed, replace(reply, message={}), None))["data"]

        before = await fingerprint()
        sandbox.blocks.add_undelivered([{"name": "data", "size": 3, "mode": 0o644}])
        await sandbox.requests.write_file("data", 0o644, [b"new"])
        await sync.push_changes(workspace, sandbox, executor.sandbox.options.limits)
        assert await fingerprint() != before


@pytest.mark.parametrize("kind", [Kind("docker", "session"), Kind("bubblewrap", "session")], ids=str)
async def test_a_manifest_has_the_content_that_a_block_found_in_files_only_the_sandbox_has(kind, tmp_path):
    journalled = RunContext(journalled=True)
    async with kind.make(work_dir=tmp_path) as executor:

        async def found(code: str) -> dict[str, str]:
            result = await executor.sandbox.run_all([Block(code, "python")], journalled)
            assert result.exit_code == 0, result.output
            return result.files_before

        assert await found("import os; os.mkdir('a'); os.mkdir('b')") == {}
        await found("open('a/.envrc', 'w').write('one'); open('b/.envrc', 'w').write('two')")
        before = await found("open('a/.envrc', 'w').write('new'); os.unlink('b/.envrc')")
        assert before == {"a/.envrc": "3:", "b/.envrc": "3:"}  # it has read neither before they went
        assert (await found("None")) == {"a/.envrc": fingerprint_of(3, [b"new"])}
