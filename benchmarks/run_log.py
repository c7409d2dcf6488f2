"""What the log of a run costs: a step of an agent and a call of a host tool with and without it, and 100,000 events.

    python benchmarks/run_log.py [--steps 100] [--events 100000] [--folder FOLDER]

The steps run with bubblewrap and with a model that answers at once; runs with and without a log take turns. The logs are written
in FOLDER (default: a new one in the folder for temporary files): the time that it takes to flush a file counts.
"""

import argparse
import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core.models import ModelFamily, ModelInfo
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.runs import recorded
from autogen_codeact.runs.events import ChunkLogged
from autogen_codeact.runs.redaction import Redaction
from autogen_codeact.runs.writer import LogWriter

INFO = ModelInfo(
    vision=False, function_calling=False, json_output=False, family=ModelFamily.UNKNOWN, structured_output=False
)
ROUNDS = 5


def look() -> int:
    """Return a number."""
    return 1


async def seconds(executor: BubblewrapCommandLineCodeExecutor, code: str, steps: int, path: Path | None) -> float:
    """Run an agent for some steps, and return how long that took."""
    model = ReplayChatCompletionClient([f"```python\n{code}\n```"] * steps + ["Done."], INFO)
    agent = CodeActAgent("actor", executor, model_client=model, tools=[look], max_steps=steps + 1)
    stream: Any = agent.run_stream(task="Go.") if path is None else recorded(agent, task="Go.", path=path)
    began = time.perf_counter()
    async with aclosing(stream) as items:
        async for _ in items:
            pass
    return time.perf_counter() - began


async def compare(name: str, code: str, count: int, steps: int, folder: Path) -> None:
    """Print what a step or a call takes with and without a log."""
    took: dict[bool, list[float]] = {False: [], True: []}
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        await seconds(executor, code, 2, None)
        for number in range(ROUNDS):
            for logged in (False, True):
                path = folder / f"{name.replace(' ', '-')}-{number}" if logged else None
                took[logged].append(await seconds(executor, code, steps, path) / steps / count)
    without, with_log = (statistics.median(took[logged]) * 1000 for logged in (False, True))
    print(f"{name:22} {without:8.2f} ms without a log, {with_log:8.2f} ms with it: {with_log - without:+.2f} ms")


async def many_events(events: int, folder: Path, make: Callable[[int], ChunkLogged]) -> None:
    """Print what many events take in time and memory."""
    writer = await LogWriter.create(folder / "many", Redaction())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    for number in range(events):
        writer.put(make(number))
        await writer.keep_up()
    await writer.close()
    took = time.perf_counter() - began
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
    size = (folder / "many" / "events.jsonl").stat().st_size / 1e6
    print(
        f"{events:,} chunk events: {took / events * 1e6:.0f} µs each, {size:.0f} MB on disk, {grown:.1f} MB more memory"
    )


def chunk(number: int) -> ChunkLogged:
    """Return one event."""
    return ChunkLogged(message=dict(ModelClientStreamingChunkEvent(content=f"word {number} ", source="actor").dump()))


async def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        await compare("step", "1 + 1", 1, options.steps, Path(folder))
        await compare(
            "call of a host tool", "for _ in range(20): look()", 20, max(1, options.steps // 10), Path(folder)
        )
        await many_events(options.events, Path(folder), chunk)


if __name__ == "__main__":
    asyncio.run(main())
