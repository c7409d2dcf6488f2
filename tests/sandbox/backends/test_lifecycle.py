"""Start, stop, and everything that can happen to a sandbox from outside."""

import asyncio
import io
import os
import signal
import tarfile
import textwrap
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing

import pytest
import pytest_asyncio
from autogen_core import CancellationToken
from docker.api.client import APIClient

from autogen_codeact.executors import (
    DockerCommandLineCodeExecutor,
    ExecutionResult,
    SandboxDied,
    SandboxError,
    SandboxNotStarted,
    SandboxStartError,
    SandboxTimeout,
    SandboxUnavailable,
)
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.types.options import DEFAULT_IMAGE
from tests import processes
from tests.sandbox import reused
from tests.sandbox.conftest import containers
from tests.sandbox.pool.pooled import until
from tests.sandbox.sandboxes import block, out, pause_container, run


async def none_is_left(seconds: float = 5) -> bool:
    """Whether all sandboxes of this process are gone, or soon."""
    deadline = time.monotonic() + seconds
    while containers():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


async def kill(client: APIClient, executor: DockerCommandLineCodeExecutor) -> None:
    """Kill the container of an executor, and wait until that is known."""
    running = executor.sandbox.client
    assert running is not None
    client.kill(running.name)
    await until(lambda: not running.alive)


@pytest_asyncio.fixture
async def executor(sandbox_image: str) -> AsyncIterator[DockerCommandLineCodeExecutor]:
    """One that has not been started; it is stopped after the test, whatever that does with it."""
    made = DockerCommandLineCodeExecutor(mode="session")
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def leased(sandbox_image: str) -> AsyncIterator[DockerCommandLineCodeExecutor]:
    """The same with a sandbox that other tests use, too; its container does not count."""
    made = reused.executor(DockerCommandLineCodeExecutor, mode="session")
    yield made
    await made.stop()


@pytest.fixture
def client(sandbox_image: str) -> Iterator[APIClient]:
    with closing(connect()) as connected:
        yield connected


