"""Sandboxes that the cases of a module use one after the other, as long as each case leaves its sandbox as it was.

Most cases change nothing in a sandbox that outlives them, and a start costs more than most of them. In a module with
`SHARES_SANDBOXES = True` a case without options but a timeout gets the one of a case before that had the same limits. When all
oracles have looked at a case, its sandbox is cleared and compared with what it was at its start; one that differs in anything is
stopped. What the host remembers of a sandbox goes on with it, so that options for its files are not among those.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autogen_codeact.executors import SandboxCodeExecutor, SandboxError

from ..executors.sandboxes import run
from .oracles import eventually_empty, processes_in

COMPARE = r"""
import gc, hashlib, json, os, resource, signal, sys, threading, warnings

def digest(found):
    return hashlib.sha256(repr(found).encode()).hexdigest()[:12]

def tree(top):
    return sorted(os.path.join(folder, name) for folder, below, files in os.walk(top) for name in [*below, *files])

def callables(found):  # other attributes may be counters and caches
    return digest(sorted((name, id(value)) for name, value in list(found.items()) if callable(value)))

def status(*fields):
    return [line for line in open("/proc/self/status").read().splitlines() if line.startswith(fields)]

def descriptors():
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            yield os.readlink("/proc/self/fd/" + name).partition("[")[0]
        except OSError:
            pass  # it was the listing's own

if given:
    for name in [name for name in session if name not in given["names"]]:
        del session[name]
    for path in reversed([path for place in places for path in tree(place)]):
        if path not in given["files"]:
            os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.remove(path)
    gc.collect()

modules = given["modules"] if given else sorted(name for name in sys.modules if name != "__main__")
found = {
    "names": sorted(session),
    "modules": modules,
    "files": [path for place in places for path in tree(place)],
    "environment": {name: value for name, value in os.environ.items() if is_session or name != "HOME"},
    "folder": os.getcwd(),
    "limits": [resource.getrlimit(number) for number in range(16)],
    "status": status("Umask", "SigB", "SigI", "SigC", "Seccomp", "NoNew", "Cap", "Uid", "Gid", "Threads"),
    "timers": [signal.getitimer(which) for which in range(3)],
    "scheduling": [os.getpriority(0, 0), sorted(os.sched_getaffinity(0)), open("/proc/self/oom_score_adj").read()],
    "path": sys.path,
    "hooks": [len(each) for each in (sys.meta_path, sys.path_hooks, gc.callbacks, warnings.filters)],
    "tracing": [repr(each()) for each in (sys.gettrace, sys.getprofile, gc.isenabled, gc.get_threshold)],
    "settings": [sys.getrecursionlimit(), sys.getswitchinterval()],
    "streams": [id(each) for each in (sys.stdin, sys.stdout, sys.stderr)],
    "threads": sorted(each.name for each in threading.enumerate()),
    "descriptors": list(descriptors()),
    "system_v": [open("/proc/sysvipc/" + kind).read() for kind in ("shm", "sem", "msg") if os.path.exists("/proc/sysvipc")],
}
for name in modules if is_session else ():
    found["attributes of " + name] = callables(vars(sys.modules[name])) if name in sys.modules else None
for name, value in session.items() if is_session else ():
    if not name.startswith("_"):  # the history of blocks
        found["value of " + name] = id(value)
print(json.dumps(found))
"""
PLACES = ["/tmp", "/dev/shm", "/workspace"]
MOST_GROWN_BYTES = 24 << 20
"""How much more memory than at its start the processes of a sandbox may take together, because a case needs the rest."""


@dataclass
class Sandbox:
    """A running sandbox and what it was at its start.

    Args:
        executor: Its executor.
        work_dir: The folder kept in step with its workspace.
        state: What `COMPARE` has found in it.
        pid_one: The supervisor's number on the host.
        processes: How many processes it had.
        memory: Bytes that they took.
    """

    executor: SandboxCodeExecutor
    work_dir: Path
    state: dict[str, Any]
    pid_one: int | None
    processes: int
    memory: int

    @classmethod
    async def observe(
        cls, executor: SandboxCodeExecutor, work_dir: Path, pid_one: int | None, namespaces: Collection[int]
    ) -> "Sandbox":
        """Look at a sandbox that nobody has attacked."""
        state = await compare(executor, None)
        return cls(executor, work_dir, state, pid_one, len(processes_in(namespaces)), memory_of(namespaces))

    async def difference(self, namespaces: Collection[int]) -> str:
        """Clear the sandbox, and return what is not as it was at its start, or an empty text."""
        try:
            now = await compare(self.executor, self.state)
        except (AssertionError, SandboxError, ValueError) as error:
            return f"{type(error).__name__}: {error}"[:500]
        if different := [name for name, before in self.state.items() if before != now[name]]:
            return ", ".join(different)
        for path in self.work_dir.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

        def more() -> dict[str, set[str]]:
            found = processes_in(namespaces)
            return {"processes": found} if len(found) > self.processes else {}

        if await eventually_empty(more, 1.0):
            return "processes"
        return "memory" if memory_of(namespaces) > self.memory + MOST_GROWN_BYTES else ""


async def compare(executor: SandboxCodeExecutor, given: dict[str, Any] | None) -> dict[str, Any]:
    """Run `COMPARE`.

    Args:
        executor: Of the sandbox.
        given: What it has found at the sandbox's start; with it, what is new is removed first.
    """
    executor.sandbox.timeout = 10
    known = {name: given[name] for name in ("names", "files", "modules")} if given else None
    names = f"'given': {known!r}, 'places': {PLACES!r}, 'is_session': {executor.sandbox.options.mode == 'session'}"
    result = await run(executor, f"exec({COMPARE!r}, {{'session': globals(), {names}}})")
    assert (result.outcome, result.state) == ("ok", "kept"), result
    found: dict[str, Any] = json.loads(result.output)
    return found


def memory_of(namespaces: Collection[int]) -> int:
    """Bytes of memory that the processes of pid namespaces take, where each counts its part of what they share."""
    total = 0
    for process in processes_in(namespaces):
        with suppress(OSError):
            lines = Path(f"/proc/{process.partition(':')[0]}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


class Shared:
    """The sandboxes of a module's cases, by their kind and limits.

    Args:
        folder: Where their work folders are made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._free: dict[str, Sandbox] = {}
        self._made = 0

    def new_work_dir(self) -> Path:
        """A folder that does not exist yet."""
        self._made += 1
        return self._folder / str(self._made)

    def take(self, kind: str) -> Sandbox | None:
        """Hand out a sandbox if there is one."""
        return self._free.pop(kind, None)

    def give_back(self, kind: str, sandbox: Sandbox) -> None:
        """Keep a sandbox for the next case."""
        self._free[kind] = sandbox

    def namespaces(self) -> set[int]:
        """The pid namespaces of those that wait for a case; one may get its checkpoint ready while another case runs."""
        found = set()
        for sandbox in self._free.values():
            with suppress(OSError):
                found.add(os.stat(f"/proc/{sandbox.pid_one}/ns/pid").st_ino)
        return found

    async def stop(self) -> None:
        """Stop those that are left."""
        while self._free:
            await asyncio.wait_for(self._free.popitem()[1].executor.stop(), 30)
