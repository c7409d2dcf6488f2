"""What files, results and images of a hostile sandbox cost the host: event-loop lag, memory and disk, per load.

    python benchmarks/hostile_loads.py [--engine docker|bubblewrap] [--mode process|session] [--load NAME] [--repeat 3]

Each load runs in a sandbox of its own beside a ticker on the same event loop that wakes up every 10 ms. The table shows the
largest delay of the ticker, the growth of this process's peak memory, and the bytes that the load has put on the host's disk.
Lag and memory are the median of the repetitions, disk is the maximum. Run it on a quiet machine: the delay is wall-clock time.
Needs a Docker engine and the sandbox image, or bubblewrap, and Linux (`/proc/self/clear_refs`).
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import tempfile
import time
from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor, Limits

KINDS = {"docker": DockerCommandLineCodeExecutor, "bubblewrap": BubblewrapCommandLineCodeExecutor}
TICK_S = 0.01
LIMITS = Limits(memory="2g", workspace="600m", tmp="64m", files=60_000)
MIB = 1024 * 1024

EMPTY_FILES = "for n in range(9000): open(f'f{n}', 'w').close()"
DEEP_FILES = """
import os
folder = '/'.join(['d' * 8] * 32)
os.makedirs(folder, exist_ok=True)
for n in range(7000):
    with open(f'{folder}/f{n}', 'a') as file:
        file.write('x')
"""
LONG_NAMES = "for n in range(1500): open(f'{n:04}' + 'n' * 196, 'w').close()"
EMPTY_FOLDERS = """
import os
for n in range(2500):
    folder = '/'.join([f'{n}'] + ['d'] * 30)
    os.makedirs(folder)
    open(folder + '/f', 'w').close()
"""
LARGE_DEEP_FILES = """
import os
for n in range(500):
    folder = '/'.join([f'{block}-{n}'] + ['d'] * 30)
    os.makedirs(folder)
    with open(folder + '/f', 'wb') as file:
        file.write(bytes(380_000))
"""
OUTPUT = "import os\nfor _ in range(100): os.write(1, b'\\x1b[31m' * 200_000)"
LARGE_RESULTS = "for _ in range(16): fetch_large()"
MANY_CALLS = "for n in range(10_000): add(n, n)"
LARGE_ARGUMENTS = "for _ in range(8): take('x' * 1_000_000)"
IMAGES = """
import struct, zlib
def png(name, width, height):
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    rows = zlib.compress(bytes((width * 3 + 1) * height), 9)
    head = struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)
    with open(name, 'wb') as file:
        file.write(b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', head) + chunk(b'IDAT', rows) + chunk(b'IEND', b''))
for n in range(4):
    png(f'image{n}.png', 6300, 6300)
"""


def fetch_large() -> str:
    """Give back 3.9 MB of text."""
    return "r" * 3_900_000


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def take(text: str) -> int:
    """Give back the length of a text."""
    return len(text)


class Cost:
    """The ticker, and this process's peak memory, while a load runs."""

    def __init__(self):
        self.lag_s = 0.0
        self.grown = 0

    async def __aenter__(self):
        self._peak = reset_peak()
        self._ticking = asyncio.ensure_future(self._tick())
        await asyncio.sleep(5 * TICK_S)
        self.lag_s = 0.0
        return self

    async def _tick(self):
        while True:
            began = time.perf_counter()
            await asyncio.sleep(TICK_S)
            self.lag_s = max(self.lag_s, time.perf_counter() - began - TICK_S)

    async def __aexit__(self, *_):
        await asyncio.sleep(2 * TICK_S)
        self._ticking.cancel()
        self.grown = peak_bytes() - self._peak


def reset_peak():
    """Count the peak of this process's memory anew; returns the memory that it has now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


def peak_bytes():
    """The most memory that this process has had since it was last reset, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])


