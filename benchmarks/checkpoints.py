"""What the checkpoints of a session cost, for a small and a large heap.

    python benchmarks/checkpoints.py [--engine docker] [--megabytes 200] [--rounds 50] [--pause 0.02]

Two sessions run the same blocks in turn, one without checkpoints and one with a checkpoint for each block, so both run under the
same load. After each block there is a pause, in which the checkpoint is taken. A block is `pass`, or it writes to every page of
the heap: the kernel copies each page that a fork shares when it is written to. Times are medians measured on the host, stream
and result included, and in brackets the shortest and the mean. Memory is what the control group counts while the block runs. The
last column is a block that calls `os._exit`, up to the result that reports the restored session.
Needs a Docker engine and the sandbox image, or bubblewrap.
"""

import argparse
import asyncio
import statistics
import time
from contextlib import AsyncExitStack

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor, Limits

KINDS = {"docker": DockerCommandLineCodeExecutor, "bubblewrap": BubblewrapCommandLineCodeExecutor}
HEAPS = {
    "small": "heap = bytearray(4096)",
    "{size} MB in one piece": "heap = bytearray({size} << 20)\nheap[::4096] = b'x' * len(heap[::4096])",
    "{size} MB of small objects": "heap = [str(number) for number in range({size} * 16_500)]",
}
TOUCH = """
if isinstance(heap, bytearray):
    heap[::4096] = heap[::4096]
else:
    for thing in heap: pass
"""
MEMORY = """
def memory():
    for path in ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes"):
        try: return int(open(path).read()) >> 20
        except OSError: pass
"""


async def run(executor, code, outcome="ok"):
    """Run a block; return its result and its duration in milliseconds."""
    block = CodeBlock(code=code, language="python")
    began = time.perf_counter()
    result = await executor.execute_code_blocks([block], CancellationToken())
    took = (time.perf_counter() - began) * 1000
    if result.outcome != outcome:
        raise SystemExit(f"not {outcome}: {result!r}")
    return result, took


async def medians(executors, code, rounds, pause, outcome="ok"):
    """Return the median time of a block in each session, with the shortest and the mean; the sessions alternate."""
    times = [[] for _ in executors]
    for _ in range(rounds):
        for each, executor in zip(times, executors, strict=True):
            each.append((await run(executor, code, outcome))[1])
            await asyncio.sleep(pause)
    return [f"{statistics.median(each):.1f} ({min(each):.1f}, mean {statistics.mean(each):.1f})" for each in times]


async def measure(engine, fill, rounds, pause):
    """Return the figures of one heap: `pass`, touched and memory, each without and with checkpoints, and restored."""
    limits = Limits(memory="2g", cpus=2)
    async with AsyncExitStack() as stack:
        executors = [
            await stack.enter_async_context(
                KINDS[engine](mode="session", checkpoint=checkpoint, limits=limits, timeout=60)
            )
            for checkpoint in (False, True)
        ]
        for executor in executors:
            await run(executor, MEMORY)
            await run(executor, fill)
        idle = await medians(executors, "pass", rounds, pause)
        touched = await medians(executors, TOUCH, rounds, pause)
        memory = [(await run(executor, TOUCH + "memory()"))[0].value for executor in executors]
        [restored] = await medians(executors[-1:], "import os; os._exit(0)", rounds, pause, "crashed")
        return *idle, *touched, *memory, restored


async def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=KINDS, default="docker")
    parser.add_argument("--megabytes", type=int, default=200, help="the large heap")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between blocks")
    options = parser.parse_args()
    print(
        "| heap | `pass`, ms without | with | every page written, ms without | with | MB without | with | restored, ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, fill in HEAPS.items():
        found = await measure(options.engine, fill.format(size=options.megabytes), options.rounds, options.pause)
        print(f"| {name.format(size=options.megabytes)} |", *(f"{each} |" for each in found), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
