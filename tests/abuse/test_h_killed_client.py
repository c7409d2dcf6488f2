"""H. A client killed in any phase, 15: its sandbox ends by itself, and the next start removes what it leaves behind."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codeact_sandbox.files.temporary_folder import PREFIX
from tests import processes
from tests.cases import case
from tests.processes import Process
from tests.sandbox.bubblewrapped import alive

from .faults import client, engine
from .oracles import control_groups, descendants, eventually_empty
from .subject import Kind, each_engine

pytestmark = pytest.mark.usefixtures("untouched")

FILES = 400
WORK = """
import os, signal, subprocess
for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)
for _ in range(3): subprocess.Popen(["setsid", "sleep", "600"])
while True: os.write(1, b"x" * 65536)
"""
# It says what it does next, so that it can be killed in the middle of that.
CLIENT = f"""
import asyncio, json, sys
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
import autogen_codeact.executors as ours

async def main():
    options = json.loads(sys.argv[1])
    executor = getattr(ours, options.pop("executor"))(**options)
    async def run(code):
        await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())
    print("starting", flush=True)
    await executor.start()
    await run("for n in range(20): open(f'kept-{{n}}', 'w').write('x')")
    print("started", flush=True)
    if sys.argv[2] == "in a block":
        await run({WORK!r})
    for _ in range(1000 if sys.argv[2] == "storing files" else 0):
        await run("import os\\nfor n in range({FILES}): open(f'{{n}}-{{os.urandom(8).hex()}}', 'wb').write(bytes(70_000))")
    print("stopping", flush=True)
    await executor.stop()
    print("stopped", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


class Left:
    """What a client leaves behind."""

    def __init__(self, folder: Path, pid: int) -> None:
        self._folder = folder
        self._pid = pid
        self.processes: set[int] = set()

    def note_processes(self) -> None:
        """Remember what runs below it."""
        self.processes |= descendants(self._pid)

    def folders(self) -> list[str]:
        """Its temporary folders."""
        return [path.name for path in self._folder.iterdir() if path.name.startswith(f"{PREFIX}{self._pid}-")]

    def running(self) -> list[str]:
        """Its containers and living processes."""
        owner = f"org.autogen-codeact.owner={socket.gethostname()}:{self._pid}"
        found = engine(lambda api: api.containers(all=True, filters={"label": owner}))
        return [*(str(each["Names"]) for each in found), *map(str, filter(alive, self.processes))]

    def everything(self) -> list[str]:
        """And its temporary files, control groups and sockets in the file system."""
        sockets = [path for path in self._folder.rglob("*") if path.is_socket()]
        return [*self.folders(), *self.running(), *control_groups(self._pid), *map(str, sockets)]


async def gone(left: Callable[[], list[str]]) -> None:
    """Wait until nothing is left."""
    found = await eventually_empty(lambda: {"left": set(there)} if (there := left()) else {}, 30)
    assert not found


def wait(process: Process, word: str) -> None:
    """Wait until the client says that."""
    assert process.stdout is not None
    while (line := process.stdout.readline()) != f"{word}\n":
        assert line, "the client has ended"


def stored(folder: Path) -> int:
    """How many files have come from the sandbox."""
    return sum(len(list(path.iterdir())) for path in folder.iterdir() if path.name.startswith(PREFIX))


def await_files(folder: Path) -> None:
    until = time.monotonic() + 20
    while stored(folder) < 20 + FILES // 2:
        assert time.monotonic() < until
        time.sleep(0.001)


Phase = Callable[[Process, Path], None]


def starting(seconds: float) -> Phase:
    """So long after the start has begun."""

    def phase(process: Process, _: Path) -> None:
        wait(process, "starting")
        time.sleep(seconds)

    return phase


def in_a_block(process: Process, _: Path) -> None:
    wait(process, "started")
    time.sleep(0.7)


def storing_files(process: Process, folder: Path) -> None:
    wait(process, "started")
    await_files(folder)


def stopping(process: Process, _: Path) -> None:
    wait(process, "stopping")


PHASES: dict[str, Phase] = {
    "storing files": storing_files,  # the first, which counts files in all folders
    **{f"starting, {seconds} s": starting(seconds) for seconds in (0.0, 0.02, 0.1, 0.4)},
    "in a block": in_a_block,
    "stopping": stopping,
}


def killed(kind: Kind, phase: str, folder: Path) -> Left:
    """Start a client and kill it in that phase."""
    options: dict[str, Any] = {"executor": f"{kind.engine.capitalize()}CommandLineCodeExecutor", "mode": kind.mode}
    command, env = ["-c", CLIENT, json.dumps(options), phase], {**os.environ, "TMPDIR": str(folder)}
    with processes.start(command, env=env) as process:
        left = Left(folder, process.pid)
        try:
            PHASES[phase](process, folder)
            left.note_processes()
        finally:
            process.send_signal(signal.SIGKILL)
    return left


# Cases 70, H15.
@each_engine
@pytest.mark.timeout(120)
async def test_what_killed_clients_leave_is_gone_after_the_next_start(docker_engine, folder, kind):
    """A client in each phase. Its temporary folder stayed for ever."""
    all_left = {}
    for phase in PHASES:
        with case(phase):
            left = all_left[phase] = killed(kind, phase, folder)
            if phase in ("in a block", "storing files"):
                assert left.folders()  # the control: it does leave something
    for phase in ("in a block", "storing files"):
        # Ten seconds are promised, and two are usual; a busy machine takes longer.
        with case(phase):
            await gone(all_left[phase].running)
    with client(f"{kind.engine.capitalize()}CommandLineCodeExecutor", temporary=folder) as other:
        for phase, left in all_left.items():
            with case(phase):
                await gone(left.everything)
        # The living one has kept what is its own.
        other.send("print(open('/workspace/made', 'w').write('x'))")
        assert other.hear()["output"] == "1\n"
        assert os.listdir(folder) == Left(folder, other.process.pid).folders()
        assert other.process.stdin is not None
        other.process.stdin.close()
        other.process.wait(20)
    assert os.listdir(folder) == []
