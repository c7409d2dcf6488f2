"""Start and stop sandboxes many times in a row, and show what has grown: nothing should.

    python benchmarks/soak.py [--engine docker] [--cycles 200] [--mode process] [--every 50]

Each cycle is a fresh executor that runs one block. Descriptors, threads and resident memory are this process's own;
containers, control groups and child processes are those that it has made. The first cycles load modules and fill caches,
so the figures before are taken after `--warm-up` of them. Needs a Docker engine and the sandbox image, or bubblewrap.
"""

import argparse
import asyncio
import gc
import os
import socket
import threading
import time
from contextlib import closing
from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor
from codeact_sandbox.backends.bubblewrap.cgroups import PARENT
from codeact_sandbox.backends.docker.engine import connect

KINDS = {"docker": DockerCommandLineCodeExecutor, "bubblewrap": BubblewrapCommandLineCodeExecutor}


def containers():
    """Containers of this process, in whatever state."""
    owner = f"org.autogen-codeact.owner={socket.gethostname()}:{os.getpid()}"
    with closing(connect()) as client:
        return len(client.containers(all=True, filters={"label": owner}))


def figures(engine):
    """What could grow, by name."""
    gc.collect()
    own = f"-{os.getpid()}-"
    groups = [name for place, below, _ in os.walk("/sys/fs/cgroup") if Path(place).name == PARENT for name in below]
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        # The event loop's pool grows with what happens to overlap, up to a fixed size.
        "threads": sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate()),
        "children": len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()),
        "control groups": sum(own in name for name in groups),
        "containers": containers() if engine == "docker" else 0,
        "resident KiB": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024,
    }


async def cycle(engine, mode):
    """One life of an executor."""
    async with KINDS[engine](mode=mode) as executor:
        block = CodeBlock(code="print(6 * 7)", language="python")
        result = await executor.execute_code_blocks([block], CancellationToken())
        if (result.exit_code, result.output) != (0, "42\n"):
            raise SystemExit(f"wrong answer {result!r}")


async def soak(engine, mode, cycles, *, warm_up=10, every=0):
    """Run cycles.

    Args:
        engine: `docker` or `bubblewrap`.
        mode: `process` or `session`.
        cycles: How many are counted.
        warm_up: How many come before.
        every: After how many the figures are printed meanwhile; 0 for never.

    Returns:
        Figures before and after.
    """
    for _ in range(warm_up):
        await cycle(engine, mode)
    before = figures(engine)
    for number in range(1, cycles + 1):
        await cycle(engine, mode)
        if every and number % every == 0:
            print(f"{number:>6}  {figures(engine)}", flush=True)
    return before, figures(engine)


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=KINDS, default="docker")
    parser.add_argument("--mode", choices=["process", "session"], default="process")
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--every", type=int, default=50)
    options = parser.parse_args()
    began = time.monotonic()
    before, after = await soak(
        options.engine, options.mode, options.cycles, warm_up=options.warm_up, every=options.every
    )
    print(f"{options.cycles} cycles on {options.engine}, {options.mode} mode, {time.monotonic() - began:.0f} s")
    print("| | before | after |\n|---|---|---|")
    for name, count in before.items():
        print(f"| {name} | {count:,} | {after[name]:,} |")


if __name__ == "__main__":
    asyncio.run(main())
