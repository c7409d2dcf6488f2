"""What a lease of a pool still does when its sandbox is given to the next one."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from autogen_codeact.executors import SandboxDied
from tests.sandbox.pool.pooled import name_of
from tests.sandbox.pool.test_pool_reuse import ONE_KIND, make, nothing_is_left
from tests.sandbox.sandboxes import out, run

__all__ = ["nothing_is_left"]


class TestEndedLease:
    @ONE_KIND
    async def test_ended_lease_does_not_wait_for_a_stop_that_runs(self, kind, monkeypatch):
        begun, may_go_on = threading.Event(), threading.Event()
        went_on: list[bool] = []
        async with make(kind, mode="session") as pool:
            client = await pool.acquire()
            kill = client._launcher.kill

            def kill_slowly() -> None:
                begun.set()
                went_on.append(may_go_on.wait(10))
                kill()

            monkeypatch.setattr(client._launcher, "kill", kill_slowly)
            stopping = asyncio.ensure_future(client.stop())
            await asyncio.to_thread(begun.wait, 30)
            ending = asyncio.ensure_future(client.end_use())
            await asyncio.sleep(0)  # with a wait in it, the event loop would stand still here
            assert pool.leased == 0
            may_go_on.set()
            await asyncio.gather(stopping, ending)
            assert all(went_on)
            async with pool.executor() as executor:
                assert name_of(executor) != client.name

    async def test_ended_lease_can_not_go_on_with_its_transfers(self, kind: str) -> None:
        async with make(kind, mode="session") as pool:
            client = await pool.acquire()
            await client.requests.write_file("large", 0o644, [b"x" * (256 * 1024)] * 3)
            reading = client.requests.read_file("large")
            await anext(reading)
            paused, resume = asyncio.Event(), asyncio.Event()

            async def pieces() -> AsyncIterator[bytes]:
                yield b"first"
                paused.set()
                await resume.wait()
                yield b"second"

            writing = asyncio.ensure_future(client.requests.write_file("small", 0o644, pieces()))
            await paused.wait()
            await client.end_use()
            async with pool.executor() as executor:
                assert name_of(executor) == client.name
                await out(executor, "open('large', 'w').write('of the second use')")
                resume.set()
                with pytest.raises(SandboxDied, match="has ended: start again"):
                    await writing
                with pytest.raises(SandboxDied, match="has ended: start again"):
                    await anext(reading)
                await client.stop()
                await client.end_use()
                assert await out(executor, "import os; print(os.listdir())") == "['large']\n"

    async def test_ended_lease_with_a_running_transfer_ends_its_sandbox(self, kind: str) -> None:
        async with make(kind, mode="process") as pool:
            client = await pool.acquire()
            paused, resume = asyncio.Event(), asyncio.Event()

            async def pieces() -> AsyncIterator[bytes]:
                yield b"x" * (256 * 1024)
                yield b"y" * (256 * 1024)
                paused.set()
                await resume.wait()
                yield b"z"

            writing = asyncio.ensure_future(client.requests.write_file("half", 0o644, pieces()))
            await paused.wait()
            await client.end_use()
            async with pool.executor() as executor:
                assert name_of(executor) != client.name
                assert await out(executor, "import os; print([n for n in os.listdir() if 'code' not in n])") == "[]\n"
                resume.set()
                with pytest.raises(SandboxDied):
                    await writing

    @ONE_KIND
    async def test_ended_lease_answers_late_calls_of_tools_to_nobody(self, kind: str) -> None:
        called, may_answer = threading.Event(), threading.Event()

        def slow(number: int) -> int:
            """Answer late."""
            if number == 1:
                called.set()
                may_answer.wait(30)
            return number

        async with make(kind, mode="session", functions=[], tools=[slow]) as pool:
            async with pool.executor() as executor:
                name = name_of(executor)
                running = asyncio.ensure_future(run(executor, "print(slow(1))"))
                await asyncio.to_thread(called.wait, 30)
                running.cancel()
                await asyncio.wait({running})
            async with pool.executor() as executor:
                second = asyncio.ensure_future(run(executor, "print(slow(2), slow(3))"))
                may_answer.set()
                assert ((await second).output, name_of(executor)) == ("2 3\n", name)
