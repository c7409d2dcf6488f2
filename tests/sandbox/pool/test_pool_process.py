"""A program that has a pool and ends: by itself, by Ctrl-C, by a kill."""

import os
import signal
import textwrap
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import pytest

from codeact_sandbox.backends.docker.engine import connect
from tests import processes
from tests.sandbox.bubblewrapped import alive, descendants

PROGRAM = """
    import os, warnings
    os.setsid()  # in a group of its own, as a terminal would have it
    warnings.simplefilter("error")
    import asyncio, sys
    from autogen_codeact.executors import ExecutorPool
    from autogen_core import CancellationToken
    from autogen_core.code_executor import CodeBlock

    async def main(kind, how):
        pool = ExecutorPool(1, backend=kind, timeout=60)
        if how == "filling":
            await pool.start()
            return
        async with pool if "closed" in how else Open(pool):
            await pool.ready()
            executor = pool.executor()
            await executor.start()
            await pool.ready()  # one that is made and not yet started outlives a kill
            print("started", flush=True)
            if how in ("closed", "left open"):
                return
            code = CodeBlock(code="import time; time.sleep(60)", language="python")
            await executor.execute_code_blocks([code], CancellationToken())

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
    if how != "filling":
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


def test_process_that_closes_its_pool_leaves_nothing(kind: str) -> None:
    with start(kind, "closed") as process:
        remaining = sandboxes(kind, process)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, [line for line in said.splitlines() if "without the packages" not in line]) == (0, [])
    assert gone(remaining)


@pytest.mark.parametrize("how", ["left open", "filling"])
def test_process_that_does_not_close_its_pool_ends(kind: str, how: str) -> None:
    with start(kind, how) as process:
        remaining = sandboxes(kind, process)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    assert gone(remaining)


@pytest.mark.parametrize(
    ("kind", "how"), [("docker", "running in a closed one"), ("bubblewrap", "running")], indirect=["kind"]
)
def test_killed_process_leaves_no_sandboxes_of_its_pool(kind: str, how: str) -> None:
    with ExitStack() as stack:
        started = [
            (number, stack.enter_context(start(kind, how)))
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
        ]
        remaining = [sandboxes(kind, process) for _, process in started]
        assert [len(each()) >= 2 for each in remaining] == [True] * 3
        time.sleep(0.2)
        for number, process in started:
            process.send_signal(number)
        for number, process in started:
            _, said = process.communicate(timeout=30)
            assert process.returncode == -number, said
    assert all(gone(each) for each in remaining)
