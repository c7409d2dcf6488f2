"""What 2 GB of files in `data=` cost: time of the start and of reading them in the sandbox, and memory of this process.

    python benchmarks/data_mounts.py [--bytes 2000000000] [--folder FOLDER]

With Docker, with bubblewrap, and with the same Docker engine reached over TCP, to which the files are sent. The files are made in
FOLDER (default: a new one in the folder for temporary files) and removed at the end.
"""

import argparse
import asyncio
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from codeact_sandbox import AsyncSandbox

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.abuse.engine_proxy import engine_proxy

READ = """
import hashlib, os
found = hashlib.blake2b()
total = 0
for folder, _, names in os.walk("/data"):
    for name in sorted(names):
        with open(os.path.join(folder, name), "rb") as file:
            while piece := file.read(1 << 20):
                found.update(piece)
                total += len(piece)
print(total)
"""


def make_files(folder: Path, size: int) -> None:
    """Write files of together `size` bytes: one with half of them, and a hundred."""
    piece = os.urandom(1 << 20)
    (folder / "many").mkdir()
    for path, length in [
        (folder / "one.bin", size // 2),
        *((folder / f"many/{n}.bin", size // 200) for n in range(100)),
    ]:
        with path.open("wb") as file:
            for start in range(0, length, len(piece)):
                file.write(piece[: length - start])


async def measure(name: str, folder: Path, **options: object) -> None:
    """Start a sandbox with the files, read them all, and print a row."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    async with AsyncSandbox(data=[folder / "one.bin", folder / "many"], timeout=600, **options) as box:  # type: ignore[arg-type]
        started = time.perf_counter()
        result = await box.run(READ)
        read = time.perf_counter()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    total = int(result.output)
    print(
        f"| {name} | {total / 1e9:.1f} GB | {started - began:.1f} s | {read - started:.1f} s | {grown:.0f} MiB |",
        flush=True,
    )


async def main(folder: Path, size: int) -> None:
    make_files(folder, size)
    print(
        "| sandbox | files | start | reading all in the sandbox | growth of this process |\n|---|---|---|---|---|",
        flush=True,
    )
    await measure("Docker", folder, backend="docker")
    await measure("bubblewrap", folder, backend="bubblewrap")
    with engine_proxy(network=True) as proxy:
        await measure("Docker over TCP", folder, backend="docker", docker_host=proxy.address, progress=lambda _: None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=int, default=2_000_000_000)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    made = Path(tempfile.mkdtemp(prefix="codeact-benchmark-", dir=given.folder))
    made.chmod(0o755)
    try:
        asyncio.run(main(made, given.bytes))
    finally:
        shutil.rmtree(made)
