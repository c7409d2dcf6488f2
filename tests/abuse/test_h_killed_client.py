"""H. A client killed in any phase, 15: what it leaves behind is gone after the next start."""

import asyncio
import contextlib
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

from .faults import client, engine
from .oracles import control_groups, descendants, eventually_empty
from .subject import Kind, each_engine

pytestmark = pytest.mark.usefixtures("untouched")

FILES = 400
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
        await run("import subprocess, time; subprocess.Popen(['setsid', 'sleep', '600']); time.sleep(600)")
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

    def everything(self) -> list[str]:
        """Its temporary files, containers, control groups, living processes and sockets in the file system."""
        owner = f"org.autogen-codeact.owner={socket.gethostname()}:{self._pid}"
        found = engine(lambda api: api.containers(all=True, filters={"label": owner}))
        sockets = [path for path in self._folder.rglob("*") if path.is_socket()]
        return [
            *self.folders(),
            *(str(container["Names"]) for container in found),
            *control_groups(self._pid),
            *(f"{pid}: {_command(pid)}" for pid in self.processes if _lives(pid)),
            *map(str, sockets),
        ]


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")[:100].decode(errors="replace")
    return "ended"


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


@each_engine
@pytest.mark.timeout(120)
async def test_h15_what_killed_clients_leave_is_gone_after_the_next_start(docker_engine, folder, kind):
    """A client in each phase. Its temporary folder stayed for ever."""
    all_left = {}
    for phase in PHASES:
        with case(phase):
            left = all_left[phase] = killed(kind, phase, folder)
            if phase in ("in a block", "storing files"):
                assert left.folders()  # the control: it does leave something
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


@pytest.mark.parametrize("next_start", ["Docker", "Bubblewrap"])
async def test_h15_control_groups_whose_processes_end_late_are_gone_after_the_next_start_of_any_engine(
    docker_engine, bubblewrap, folder, next_start
):
    """The next start found processes in them and left them; nobody looked again."""
    with client("BubblewrapCommandLineCodeExecutor", temporary=folder) as first:
        left = Left(folder, first.process.pid)
        left.note_processes()
        for pid in left.processes:
            os.kill(pid, signal.SIGSTOP)
        first.kill()
    try:
        assert control_groups(first.process.pid)
        with client(f"{next_start}CommandLineCodeExecutor", temporary=folder):
            for pid in filter(_lives, left.processes):  # bubblewrap may have killed one meanwhile
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            await gone(left.everything)
    finally:
        for pid in filter(_lives, left.processes):
            os.kill(pid, signal.SIGKILL)


WITHOUT_PROBE = """
import asyncio, sys, tempfile
import autogen_codeact.executors as ours

def probe():
    raise AssertionError("tempfile has made a file to find its folder")

tempfile._get_default_tempdir = probe

async def main():
    async with getattr(ours, sys.argv[1])():
        print("started")

asyncio.run(main())
"""


async def test_h15_a_start_makes_nothing_without_its_owners_name(docker_engine, bubblewrap, folder):
    """Before the first folder of a process, `tempfile` makes a file of a random name; it stayed if the client was killed then."""
    for name in ("DockerCommandLineCodeExecutor", "BubblewrapCommandLineCodeExecutor"):
        env = {**os.environ, "TMPDIR": str(folder)}
        arguments = ["-c", WITHOUT_PROBE, name]
        done = await asyncio.to_thread(processes.run, arguments, env=env, timeout=50)
        assert done.stdout == "started\n", (name, done.stderr)


KILLED_EARLY = """
import asyncio, os, signal, threading
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from codeact_sandbox.backends.bubblewrap import launcher

def end(*_):
    print(open(f"/proc/self/task/{threading.get_native_id()}/children").read(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

launcher._child_pid = end
asyncio.run(BubblewrapCommandLineCodeExecutor().start())
"""


async def test_h15_bubblewrap_ends_if_its_client_was_killed_before_the_namespaces_were_made(bubblewrap, folder):
    """It could not tell the client its child's number, and ended; the child waited for it for ever."""
    env = {**os.environ, "TMPDIR": str(folder)}
    done = await asyncio.to_thread(processes.run, ["-c", KILLED_EARLY], env=env, timeout=50)
    assert done.returncode == -signal.SIGKILL
    (session,) = done.stdout.split()

    def of_the_session() -> list[str]:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [f"{pid}: {_command(pid)}" for pid in pids if _lives(pid) and _session(pid) == session]

    await gone(of_the_session)


def _session(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3]
    return ""
