"""Sandboxes started ahead: one lease each, bounded, nothing whatever happens to them or to the engine."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from autogen_codeact.executors import (
    ExecutorPool,
    Limits,
    SandboxDied,
    SandboxNotStarted,
    SandboxTimeout,
)
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.session.async_sandbox import LOST
from codeact_sandbox.types.tool import ToolAnswer
from tests.abuse.test_h_cancel import CancelAt
from tests.sandbox.pool.pooled import alive, name_of, ready_names, signal_idle, until
from tests.sandbox.sandboxes import out, run

pytestmark = pytest.mark.usefixtures("nothing_is_left")
SMALL = Limits(memory="128m", pids=32, workspace="8m", tmp="8m", files=500)


class Teller:
    """A host tool that says what it was made with."""

    name = "tell"
    signature = "() -> str"
    description = "Tell something."
    source = "def tell():\n    return _call('tell', {})\n"

    def __init__(self, said: str) -> None:
        self.said = said

    async def run(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Say it."""
        return ToolAnswer(self.said)


# Sandboxes started in advance where one is as good as several, and a container takes long to start.
SIZES = {"docker": 1, "bubblewrap": 2}
# What a pool does is the same code for both: tests of what neither an engine nor the end of a sandbox can change.
ONE_KIND = pytest.mark.parametrize("kind", ["bubblewrap"], indirect=True)


class Expecting(ExecutorPool):
    """A pool that is told how many of its sandboxes the test will use, and starts no others in advance."""

    def __init__(self, leases: int, size: int, **options: Any) -> None:
        super().__init__(size, **options)
        self._left = leases
        self.expected = lambda: self._left

    async def acquire(self) -> RunnerClient:
        self._left -= 1
        return await super().acquire()


def make(kind: str, size: int = 1, *, leases: int | None = None, **options: Any) -> ExecutorPool:
    """A pool of small sandboxes; with `leases` it starts only so many in advance, as in a batch."""
    options = {"backend": kind, "limits": SMALL, "timeout": 30, **options}
    return ExecutorPool(size, **options) if leases is None else Expecting(leases, size, **options)


class TestLease:
    @ONE_KIND
    async def test_lease_takes_a_sandbox_that_was_ready(self, kind: str) -> None:
        async with make(kind, 2, leases=2) as pool:
            await pool.ready()
            ready = ready_names(pool)
            assert (pool.idle, pool.leased, len(ready)) == (2, 0, 2)
            async with pool.executor() as executor:
                assert name_of(executor) in ready
                assert await out(executor, "print(6 * 7)") == "42\n"
                assert pool.leased == 1

    # Case 80.
    @ONE_KIND
    async def test_lease_ends_its_sandbox_and_the_next_gets_another(self, kind: str) -> None:
        names = set()
        async with make(kind, 2, leases=5, mode="session") as pool:
            for _ in range(5):
                async with pool.executor() as executor:
                    names.add(name_of(executor))
                    assert await out(executor, "'x' in globals()") == "False\n"
                    await out(executor, "x = 1")
                assert pool.leased == 0
        assert len(names) == 5

    async def test_pool_is_refilled_in_the_background(self, kind: str) -> None:
        size = SIZES[kind]
        async with make(kind, size) as pool:
            await pool.ready()
            executors = [pool.executor() for _ in range(size)]
            for executor in executors:
                await executor.start()
            await until(lambda: pool.idle == size)
            assert (pool.leased, alive(kind)) == (size, 2 * size)
            for executor in executors:
                await executor.stop()
            await until(lambda: alive(kind) == size)
            assert (pool.idle, pool.leased) == (size, 0)

    @ONE_KIND
    async def test_lease_brings_the_files_functions_and_command_of_the_executor(self, kind, tmp_path):
        def triple(number: int) -> int:
            """Three times a number."""
            return 3 * number

        (tmp_path / "data.txt").write_text("14")
        async with make(kind, leases=1) as pool:
            await pool.ready()
            executor = pool.executor(work_dir=tmp_path, functions=[triple], init_command="echo ready > init.txt")
            async with executor:
                code = """
                from functions import triple
                print(triple(int(open("data.txt").read())), open("init.txt").read())
                open("made.txt", "w").write("made")
                """
                assert await out(executor, code) == "42 ready\n\n"
            assert (tmp_path / "made.txt").read_text() == "made"

    async def test_first_block_takes_a_lease_and_a_dead_sandbox_is_replaced(self, kind: str) -> None:
        async with make(kind, leases=2, max_alive=1, mode="session") as pool:
            executor = pool.executor()
            await out(executor, "x = 1")
            signal_idle(kind, signal.SIGKILL)
            await until(lambda: pool.leased == 0)
            result = await run(executor, "'x' in globals()")
            assert (result.output, result.state, result.notes) == ("False\n", "lost", (LOST,)), result
            await executor.stop()

    @ONE_KIND
    async def test_lease_calls_the_tools_of_its_own_executor(self, kind: str) -> None:
        async with make(kind, 2, leases=4, tools=[Teller("nobody")]) as pool:

            async def ask(said: str) -> tuple[str, list[str]]:
                async with pool.executor(tools=[Teller(said)]) as executor:
                    result = await run(executor, "print(tell())")
                    return result.output, [call.name for call in result.tool_calls]

            found = await asyncio.gather(*(ask(str(number)) for number in range(4)))
            assert found == [(f"{number}\n", ["tell"]) for number in range(4)]
            with pytest.raises(ValueError, match="the options of the pool differ in tools"):
                pool.executor(tools=[])