class TestStartAndStop:
    async def test_start_and_stop_may_be_repeated(self, executor):
        await executor.stop()
        for starting in (executor.start, executor.restart):
            await starting()  # a restart starts what was stopped
            name = executor.container_name
            await out(executor, "x = 1")
            await executor.start()
            assert executor.container_name == name
            assert await out(executor, "x") == "1\n"
            await executor.stop()
            await executor.stop()
            assert containers() == set()

    async def test_start_and_stop_may_be_called_at_the_same_time(self, executor):
        await asyncio.gather(*(executor.start() for _ in range(5)))
        assert len(containers()) == 1
        await asyncio.gather(*(executor.stop() for _ in range(5)))
        assert containers() == set()
        calls = [executor.start(), executor.stop(), executor.restart(), executor.start(), executor.stop()]
        await asyncio.gather(*calls)
        assert containers() == set()

    async def test_restart_keeps_only_the_files_of_the_host(self, make_fresh_executor):
        executor = await make_fresh_executor(mode="session")
        await out(executor, "x = 1; open('kept.txt', 'w').write('kept'); open('/tmp/lost.txt', 'w').close()")
        name = executor.container_name
        await executor.restart()
        assert executor.container_name != name
        code = "import os; 'x' in globals(), open('kept.txt').read(), os.path.exists('/tmp/lost.txt')"
        assert await out(executor, code) == "(False, 'kept', False)\n"
        assert len(containers()) == 1

    async def test_first_block_starts_the_sandbox_once(self, executor):
        results = await asyncio.gather(*(run(executor, f"print({n})") for n in range(10)))
        assert [result.output for result in results] == [f"{n}\n" for n in range(10)]
        assert all((result.state, result.notes) == ("kept", ()) for result in results)
        assert len(containers()) == 1
        await executor.stop()

    async def test_after_stop_blocks_and_files_are_refused(self, leased, tmp_path):
        await leased.start()
        await leased.stop()
        (tmp_path / "file").write_text("")
        calls: list[Callable[[], object]] = [
            lambda: run(leased, "1"),
            lambda: leased.upload(tmp_path / "file"),
            lambda: leased.download("file", tmp_path / "x"),
            leased.list_files,
            leased.checkpoint,
            leased.rollback,
        ]
        for call in calls:
            with pytest.raises(SandboxNotStarted, match=r"call start\(\)"):
                await call()  # type: ignore[misc]
        with pytest.raises(SandboxNotStarted):
            _ = leased.work_dir

    async def test_async_with_stops_the_sandbox_whatever_is_raised(self, sandbox_image):
        async def fail() -> None:
            async with DockerCommandLineCodeExecutor() as executor:
                assert len(containers()) == 1
                result: ExecutionResult = await executor.execute_code_blocks([block("print(1)")], CancellationToken())
                assert result.output == "1\n"
                raise ZeroDivisionError

        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await fail()
            assert containers() == set()

    async def test_stop_during_a_block_ends_the_block(self, executor):
        await executor.restart()  # which starts what was never started
        running = asyncio.ensure_future(run(executor, "import time; time.sleep(60)"))
        await asyncio.sleep(0.3)
        await executor.stop()
        with pytest.raises(SandboxDied, match="stopped"):
            await running

    async def test_a_start_that_is_cancelled_leaves_nothing(self, executor):
        for delay in (0, 0.03, 0.1, 0.2, 0.3):
            starting = asyncio.ensure_future(executor.start())
            await asyncio.sleep(delay)
            starting.cancel()
            await asyncio.wait({starting})
            if not starting.cancelled():
                await executor.stop()
            assert await none_is_left(), delay
        async with executor:
            assert await out(executor, "print(1)") == "1\n"

    async def test_a_stop_that_is_cancelled_stops_all_the_same(self, executor):
        await executor.start()
        stopping = asyncio.ensure_future(executor.stop())
        await asyncio.sleep(0.01)
        stopping.cancel()
        await asyncio.wait({stopping})
        assert await none_is_left()


class TestEventLoopsAndThreads:
    def test_several_event_loops_use_one_sandbox_one_after_the_other(self, leased):
        asyncio.run(leased.start())
        for number in range(3):
            assert asyncio.run(out(leased, f"x = {number}; x")) == f"{number}\n"
        asyncio.run(leased.stop())

    def test_several_threads_use_one_sandbox_at_once(self, executor):
        results: dict[int, str] = {}

        def work(number: int) -> None:
            async def blocks() -> None:
                for _ in range(5):
                    results[number] = await out(
                        executor, f"open('{number}.txt', 'w').write('{number}'); print({number})"
                    )

            asyncio.run(blocks())

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == {number: f"{number}\n" for number in range(8)}
        assert len(containers()) == 1
        asyncio.run(executor.stop())

    def test_a_loop_that_is_torn_down_mid_block_leaves_the_sandbox_usable(self, leased):
        asyncio.run(out(leased, "x = 1"))

        async def leave() -> None:
            task = asyncio.ensure_future(run(leased, "x = 2; import time; time.sleep(60)"))
            await asyncio.sleep(0.3)
            assert not task.done()

        asyncio.run(leave())
        assert asyncio.run(out(leased, "x")) == "1\n"
        asyncio.run(leased.stop())

    def test_a_start_that_is_torn_down_with_its_loop_leaves_nothing(self, executor):

        async def leave() -> bool:
            task = asyncio.ensure_future(executor.start())
            await asyncio.sleep(0.1)
            return not task.done()

        while not asyncio.run(leave()):  # on a busy machine this loop may sleep until the start is over
            asyncio.run(executor.stop())
        assert asyncio.run(none_is_left())


