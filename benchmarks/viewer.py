"""How fast the viewer opens a long run and lists many: time to the first step against reading the log once, side by side.

    python benchmarks/viewer.py [--steps 5000] [--megabytes 200] [--runs 10000] [--folder FOLDER]

A run with that many steps and bytes, and a folder with that many small runs, are written in FOLDER (default: a new one in the
folder for temporary files). The server runs in this process; the times are those that a client measures over HTTP.
"""

import argparse
import asyncio
import os
import resource
import shutil
import tempfile
import time
from pathlib import Path

import httpx

from autogen_codeact.runs.events import (
    BlockFinished,
    BlockStarted,
    CodeText,
    Event,
    MessageLogged,
    ModelCallFinished,
    ModelCallStarted,
    ProcessInfo,
    RunFinished,
    RunStarted,
)
from autogen_codeact.runs.results import ResultRecord
from autogen_codeact.viewer import serve

ROUNDS = 3


def begin(task: str) -> RunStarted:
    """Return the first event of a run."""
    message = {"type": "TextMessage", "content": task, "source": "user"}
    return RunStarted(run="r", kind="agent", name="coder", task=[message], process=ProcessInfo(pid=1, host="here"))


def turn(number: int, output: str) -> list[Event]:
    """Return the events of a message with code and of its block: two steps."""
    code = f"for n in range({number}):\n    print(n, 'of', {number})\n"
    content = f"Step {number} follows.\n```python\n{code}```\n"
    usage = {"prompt_tokens": 1000, "completion_tokens": 50}
    message = {
        "type": "CodeGenerationEvent",
        "source": "coder",
        "content": content,
        "metadata": {},
        "models_usage": usage,
    }
    return [
        ModelCallStarted(agent="coder", number=number, request="0" * 64),
        ModelCallFinished(agent="coder", number=number, result={"content": content, "usage": usage}, duration_s=1.0),
        MessageLogged(message={**message, "code_blocks": [{"code": code, "language": "python"}]}),
        BlockStarted(agent="coder", number=number, blocks=[CodeText(code=code, language="python")]),
        BlockFinished(
            agent="coder",
            number=number,
            result=ResultRecord(kind="sandbox", exit_code=0, output=output, duration_s=0.5),
            duration_s=0.5,
        ),
    ]


def write_run(folder: Path, task: str, turns: int, size: int) -> None:
    """Write the log of a run whose blocks have printed about `size` bytes together."""
    folder.mkdir(parents=True)
    line = "0123456789 some output of a program, as it is printed by many of them\n"
    output = line * max(1, size // max(1, turns) // len(line))
    seq = 0
    with open(folder / "events.jsonl", "wb") as log:
        for number in range(turns + 1):
            events: list[Event] = [begin(task)] if number == 0 else turn(number, output)
            for event in [*events, *([RunFinished(outcome="completed")] if number == turns else [])]:
                seq += 1
                numbered = event.model_copy(update={"seq": seq, "monotonic": float(seq)})
                log.write(numbered.model_dump_json().encode() + b"\n")


def read_once(path: Path) -> float:
    """Return how long it takes to read a file."""
    began = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while file.read(1024 * 1024):
            pass
    return time.perf_counter() - began


def resident() -> float:
    """Return the MiB of memory that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measure_run(folder: Path, steps: int, size: int) -> None:
    """Print how fast a long run opens."""
    write_run(folder / "long", "A long run", steps // 2, size)
    log = folder / "long/events.jsonl"
    print(f"a run of {steps:,} steps, {log.stat().st_size / 1e6:.0f} MB")
    for _ in range(ROUNDS):
        reading = read_once(log)
        async with serve(folder) as url, httpx.AsyncClient(base_url=url, timeout=600) as client:
            began = time.perf_counter()
            (await client.get("/api/runs/long/steps?from=1&to=20")).raise_for_status()
            first = time.perf_counter() - began
            longest, revision = 0.0, 0
            while True:
                requested_at = time.perf_counter()
                header = (await client.get(f"/api/runs/long/changes?since={revision}")).json()["header"]
                revision = header["revision"]
                longest = max(longest, time.perf_counter() - requested_at)
                if header["indexed"]:
                    break
            whole = time.perf_counter() - began
            requested_at = time.perf_counter()
            at = header["steps"] - 40
            (await client.get(f"/api/runs/long/steps?from={at}&to={at + 20}")).raise_for_status()
            jump = time.perf_counter() - requested_at
        print(
            f"  first 20 steps {first * 1000:6.0f} ms ({first / reading:5.2f} x reading the log once: {reading * 1000:.0f} ms), "
            f"all indexed {whole:5.2f} s, longest answer meanwhile {longest * 1000:.0f} ms, last 20 steps {jump * 1000:.0f} ms, "
            f"memory {resident():.0f} MiB"
        )


async def measure_list(folder: Path, runs: int) -> None:
    """Print how fast the list of many runs opens."""
    write_run(folder / "run-0", "What is 6*7?", 3, 3_000)
    for number in range(1, runs):
        shutil.copytree(folder / "run-0", folder / f"run-{number}")
    print(f"{runs:,} small runs")
    for attempt in ("not read before", "read before"):
        async with serve(folder) as url, httpx.AsyncClient(base_url=url, timeout=600) as client:
            began = time.perf_counter()
            answer = (await client.get("/api/runs?limit=50")).json()
            first, longest = time.perf_counter() - began, 0.0
            while answer["indexing"] or answer["matched"] < runs:
                await asyncio.sleep(0.2)
                requested_at = time.perf_counter()
                answer = (await client.get("/api/runs?limit=50&search=6*7")).json()
                longest = max(longest, time.perf_counter() - requested_at)
            whole = time.perf_counter() - began
            requested_at = time.perf_counter()
            await client.get("/api/runs?search=6*7&limit=50")
            last = time.perf_counter() - requested_at
        print(
            f"  {attempt}: first answer {first * 1000:.0f} ms, all read {whole:.1f} s, longest answer meanwhile "
            f"{longest * 1000:.0f} ms, a search of all {last * 1000:.0f} ms"
        )


async def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        await measure_run(folder / "one", options.steps, options.megabytes * 1_000_000)
        await measure_list(folder / "many", options.runs)


if __name__ == "__main__":
    asyncio.run(main())