def disk_bytes(folder):
    """Bytes of disk that a folder takes, its sub-folders included."""
    found = 0
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with contextlib.suppress(OSError):
                found += os.lstat(os.path.join(place, name)).st_blocks * 512
    return found


async def run(executor, code):
    """Run one block; whatever becomes of it is a result."""
    await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())


def files(*codes):
    """A load of blocks that write files."""

    async def load(executor):
        for code in codes:
            await run(executor, code)

    return load


async def act(executor, code, tools=()):
    """Run one block as an agent's step, so that what comes of it goes into messages and to the model."""
    model_info = {
        "vision": True,
        "function_calling": False,
        "json_output": False,
        "structured_output": False,
        "family": "unknown",
    }
    model = ReplayChatCompletionClient([f"```python\n{code}\n```", "Done."], model_info=model_info)
    await CodeActAgent("agent", executor, model_client=model, tools=list(tools)).run(task="Go.")


LOADS = {
    "9,000 empty files": files(EMPTY_FILES),
    "7,000 files 32 folders deep, written twice": files(DEEP_FILES, DEEP_FILES),
    "1,500 names of 200 bytes": files(LONG_NAMES),
    "2,500 empty files in 77,500 folders": files(EMPTY_FOLDERS),
    "22 blocks of 190 MB in 15,500 folders each": files(
        *(
            f"import shutil, glob\nfor old in glob.glob('*-*'): shutil.rmtree(old)\nblock = {n}\n{LARGE_DEEP_FILES}"
            for n in range(22)
        )
    ),
    "100 MB of output with terminal escapes": files(OUTPUT),
    "16 tool results of 3.9 MB": lambda executor: act(executor, LARGE_RESULTS, [fetch_large]),
    "10,000 tool calls": lambda executor: act(executor, MANY_CALLS, [add]),
    "8 tool arguments of 1 MB": lambda executor: act(executor, LARGE_ARGUMENTS, [take]),
    "4 images of 39.7 megapixels": lambda executor: act(executor, IMAGES),
}


def fill(folder, count):
    """Make nested folders."""
    for n in range(count // 31):
        os.makedirs(os.path.join(folder, str(n), *["d"] * 30))


async def stop_large_folder(kind, mode):
    """Measure `stop()` of a temporary folder with 124,000 folders."""
    executor = kind(mode=mode, timeout=300, limits=LIMITS)
    await executor.start()
    await asyncio.to_thread(fill, executor.work_dir, 124_000)
    async with Cost() as cost:
        await executor.stop()
    return cost, 0


async def measure(kind, mode, load):
    """Run one load in a sandbox and a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        async with kind(mode=mode, timeout=300, work_dir=folder, limits=LIMITS) as executor, Cost() as cost:
            await load(executor)
        return cost, disk_bytes(folder)


async def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=KINDS)
    parser.add_argument("--mode", choices=("process", "session"), default="session")
    parser.add_argument("--load", help="only loads whose name contains this text")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print("| load | sandbox | longest delay of the event loop | host memory grown by | on the host's disk |")
    print("|---|---|---|---|---|")
    for engine in [options.engine] if options.engine else KINDS:
        measures = {
            name: lambda load=load, engine=engine: measure(KINDS[engine], options.mode, load)
            for name, load in LOADS.items()
        }
        measures["`stop()` with 124,000 folders"] = lambda engine=engine: stop_large_folder(KINDS[engine], options.mode)
        for name, once in measures.items():
            if options.load and options.load not in name:
                continue
            found = [await once() for _ in range(options.repeat)]
            lag = statistics.median(cost.lag_s for cost, _ in found)
            grown = statistics.median(cost.grown for cost, _ in found)
            disk = max(disk for _, disk in found)
            row = (
                name,
                f"{engine}, {options.mode}",
                f"{lag * 1000:.0f} ms",
                f"{grown / MIB:.0f} MiB",
                f"{disk / MIB:.0f} MiB",
            )
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