class TestFromOutside:
    @pytest.mark.parametrize("mode", ["process", "session"])
    async def test_a_container_that_is_gone_mid_block_is_an_error_and_the_next_block_has_another(
        self, make_fresh_executor, client, mode
    ):
        executor = await make_fresh_executor(mode=mode, timeout=30)
        for way in ("kill", "remove", "stop"):
            await out(executor, "x = 1; open('kept.txt', 'w').write('kept')")
            running = asyncio.ensure_future(run(executor, "import time; time.sleep(60)"))
            await asyncio.sleep(0.3)
            began = time.monotonic()
            name = executor.container_name
            if way == "kill":
                await asyncio.to_thread(client.kill, name)
            elif way == "remove":
                await asyncio.to_thread(client.remove_container, name, force=True)
            else:
                await asyncio.to_thread(client.stop, name, timeout=30)
            with pytest.raises(SandboxDied, match=r"exit code is 137"):
                await running
            assert time.monotonic() - began < 25, way  # of the 30 s after which `stop` kills
            result = await run(executor, "print('x' in globals(), open('kept.txt').read())")
            assert (result.outcome, result.output, result.state) == ("ok", "False kept\n", "lost"), way
            assert "had ended since the last block" in result.notes[0], way
            assert (await run(executor, "print(1)")).state == "kept", way
            assert executor.container_name != name, way
            assert len(containers()) == 1, way

    async def test_container_that_is_gone_between_blocks_is_replaced_without_an_error(
        self, make_fresh_executor, client
    ):
        executor = await make_fresh_executor(mode="session")
        await out(executor, "x = 1")
        await kill(client, executor)
        result = await run(executor, "'x' in globals()")
        assert (result.output, result.state) == ("False\n", "lost")
        # A start removes the dead one, too.
        await kill(client, executor)
        await executor.start()
        assert await out(executor, "print(1)") == "1\n"
        assert len(containers()) == 1
        # Calls that run nothing report the loss as well.
        await kill(client, executor)
        result = await run(executor, "1", "no-such-language")
        assert (result.outcome, result.state) == ("error", "lost")
        assert (await run(executor, "1")).state == "kept"

    async def test_paused_container_misses_the_deadline_of_the_host_and_can_be_stopped(
        self, make_fresh_executor, client
    ):
        executor = await make_fresh_executor(timeout=3)
        await out(executor, "print(1)")
        pause_container(client, executor.container_name)
        began = time.monotonic()
        with pytest.raises(SandboxTimeout, match="did not answer within 13 s"):
            await run(executor, "print(2)")
        assert time.monotonic() - began < 40
        result = await run(executor, "print(3)")
        assert (result.output, result.state) == ("3\n", "lost")
        assert len(containers()) == 1
        pause_container(client, executor.container_name)
        began = time.monotonic()
        await executor.stop()
        assert time.monotonic() - began < 30
        assert containers() == set()

    async def test_container_that_is_paused_and_resumed_loses_nothing(self, make_executor, client):
        executor = await make_executor(mode="session", timeout=30)
        await out(executor, "x = 1")
        pause_container(client, executor.container_name)
        running = asyncio.ensure_future(run(executor, "x"))
        await asyncio.sleep(1)
        client.unpause(executor.container_name)
        assert (await running).output == "1\n"


