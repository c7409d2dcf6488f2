"""A pool whose sandboxes, engine or users fail: nothing is lost, and nobody waits longer than agreed."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import docker.errors
import pytest
import pytest_asyncio

from autogen_codeact.executors import ExecutorPool, SandboxNotStarted, SandboxTimeout
from codeact_sandbox.backends.docker.engine import connect
from tests.abuse.test_h_cancel import CancelAt
from tests.sandbox.sandboxes import out, pause_container

pytestmark = [pytest.mark.usefixtures("docker_engine", "bubblewrap", "sandbox_image")]


@pytest_asyncio.fixture(params=["docker", "bubblewrap"])
async def tight(request: pytest.FixtureRequest) -> AsyncIterator[ExecutorPool]:
    """A pool of one: a sandbox that is lost to it is missed by the next user."""
    async with ExecutorPool(1, backend=request.param, max_alive=1, acquire_timeout=20) as pool:
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


async def test_sandboxes_that_do_not_answer_delay_callers_until_the_deadline_at_most() -> None:
    async with ExecutorPool(2, max_alive=2, acquire_timeout=3) as pool:
        await pool.ready(30)
        names = [client.name for client in pool._running().idle]
        with connect() as api:
            for name in names:
                pause_container(api, name)
            began = time.monotonic()
            with pytest.raises(SandboxTimeout, match=r"no sandbox of the pool was available within 3 s"):
                await pool.executor().start()
            assert time.monotonic() - began < 3 + 40
            for name in names:
                with contextlib.suppress(docker.errors.APIError):  # it has been ended
                    api.unpause(name)
        await pool.ready(40)
        async with pool.executor() as executor:
            assert await out(executor, "print(1)") == "1\n"


async def test_a_forked_child_sees_an_empty_pool_and_must_start_its_own_even_in_the_middle_of_a_change() -> None:
    async with ExecutorPool(1, backend="bubblewrap", max_alive=1) as pool:
        await pool.ready(30)
        reading, writing = os.pipe()
        with pool._running()._changed:  # what a thread of the pool holds while it decides
            child = os.fork()
            if child == 0:
                # Without the parent's lock: this thread may enter it again.
                seen: list[Any] = []
                thread = threading.Thread(target=lambda: seen.append((pool.idle, pool.leased)), daemon=True)
                thread.start()
                thread.join(30)
                try:
                    pool._running()
                except SandboxNotStarted as error:
                    os.write(writing, f"{seen} {error}".encode())
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as said:
            text = await asyncio.to_thread(said.read)
        assert text == "[(0, 0)] the pool was started by another process: start one of its own here"
        os.waitpid(child, 0)  # noqa: ASYNC222 - it has ended
        async with pool.executor() as executor:
            assert await out(executor, "print(1)") == "1\n"
