"""Let a block write ten gigabytes, and see what is kept of them and what they cost the host.

    python benchmarks/flood.py [--engine docker] [--mode process] [--gigabytes 10]

Three blocks, one after the other: to standard output, to standard error, and past Python through a child process. Of each the
time, the bytes dropped, and by how much the peak of this process's memory has grown. The tests let the same code write less.
Needs a Docker engine and the sandbox image, or bubblewrap.
"""

import argparse
import asyncio
import resource
import time

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor

KINDS = {"docker": DockerCommandLineCodeExecutor, "bubblewrap": BubblewrapCommandLineCodeExecutor}
WRITERS = {
    "stdout": "import os\npiece = b'x' * 1_000_000\nfor _ in range({count}):\n    os.write(1, piece)",
    "stderr": "import os\npiece = b'x' * 1_000_000\nfor _ in range({count}):\n    os.write(2, piece)",
    "child": "import subprocess\nsubprocess.run(['head', '-c', '{count}000000', '/dev/zero'], check=True)",
}


def peak():
    """The most memory that this process has had, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=KINDS, default="docker")
    parser.add_argument("--mode", choices=("process", "session"), default="process")
    parser.add_argument("--gigabytes", type=float, default=10)
    options = parser.parse_args()
    count = int(options.gigabytes * 1000)
    print("| written to | bytes | seconds | bytes dropped | peak of the host's memory, grown by |")
    print("|---|---|---|---|---|")
    async with KINDS[options.engine](mode=options.mode, timeout=3600) as executor:
        await executor.execute_code_blocks([CodeBlock(code="'x' * 2_000_000", language="python")], CancellationToken())
        for where, code in WRITERS.items():
            before, began = peak(), time.monotonic()
            block = CodeBlock(code=code.format(count=count), language="python")
            result = await executor.execute_code_blocks([block], CancellationToken())
            if result.outcome != "ok":
                raise SystemExit(f"not ok: {result.outcome} {result.error}")
            took = time.monotonic() - began
            print(
                f"| {where} | {count * 10**6:,} | {took:.1f} | {result.truncated:,} | {peak() - before:,} KiB |",
                flush=True,
            )


if __name__ == "__main__":
    asyncio.run(main())
