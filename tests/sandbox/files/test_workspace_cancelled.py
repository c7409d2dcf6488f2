"""Files of a block that was cancelled come to the host with the next result."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.files import sync
from codeact_sandbox.files.manifest import manifest_of
from tests.abuse.subject import Kind
from tests.sandbox.sandboxes import run

KINDS = pytest.mark.parametrize("kind", [Kind("docker", "session"), Kind("bubblewrap", "process")], ids=str)


@pytest.fixture(autouse=True)
def engines(request: pytest.FixtureRequest, kind: Kind) -> None:
    request.getfixturevalue("docker_engine" if kind.engine == "docker" else "bubblewrap")


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
    async with kind.reuse(work_dir=tmp_path) as executor:
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
    async with kind.reuse(work_dir=tmp_path) as executor:
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
    async with kind.reuse(work_dir=tmp_path) as executor:
        await run(executor, "None")
        sandbox, workspace = executor.sandbox.client, executor.sandbox._folder.workspace
        assert sandbox is not None
        assert workspace is not None
        before = (await manifest_of(workspace, sandbox) or {})["data"]
        sandbox.blocks.add_undelivered([{"name": "data", "size": 3, "mode": 0o644}])
        await sandbox.requests.write_file("data", 0o644, [b"new"])
        await sync.push_changes(workspace, sandbox, executor.sandbox.options.limits)
        assert (await manifest_of(workspace, sandbox) or {})["data"] != before
