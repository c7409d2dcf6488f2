"""What many sandboxes cost: processor time, memory of the machine, and what the driver holds; runs in a process of its own."""

import asyncio
import os
import tempfile
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor

from . import batch_ours, processor_time
from .worker import check

VARIANTS = {}
MAKERS = {"docker": DockerCommandLineCodeExecutor, "bubblewrap": BubblewrapCommandLineCodeExecutor}
STARTS_AT_ONCE = 8
IDLE_S = 2.0
SAMPLE_S = 0.1


class MemoryWatch:
    """Follows the memory that the machine uses, from its beginning; use it with `with`."""

    def __enter__(self):
        self.before, self.least = _available(), _available()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _follow(self):
        while not self._ended.wait(SAMPLE_S):
            self.least = min(self.least, _available())

    @property
    def most(self):
        """Bytes in use at the peak, beyond those before."""
        return self.before - self.least

    @property
    def now(self):
        """Bytes in use now, beyond those before."""
        return self.before - _available()


def _available():
    (line,) = [line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:")]
    return int(line.split()[1]) * 1024


def driver():
    """Return what this process holds."""
    return {
        "rss": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


async def batch(tasks, concurrency):
    """Run tasks as a batch, and return its figures with the memory that it used."""
    with MemoryWatch() as memory:
        found = await batch_ours.batch(tasks, concurrency, "docker")
    return {**found, "memory": memory.most}


async def alive(count, sandbox, blocks=3):
    """Start sandboxes, leave them idle, run blocks in all of them, and stop them; return what each part costs."""
    before, found = driver(), {"count": count, "sandbox": sandbox, "background": await _idle()}
    with MemoryWatch() as memory:
        async with AsyncExitStack() as folders:
            executors = [
                MAKERS[sandbox](work_dir=folders.enter_context(tempfile.TemporaryDirectory()), **batch_ours.OPTIONS)
                for _ in range(count)
            ]
            try:
                found["start"] = await _each(executors, lambda executor: executor.start(), STARTS_AT_ONCE)
                await _each(executors, _block, STARTS_AT_ONCE)
                await asyncio.sleep(1)
                found["memory"] = memory.now
                found["driver"] = {name: value - before[name] for name, value in driver().items()}
                found["idle"] = await _idle()

                async def some(executor):
                    for _ in range(blocks):
                        await _block(executor)

                found["blocks"] = {**await _each(executors, some, STARTS_AT_ONCE), "blocks": blocks * count}
            finally:
                found["stop"] = await _each(executors, lambda executor: executor.stop(), STARTS_AT_ONCE)
    return found


async def _idle():
    used = processor_time.read()
    await asyncio.sleep(IDLE_S)
    return {"seconds": IDLE_S, "processor": processor_time.since(used)}


async def _block(executor):
    result = await executor.execute_code_blocks(
        [CodeBlock(code="print(6 * 7)", language="python")], CancellationToken()
    )
    check(result.output, "42\n")


async def _each(executors, work, at_once):
    waiting = iter(executors)

    async def slot():
        for executor in waiting:
            await work(executor)

    used, began = processor_time.read(), time.perf_counter()
    await asyncio.gather(*(slot() for _ in range(at_once)))
    return {"seconds": time.perf_counter() - began, "processor": processor_time.since(used)}


PROBES = {"scaling, batch": batch, "scaling, alive": alive}
