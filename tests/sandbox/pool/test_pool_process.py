"""A program that has a pool and ends: with the pool closed or not."""

import os
import textwrap
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from codeact_sandbox.backends.docker.engine import connect
from tests import processes
from tests.sandbox.bubblewrapped import alive, descendants

PROGRAM = """
    import warnings
    warnings.simplefilter("error")
    import asyncio, sys
    from autogen_codeact.executors import ExecutorPool

    async def main(kind, how):
        pool = ExecutorPool(1, backend=kind, timeout=60)
        async with pool if how == "closed" else Open(pool):
            await pool.ready()
            executor = pool.executor()
            await executor.start()
            print("started", flush=True)

    class Open:
        def __init__(self, pool):
            self.pool = pool
        async def __aenter__(self):
            await self.pool.start()
        async def __aexit__(self, *_):
            pass

    asyncio.run(main(*sys.argv[1:]))
"""


def start(kind: str, how: str) -> processes.Process:
    """The program, as far as it is to come."""
    process = processes.start(["-c", textwrap.dedent(PROGRAM), kind, how], env=os.environ)
    assert process.stdout.readline() == "started\n"
    return process


def sandboxes(kind: str, process: processes.Process) -> Callable[[], set[Any]]:
    """What still lives of the sandboxes that it has now."""
    if kind == "docker":
        owned = [f"org.autogen-codeact.owner={os.uname().nodename}:{process.pid}"]

        def containers() -> set[Any]:
            with closing(connect()) as client:
                return {each["Id"] for each in client.containers(all=True, filters={"label": owned})}

        return containers
    below = descendants(process.pid)
    return lambda: {pid for pid in below if alive(pid)}


def gone(remaining: Callable[[], set[Any]]) -> bool:
    """Whether none is there any more, or soon."""
    deadline = time.monotonic() + 30
    while remaining():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("how", ["closed", "left open"])
def test_a_process_that_ends_leaves_nothing_of_its_pool(kind: str, how: str) -> None:
    with start(kind, how) as process:
        remaining = sandboxes(kind, process)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    if how == "closed":
        assert [line for line in said.splitlines() if "without the packages" not in line] == []
    assert gone(remaining)
