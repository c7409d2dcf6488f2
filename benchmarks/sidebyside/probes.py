"""Measurements of our executors other than blocks: memory, host tools, recovery, output, extraction, recorded sessions."""

import asyncio
import gzip
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.agents.extraction import extract_code_blocks
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor, ToolLimits
from codeact_sandbox.backends.docker.engine import connect

from .variant import WrongAnswer

MAKERS = {"docker": DockerCommandLineCodeExecutor, "bubblewrap": BubblewrapCommandLineCodeExecutor}
MUCH = 100_000_000
DEADLINE_S = 0.5
CALLS = 300


async def _run(executor, code):
    return await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())


async def idle_memory(kind, mode="process", preload=()):
    """Return the memory of an idle sandbox that has run a block, and of the engine's shim for it, in bytes."""
    before = _descendants()
    async with MAKERS[kind](preload=list(preload), mode=mode) as executor:
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


async def null_tool_call(kind):
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


async def much_output(kind, times):
    """Measure 100 MB of output: seconds in a sandbox, seconds of `cat` to a pipe, and growth of our peak memory."""
    code = f"import os\ndata = b'x' * 999 + b'\\n'\nfor _ in range({MUCH} // 100_000):\n    os.write(1, data * 100)"
    ours, cat = [], []
    with tempfile.NamedTemporaryFile() as file:
        file.write((b"x" * 999 + b"\n") * (MUCH // 1000))
        file.flush()
        async with MAKERS[kind](mode="session") as executor:
            await _run(executor, "print(1)")
            before = _peak(reset=True)
            for _ in range(times):
                cat.append(await asyncio.to_thread(_cat, file.name))
                began = time.perf_counter()
                result = await _run(executor, code)
                ours.append(time.perf_counter() - began)
                if result.outcome != "ok" or not result.truncated:
                    raise WrongAnswer(result.output[-300:])
            grown = _peak() - before
    return {"ours": ours, "cat": cat, "grown": grown}


def _cat(name):
    began, came = time.perf_counter(), 0
    with subprocess.Popen(["cat", name], stdout=subprocess.PIPE, bufsize=0) as process:
        while data := process.stdout.read(1 << 18):
            came += len(data)
    if came != MUCH:
        raise WrongAnswer(f"cat gave {came} bytes")
    return time.perf_counter() - began


def _peak(*, reset=False):
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


async def extraction(data, times):
    """Return the bytes of recorded model text, the seconds for all of it, and in how many answers exactly the code was found."""
    answers = [answer for row in _rows(Path(data) / "tora/answers.jsonl.gz") for answer in row["code"]]
    texts = answers + [row["content"] for row in _rows(Path(data) / "autogen-notebooks/messages.jsonl.gz")]
    for row in _rows(Path(data) / "mint/sessions.jsonl.gz"):
        texts += [step["assistant"] for step in row["steps"]]
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        for text in texts:
            extract_code_blocks(text)
        seconds.append(time.perf_counter() - began)
    right = sum(
        [block.code for block in extract_code_blocks(answer) if block.language == "python"]
        == [answer.partition("```python\n")[2].partition("\n```")[0] + "\n"]
        for answer in answers
    )
    size = sum(len(text.encode()) for text in texts)
    return {"bytes": size, "seconds": seconds, "right": right, "of": len(answers)}


def _rows(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


async def recorded_session(variant, steps):
    """Run a recorded session in one interpreter that is rolled back to its initial state first."""
    if variant.executor.mode == "session":
        await (variant.executor.rollback() if hasattr(variant, "pristine") else variant.executor.checkpoint())
        variant.pristine = True
    for code, expect in steps:
        output = await variant.run("python", code)
        if output.rstrip("\n") != expect:
            raise WrongAnswer(f"{output[-200:]!r} instead of {expect!r}")


async def fill_folder(variant, count):
    """Create small files in `work_dir`, and run one block so that they are sent."""
    for number in range(count):
        path = Path(variant.folder.name) / f"d{number // 100}" / f"f{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"file {number}\n")
    answer = await variant.run("python", "import os\nprint(sum(len(files) for _, _, files in os.walk('.')) > 0)")
    if answer != "True\n":
        raise WrongAnswer(answer)
