"""Start, stop, other OCI runtimes than the engine's own (`TEST_RUNTIME` runs all tests with one), and images without Python."""

import asyncio
import io
import tarfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing

import pytest
import pytest_asyncio
from docker.api.client import APIClient

from autogen_codeact.executors import (
    DockerCommandLineCodeExecutor,
    SandboxNotStarted,
)
from codeact_sandbox import AsyncSandbox
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.launcher import _for_podman
from codeact_sandbox.types.errors import SandboxStartError
from tests.abuse.oracles import containers
from tests.sandbox.sandboxes import out, run


@pytest_asyncio.fixture
async def executor(sandbox_image: str) -> AsyncIterator[DockerCommandLineCodeExecutor]:
    """One that has not been started; it is stopped after the test, whatever that does with it."""
    made = DockerCommandLineCodeExecutor(mode="session")
    yield made
    await made.stop()


@pytest.fixture
def client(sandbox_image: str) -> Iterator[APIClient]:
    with closing(connect()) as connected:
        yield connected


class TestStartAndStop:
    async def test_first_block_starts_the_sandbox_once(self, executor):
        results = await asyncio.gather(*(run(executor, f"print({n})") for n in range(10)))
        assert [result.output for result in results] == [f"{n}\n" for n in range(10)]
        assert all((result.state, result.notes) == ("kept", ()) for result in results)
        assert len(containers()) == 1
        await executor.stop()

    async def test_after_stop_blocks_and_files_are_refused(self, executor, tmp_path):
        await executor.start()
        await executor.stop()
        (tmp_path / "file").write_text("")
        calls: list[Callable[[], object]] = [
            lambda: run(executor, "1"),
            lambda: executor.upload(tmp_path / "file"),
            lambda: executor.download("file", tmp_path / "x"),
            executor.list_files,
            executor.checkpoint,
            executor.rollback,
        ]
        for call in calls:
            with pytest.raises(SandboxNotStarted, match=r"call start\(\)"):
                await call()  # type: ignore[misc]
        with pytest.raises(SandboxNotStarted):
            _ = executor.work_dir


class TestEventLoopsAndThreads:
    def test_a_loop_that_is_torn_down_mid_block_leaves_the_sandbox_usable(self, executor):
        asyncio.run(out(executor, "x = 1"))

        async def leave() -> None:
            task = asyncio.ensure_future(run(executor, "x = 2; import time; time.sleep(60)"))
            await asyncio.sleep(0.3)
            assert not task.done()

        asyncio.run(leave())
        assert asyncio.run(out(executor, "x")) == "1\n"
        asyncio.run(executor.stop())


class TestMissing:
    async def test_image_without_python_is_an_error(self, client):
        empty = io.BytesIO()
        with tarfile.open(fileobj=empty, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("etc/empty"), io.BytesIO(b""))
        tag = f"autogen-codeact/test-{uuid.uuid4().hex[:12]}:1"
        repository, _, version = tag.partition(":")
        client.import_image_from_data(empty.getvalue(), repository=repository, tag=version)
        try:
            executor = DockerCommandLineCodeExecutor(image=tag)
            with pytest.raises(SandboxStartError, match=r"python3.*An image needs python3"):
                await executor.start()
            assert containers() == set()
        finally:
            client.remove_image(tag)


async def test_a_runtime_that_the_engine_does_not_have_says_what_to_do(sandbox_image):
    with pytest.raises(SandboxStartError, match=r"refused to start the sandbox: .*no-such-runtime.*runtime="):
        await AsyncSandbox("docker", runtime="no-such-runtime").start()


@pytest.mark.parametrize("runtime", ["crun", "runsc"])
async def test_a_session_runs_and_is_restored(sandbox_image, runtime):
    with connect() as client:
        if runtime not in client.info()["Runtimes"]:
            pytest.skip(f"the engine has no runtime {runtime}")
    async with AsyncSandbox("docker", runtime=runtime, mode="session", timeout=5) as box:
        await box.run("import os; x = [41]")
        assert (await box.run("os._exit(3)")).state == "restored"
        assert (await box.run("while True: pass", timeout=1)).state == "restored"
        assert (await box.run("x[0] + 1")).value == 42
        assert (await box.run("echo $((6 * 7))", "sh")).output == "42\n"


def test_podman_gets_the_mount_options_that_it_knows():
    docker = "rw,exec,nosuid,nodev,uid=65534,gid=65534,size=1024,nr_inodes=50,mode=0755"
    assert _for_podman(docker) == "rw,exec,nosuid,nodev,size=1024,mode=1777"