class TestLimits:
    @ONE_KIND
    async def test_many_executors_run_and_max_alive_holds(self, kind: str) -> None:
        most: list[int] = []
        two = asyncio.Barrier(2)

        async def one(number: int) -> str:
            async with pool.executor() as executor:
                assert pool.idle + pool.leased <= 5
                output = await out(executor, f"print({number})")
                if number < 2:
                    await two.wait()
                most.append(await asyncio.to_thread(alive, kind))
                return output

        async with make(kind, 2, leases=15, max_alive=5) as pool:
            outputs = await asyncio.gather(*(one(number) for number in range(15)))
        assert outputs == [f"{number}\n" for number in range(15)]
        assert 2 <= max(most) <= 5

    @ONE_KIND
    async def test_executor_without_a_sandbox_waits_for_the_end_of_a_lease(self, kind: str) -> None:
        async with make(kind, max_alive=1) as pool:
            first = pool.executor()
            await first.start()
            waiting = {asyncio.ensure_future(pool.executor().start()) for _ in range(2)}
            await asyncio.sleep(0.2)
            assert not any(task.done() for task in waiting)
            await first.stop()
            # Each prepares its folder in a thread first, so either may be the first to ask the pool.
            (served,), (refused,) = await asyncio.wait(waiting, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            served.result()
            refused.cancel()
            await asyncio.wait({refused})
            assert pool.leased == 1

    @ONE_KIND
    async def test_executor_that_waits_too_long_gets_the_reason(self, kind: str) -> None:
        async with make(kind, max_alive=1, acquire_timeout=0.3) as pool:
            await pool.ready(20)
            async with pool.executor():
                text = (
                    "no sandbox of the pool was available within 0.3 s: 1 of at most 1 are in use, 0 are being started; "
                    "stop a sandbox that is done, or raise max_alive"
                )
                with pytest.raises(SandboxTimeout) as caught:
                    await pool.executor().start()
                assert str(caught.value) == text
                with pytest.raises(SandboxTimeout, match=r"the pool was not full within 0\.2 s: 1 of at most 1"):
                    await pool.ready(0.2)
            await pool.ready(20)
            async with pool.executor() as executor:
                assert await out(executor, "print(1)") == "1\n"


class TestStop:
    async def test_stopped_pool_leaves_nothing_while_it_is_used_and_filling(self, kind: str) -> None:
        pool = make(kind, SIZES[kind] + 1)
        await pool.start()
        await pool.start()
        executor = pool.executor(mode="process")
        await executor.start()
        running = asyncio.ensure_future(run(executor, "import time; time.sleep(30)"))
        await asyncio.sleep(0.3)
        await asyncio.gather(pool.stop(), pool.stop())
        assert alive(kind) == 0
        with pytest.raises(SandboxDied):
            await running
        with pytest.raises(SandboxNotStarted, match="the pool is not running: use `async with pool:`"):
            await run(executor, "print(1)")
        await executor.stop()
        await pool.stop()


class TestIdleSandboxes:
    async def test_idle_sandbox_that_dies_is_replaced_with_a_line_in_the_log(self, kind, caplog):
        caplog.set_level(logging.INFO, "codeact_sandbox")
        async with make(kind, leases=1) as pool:
            await pool.ready()
            (first,) = ready_names(pool)
            signal_idle(kind, signal.SIGKILL)
            await until(lambda: ready_names(pool) - {first})
            async with pool.executor() as executor:
                assert name_of(executor) != first
                assert await out(executor, "print(1)") == "1\n"
        said = [record.getMessage() for record in caplog.records if "has ended while idle" in record.getMessage()]
        assert len(said) == 1
        assert said[0].startswith(f"the pooled sandbox {first} has ended while idle and is replaced: ")

    async def test_sandbox_that_no_longer_answers_is_not_leased(self, kind: str) -> None:
        async with make(kind, leases=1, max_alive=1) as pool:
            await pool.ready()
            (first,) = ready_names(pool)
            signal_idle(kind, signal.SIGSTOP)
            async with pool.executor() as executor:
                assert name_of(executor) != first
                assert await out(executor, "print(1)") == "1\n"


@pytest_asyncio.fixture
async def tight(kind: str) -> AsyncIterator[ExecutorPool]:
    """A pool of one: a sandbox that is lost to it is missed by the next user."""
    async with ExecutorPool(1, backend=kind, max_alive=1, acquire_timeout=20) as pool:
        await pool.ready(30)
        yield pool


async def test_a_start_cancelled_at_any_await_gives_its_sandbox_back(tight: ExecutorPool) -> None:
    for number in range(1, 40):
        executor = tight.executor(init_command="true")
        task = asyncio.create_task(CancelAt(executor.start(), number))
        await asyncio.wait({task}, timeout=20)
        assert task.done()
        if not task.cancelled():
            task.result()
            await executor.stop()
            break
        await tight.ready(20)
        assert (tight.idle, tight.leased) == (1, 0)
    assert number >= 4
    async with tight.executor() as next_one:
        assert await out(next_one, "print(1)") == "1\n"
    await tight.ready(20)
    assert (tight.idle, tight.leased) == (1, 0)
