"""Measurements of our executors other than blocks: memory, host tools, recovery."""

import asyncio
import json
import os
import time
from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor, ToolLimits
from codeact_sandbox.backends.docker.engine import connect

from .variant import WrongAnswer

MAKERS = {"docker": DockerCommandLineCodeExecutor, "bubblewrap": BubblewrapCommandLineCodeExecutor}
DEADLINE_S = 0.5
CALLS = 300


async def _run(executor, code):
    return await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())


async def idle_memory(kind):
    """Return the memory of an idle sandbox that has run a block, and of the engine's shim for it, in bytes."""
    before = _descendants()
    async with MAKERS[kind]() as executor:
        await _run(executor, "print(6 * 7)")
        await asyncio.sleep(1)
        if kind == "bubblewrap":
            return {"sandbox": sum(_pss(pid) for pid in _descendants() - before)}
        return await asyncio.to_thread(_container_memory, executor.container_name)


def _container_memory(name):
    client = connect()
    try:
        memory = client.stats(name, stream=False)["memory_stats"]
        ident = client.inspect_container(name)["Id"]
    finally:
        client.close()
    stats = memory.get("stats", {})
    # As in `docker stats`: memory that the kernel can drop at any time does not count.
    cache = stats.get("total_inactive_file", stats.get("inactive_file", 0))
    shims = [pid for pid in _pids() if b"shim" in _cmdline(pid) and ident.encode() in _cmdline(pid)]
    return {"sandbox": memory["usage"] - cache, "shim": sum(_pss(pid) for pid in shims)}


def _pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _pss(pid):
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _descendants():
    parents = {}
    for pid in _pids():
        try:
            parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, grew = {os.getpid()}, True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grew = bool(more)
    return found - {os.getpid()}


def ping() -> None:
    """Do nothing, on the host."""


async def tool_call(kind):
    """Return the seconds of each of many calls to a tool that does nothing, measured by the calling code."""
    code = (
        "import json, time\nseconds = []\n"
        f"for _ in range({CALLS}):\n    began = time.perf_counter()\n    ping()\n"
        "    seconds.append(time.perf_counter() - began)\nprint(json.dumps(seconds[50:]))"
    )
    async with MAKERS[kind](mode="session", tools=[ping], tool_limits=ToolLimits(calls=2 * CALLS)) as executor:
        result = await _run(executor, code)
        if len(result.tool_calls) != CALLS:
            raise WrongAnswer(f"{len(result.tool_calls)} calls arrived: {result.output[:300]}")
        return json.loads(result.output)


async def recovery(kind, times):
    """Return the seconds from the deadline of an endless block to the result of the next block, which uses earlier variables."""
    seconds = []
    async with MAKERS[kind](mode="session", timeout=DEADLINE_S) as executor:
        await _run(executor, "x = 41")
        for number in range(times):
            began = time.perf_counter()
            ended = await _run(executor, "while True: pass")
            after = await _run(executor, "x += 1; print(x)")
            seconds.append(time.perf_counter() - began - DEADLINE_S)
            if (ended.outcome, ended.state, after.output) != ("timeout", "restored", f"{42 + number}\n"):
                raise WrongAnswer(f"{ended.outcome}, {ended.state}, {after.output!r}")
    return seconds
