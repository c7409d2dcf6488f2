"""What a call from the sandbox to a function of the host costs, with Docker and with bubblewrap, in one run.

    python benchmarks/host_tools.py [--calls 2000] [--rounds 3]

The times are taken by the code in the sandbox, around each call. A figure is the median of the rounds, which take turns. Needs
bubblewrap, a Docker engine and the sandbox image.
"""

import argparse
import asyncio
import json
import statistics
from collections import defaultdict

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor, ToolLimits

SANDBOXES = {"Docker": DockerCommandLineCodeExecutor, "bubblewrap": BubblewrapCommandLineCodeExecutor}
THREADS = 10

MEASURE = """
import asyncio, json, time
from concurrent.futures import ThreadPoolExecutor

CALLS = {calls}
found = {{}}

def timed(name, call, count, size):
    for _ in range(20):
        assert len(call() or "") == size
    times = []
    for _ in range(count):
        began = time.perf_counter()
        answer = call()
        times.append(time.perf_counter() - began)
        assert len(answer or "") == size
    times.sort()
    found[name + ", p50 ms"] = times[len(times) // 2] * 1000
    found[name + ", p95 ms"] = times[len(times) * 95 // 100] * 1000

def rate(name, work):
    began = time.perf_counter()
    work()
    found[name + ", calls/s"] = CALLS / (time.perf_counter() - began)

def in_threads():
    with ThreadPoolExecutor({threads}) as pool:
        assert all(each is None for each in pool.map(lambda _: null(), range(CALLS)))

def in_tasks():
    async def many():
        free = asyncio.Semaphore({threads})
        async def one():
            async with free:
                assert await null.aio() is None
        await asyncio.gather(*(one() for _ in range(CALLS)))
    asyncio.run(many())

timed("null", null, CALLS, 0)
timed("null, sync function", null_in_thread, CALLS, 0)
timed("1 kB", lambda: give(1000), CALLS, 1000)
timed("100 kB", lambda: give(100_000), CALLS // 10, 100_000)
rate("one thread", lambda: [null() for _ in range(CALLS)])
rate("{threads} threads", in_threads)
rate("{threads} tasks of asyncio", in_tasks)
print(json.dumps(found))
"""


async def null() -> None:
    """Do nothing."""


def null_in_thread() -> None:
    """Do nothing, in a thread of the host."""


async def give(size: int) -> str:
    """Give back that many letters."""
    return "x" * size


async def measure(make, calls):
    """What one life of a sandbox measures."""
    limits = ToolLimits(calls=100_000, bytes_in="256m", bytes_out="1g")
    options = {"mode": "session", "checkpoint": False, "timeout": 600, "tool_limits": limits}
    async with make(tools=[null, null_in_thread, give], **options) as executor:
        code = MEASURE.format(calls=calls, threads=THREADS)
        result = await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())
    if result.exit_code != 0:
        raise SystemExit(f"{make.__name__}: {result.output} {result.notes}")
    return json.loads(result.output)


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = {name: defaultdict(list) for name in SANDBOXES}
    for _ in range(options.rounds):
        for name, make in SANDBOXES.items():  # in turn, so that the machine's drift hits both alike
            for cell, value in (await measure(make, options.calls)).items():
                found[name][cell].append(value)
    print("| call of | " + " | ".join(found) + " |")
    print("|---" * (len(found) + 1) + "|")
    for cell in found["Docker"]:
        values = [statistics.median(found[name][cell]) for name in found]
        print(
            f"| {cell} | " + " | ".join(f"{value:,.2f}" if value < 100 else f"{value:,.0f}" for value in values) + " |"
        )


if __name__ == "__main__":
    asyncio.run(main())