class TestEndOfClient:
    SCRIPT = """
        import asyncio, sys
        from autogen_core import CancellationToken
        from autogen_core.code_executor import CodeBlock
        from autogen_codeact.executors import DockerCommandLineCodeExecutor

        async def main():
            executor = DockerCommandLineCodeExecutor(container_name=sys.argv[1], timeout=300)
            await executor.start()
            print("started", flush=True)
            ignore = "import signal, time\\nfor n in (1, 2, 3, 13, 15): signal.signal(n, signal.SIG_IGN)\\n"
            code = ignore + "time.sleep(300)"
            await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())

        asyncio.run(main())
    """

    def test_end_of_the_client_takes_its_container_with_it(self, client):
        prefix = f"codeact-test-{uuid.uuid4().hex[:8]}"
        with ExitStack() as stack:
            started = []
            for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
                arguments = ["-c", textwrap.dedent(self.SCRIPT), f"{prefix}-{number}"]
                started.append((number, stack.enter_context(processes.start(arguments, env=os.environ))))
            try:
                for _, child in started:
                    assert child.stdout is not None
                    assert child.stdout.readline() == "started\n"
                time.sleep(0.3)
                assert len(client.containers(filters={"name": prefix})) == len(started)
            finally:
                for number, child in started:
                    child.send_signal(number)
            deadline = time.monotonic() + 10
            while client.containers(all=True, filters={"name": prefix}):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            for _, child in started:
                child.wait(30)


class TestMissing:
    async def test_missing_engine_is_an_error(self, monkeypatch, tmp_path):
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
        executor = DockerCommandLineCodeExecutor()
        began = time.monotonic()
        with pytest.raises(SandboxUnavailable, match="Start"):
            await executor.start()
        with pytest.raises(ConnectionError):
            await run(executor, "1")
        assert time.monotonic() - began < 30
        await executor.stop()

    async def test_missing_image_without_a_registry_is_an_error(self, sandbox_image):
        executor = DockerCommandLineCodeExecutor(image="127.0.0.1:1/no/image:here", progress=lambda _: None)
        began = time.monotonic()
        with pytest.raises(SandboxUnavailable, match=r"no registry answers|can't be had"):
            await executor.start()
        assert time.monotonic() - began < 30

    async def test_image_without_python_is_an_error(self, client):
        empty = io.BytesIO()
        with tarfile.open(fileobj=empty, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("etc/empty"), io.BytesIO(b""))
        tag = f"autogen-codeact/test-{uuid.uuid4().hex[:12]}:1"
        repository, _, version = tag.partition(":")
        client.import_image_from_data(empty.getvalue(), repository=repository, tag=version)
        try:
            executor = DockerCommandLineCodeExecutor(image=tag)
            with pytest.raises(SandboxStartError, match=r"has no python3: the sandbox needs an image with Python 3\.8"):
                await executor.start()
            assert containers() == set()
        finally:
            client.remove_image(tag)

    async def test_image_with_an_old_python_is_an_error(self, client):
        """No image with such a Python can be had without a network: one is played by the default image."""
        tag = f"autogen-codeact/test-{uuid.uuid4().hex[:12]}:1"
        old = "import sys; sys.version_info = (3, 7, 16, 'final', 0); sys.version = '3.7.16 (played)'\n"
        context = io.BytesIO()
        with tarfile.open(fileobj=context, mode="w") as tar:
            files = {
                "Dockerfile": f"FROM {DEFAULT_IMAGE}\nUSER root\nCOPY python3 /usr/local/sbin/python3\n",
                "python3": f"#!/usr/bin/python3\nimport sys\n{old}sys.argv = sys.argv[-1:]\nexec(sys.argv[0])\n",
            }
            for name, text in files.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(text), 0o755
                tar.addfile(entry, io.BytesIO(text.encode()))
        context.seek(0)
        for _ in client.build(fileobj=context, custom_context=True, tag=tag, network_mode="none", rm=True):
            pass
        try:
            executor = DockerCommandLineCodeExecutor(image=tag)
            with pytest.raises(SandboxStartError, match=r"needs Python 3\.8 or later, this image has 3\.7\.16"):
                await executor.start()
            assert containers() == set()
        finally:
            client.remove_image(tag)

    async def test_failed_start_leaves_no_temporary_folder(self, sandbox_image, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        executor = reused.executor(DockerCommandLineCodeExecutor, init_command="exit 1")
        for _ in range(2):
            with pytest.raises(SandboxError):
                await executor.start()
        assert os.listdir(tmp_path) == []
