"""Our Docker executor beside autogen-ext's, in one run, on the same image: each figure is a ratio of medians.

    python benchmarks/docker_executors.py [--rounds 3] [--blocks 30]

An arm that gives a wrong answer has no time. Needs a Docker engine and the sandbox image (`make image`).
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections import defaultdict

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor as Upstream

from autogen_codeact.executors import DEFAULT_IMAGE
from autogen_codeact.executors import DockerCommandLineCodeExecutor as Ours

BLOCKS = {"python block": ("python", "print(6 * 7)"), "shell block": ("sh", "echo $((6 * 7))")}


async def timed(seconds, name, awaitable):
    began = time.perf_counter()
    result = await awaitable
    seconds[name].append(time.perf_counter() - began)
    return result


async def measure(executor, blocks, seconds):
    """One life of an executor; appends to the seconds of each cell."""
    began = time.perf_counter()
    await executor.start()
    for name, (language, code) in BLOCKS.items():
        for number in range(blocks):
            block = CodeBlock(code=code, language=language)
            result = await timed(seconds, name, executor.execute_code_blocks([block], CancellationToken()))
            if (result.exit_code, result.output) != (0, "42\n"):
                raise SystemExit(f"{type(executor).__module__}: wrong answer {result!r}")
            if name == "python block" and number == 0:
                seconds["create to first result"].append(time.perf_counter() - began)
    await timed(seconds, "stop", executor.stop())


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=30)
    options = parser.parse_args()
    arms = {
        "autogen-ext": lambda folder: Upstream(image=DEFAULT_IMAGE, work_dir=folder),
        "ours, process": lambda folder: Ours(work_dir=folder),
        "ours, session": lambda folder: Ours(work_dir=folder, mode="session"),
        "ours, session, no checkpoint": lambda folder: Ours(work_dir=folder, mode="session", checkpoint=False),
    }
    seconds = {name: defaultdict(list) for name in arms}
    for _ in range(options.rounds):
        for name, make in arms.items():  # in turn, so that the machine's drift hits all alike
            with tempfile.TemporaryDirectory() as folder:
                await measure(make(folder), options.blocks, seconds[name])
    medians = {
        name: {cell: statistics.median(values) for cell, values in cells.items()} for name, cells in seconds.items()
    }
    cells = list(medians["autogen-ext"])
    print("| p50 | " + " | ".join(cells) + " |")
    print("|---" * (len(cells) + 1) + "|")
    for name, figures in medians.items():
        shown = [
            f"{figures[cell] * 1000:.1f} ms ({medians['autogen-ext'][cell] / figures[cell]:.1f}×)" for cell in cells
        ]
        print(f"| {name} | " + " | ".join(shown) + " |")


if __name__ == "__main__":
    asyncio.run(main())
