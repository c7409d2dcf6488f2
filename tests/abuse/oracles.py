"""Oracles 4 and 5: what is left behind, and whether the host is untouched."""

import asyncio
import contextlib
import gc
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import docker.errors
import requests.exceptions

from autogen_codeact.executors import SandboxUnavailable
from codeact_sandbox.backends.bubblewrap.cgroups import PARENT
from codeact_sandbox.backends.docker import engine

from .canaries import Canaries, Mark

MIB = 1024 * 1024
# What may grow in one case. Floods write more than these, so that what is kept of one would show.
OWN_MEMORY_BYTES = 32 * MIB
WRITTEN_BYTES = 8 * MIB
CLEARING_UP_S = 15.0
"""How long what a case has used may take to go; a machine under load needs that long to end threads."""
TEST_FOLDER = "codeact-kept-by-test-"
"""What the names of folders begin with that a test in another process keeps in /dev/shm meanwhile."""


@dataclass
class HostState:
    """The host before a case; `check` compares it with the one after.

    Args:
        canaries: The canaries.
        marks: Their files.
        left: What a case could leave behind, by kind.
        tasks: The tasks of its event loop, if it runs.
        resident: Bytes of memory that this process has; their peak counts from here on.
    """

    canaries: Canaries
    marks: dict[str, Mark]
    left: dict[str, set[str]]
    tasks: set[asyncio.Task[Any]]
    resident: int

    @classmethod
    def observe(cls, canaries: Canaries) -> Self:
        """Look at the host."""
        canaries.heard()
        # What garbage still holds may go later; it takes as long to look for garbage as for all else.
        marks, left = canaries.marks(), present()
        return cls(canaries, marks, left, running_tasks(), forget_peak())

    def expect(self, pid: int) -> None:
        """Expect a child process of the tests themselves, which may have been started again since `observe`."""
        self.left["children"].add(_described(pid))

    async def check(self, namespaces: Collection[int], kept: int = 0) -> None:
        """Assert that nothing is left and the host is untouched.

        Args:
            namespaces: The pid namespaces that the case's sandboxes had, without those that other cases will have.
            kept: Bytes of files that come to the host because they should; they pass through its memory.
        """
        await self.check_left(namespaces)
        knocks = self.canaries.heard()
        assert not knocks, f"knocked on the host's ports: {knocks}"
        after = self.canaries.marks()
        touched = {path for path in self.marks | after if self.marks.get(path) != after.get(path)}
        assert not touched, f"touched on the host: {touched}"
        grown = peak_memory() - self.resident
        assert grown < OWN_MEMORY_BYTES + kept, f"this process's memory has grown by {grown} bytes"

    async def check_left(self, namespaces: Collection[int]) -> None:
        """Assert that nothing is left of what used some pid namespaces."""
        left = await eventually_empty(lambda: self._left(namespaces))
        assert not left, f"left behind: {left}"

    def _left(self, namespaces: Collection[int]) -> dict[str, set[str]]:
        if not self._more_than_before(namespaces):
            return {}
        gc.collect()  # it takes as long as all else, and garbage may hold what is left
        return self._more_than_before(namespaces)

    def _more_than_before(self, namespaces: Collection[int]) -> dict[str, set[str]]:
        now = present()
        left = {kind: now[kind] - self.left[kind] for kind in now}
        left["processes of the sandbox"] = processes_in(namespaces)
        left["tasks"] = {str(task) for task in running_tasks() - self.tasks - {asyncio.current_task()}}
        return {kind: found for kind, found in left.items() if found}


def empty_in_time(look: Callable[[], dict[str, set[str]]], seconds: float | None = None) -> dict[str, set[str]]:
    """What is still found when time for clearing up is over; blocks meanwhile."""
    found = look()
    for pause in _pauses(seconds):
        if not found:
            break
        time.sleep(pause)
        found = look()
    return found


async def eventually_empty(
    look: Callable[[], dict[str, set[str]]], seconds: float | None = None
) -> dict[str, set[str]]:
    """What is still found when time for clearing up is over."""
    found = look()
    for pause in _pauses(seconds):
        if not found:
            break
        await asyncio.sleep(pause)
        found = look()
    return found


def _pauses(seconds: float | None) -> Iterator[float]:
    """Yield how long to wait before the next look, in seconds, until time for clearing up is over."""
    until, pause = time.monotonic() + (CLEARING_UP_S if seconds is None else seconds), 0.02
    while time.monotonic() <= until:
        yield pause
        # To look takes processor time, which what is to go may be waiting for.
        pause = min(1.5 * pause, 0.5)


def running_tasks() -> set[asyncio.Task[Any]]:
    """The tasks of this thread's event loop, if it runs."""
    with contextlib.suppress(RuntimeError):
        return asyncio.all_tasks()
    return set()


def leftovers() -> dict[str, set[str]]:
    """What is `present` without garbage."""
    gc.collect()
    return present()


def present() -> dict[str, set[str]]:
    """Everything of ours on this machine that a case could leave behind; not the sandboxes that other cases will have."""
    found = {
        "containers": containers(),
        "threads": threads(),
        "temporary files": {str(path) for path in Path(tempfile.gettempdir()).iterdir()},
        "shared memory": {str(path) for path in Path("/dev/shm").iterdir() if not path.name.startswith(TEST_FOLDER)},
        "system V memory": system_v(),
        "descriptors": descriptors(),
        "control groups": control_groups(),
    }
    # Here without one more listing of all processes for each sandbox.
    return {**found, "children": set(map(_described, children()))}


def control_groups(pid: int | None = None) -> set[str]:
    """The control groups that a process has made for bubblewrap; others' come and go meanwhile.

    They are looked for where a process may make some: beside its own groups and those above them.
    """
    own = f"-{pid or os.getpid()}-"
    places = {line.rstrip().split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines()}
    above = {str(each) for place in places for each in (Path(place), *Path(place).parents)}
    found = set()
    with os.scandir("/sys/fs/cgroup") as entries:
        roots = ["/sys/fs/cgroup", *(entry.path for entry in entries if entry.is_dir())]
    for folder in (f"{root}{place.rstrip('/')}/{PARENT}" for root in roots for place in above):
        with contextlib.suppress(OSError):
            found |= {f"{folder}/{name}" for name in os.listdir(folder) if own in name}
    return found


_engines = threading.local()
ENGINE_VARIABLES = (
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "HOME"),
    *("DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"),
)
"""They decide which engine is used."""


def known_engine() -> docker.APIClient:
    """Return a client of the engine, one for each thread, to use with `closing`, which ends its connections only.

    To make one, and to ask the engine for its version, takes longer than a request.
    """
    variables = tuple(map(os.environ.get, ENGINE_VARIABLES))
    known: dict[Any, docker.APIClient] = _engines.__dict__.setdefault("clients", {})
    if variables not in known:
        known[variables] = engine.connect()
        # It would look for proxies in the environment with each request.
        known[variables].trust_env = False
    return known[variables]


def containers() -> set[str]:
    """The sandboxes of this process, in whatever state; not those that other cases will have."""
    try:
        with closing(known_engine()) as client:
            owner = f"org.autogen-codeact.owner={socket.gethostname()}:{os.getpid()}"
            found = client.containers(all=True, filters={"label": [owner, "org.autogen-codeact.kind=sandbox"]})
            return {container["Names"][0].lstrip("/") for container in found}
    except (SandboxUnavailable, docker.errors.DockerException, requests.exceptions.RequestException):
        return set()


def sandboxes() -> set[str]:
    """What the sandboxes of this process consist of; not those that other cases will have."""
    groups = control_groups()
    return containers() | groups | set(map(str, children()))


def threads() -> set[str]:
    """The threads of this process that the package has started."""
    # Not its `str`, which changes when it starts and ends.
    return {f"{each.name} {id(each):#x}" for each in threading.enumerate() if each.name.startswith("codeact-")}


def descriptors() -> set[str]:
    """What this process has open, without the subject's own hold on its namespaces: numbers, and what they stand for."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if not target.startswith("pid:"):
                # Of another process it is another one, though it may have the same number.
                found.add(f"{name} -> {target}{_process_of(name) if target.endswith('[pidfd]') else ''}")
    return found


def _process_of(descriptor: str) -> str:
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    return next((f" {line}" for line in lines if line.startswith("Pid:")), "")


def system_v() -> set[str]:
    """Shared memory, semaphores and queues of the host, by key and id."""
    found = set()
    for kind in ("shm", "sem", "msg"):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]
            found |= {f"{kind} {' '.join(line.split()[:2])}" for line in lines}
    return found


def forget_peak() -> int:
    """Bytes of memory that this process has; from here on their peak counts anew, so that each case has its own."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


def peak_memory() -> int:
    """The most bytes of memory that this process has had since `forget_peak`."""
    return _kib("/proc/self/status", "VmHWM")


def _kib(path: str, field: str) -> int:
    line = next(line for line in Path(path).read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def written_in(folder: Path) -> int:
    """Bytes of disk that a folder takes."""
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found += os.lstat(os.path.join(place, name)).st_blocks * 512
    return found


def written_layer(container: str) -> int:
    """Bytes that a container has written to the engine's own disk, beside what its image has."""
    with closing(known_engine()) as client:
        found = client.containers(all=True, size=True, filters={"name": f"^/{container}$"})
        return sum(each.get("SizeRw", 0) for each in found)


def processes_in(namespaces: Collection[int], first: int | None = None) -> set[str]:
    """Living processes of pid namespaces, as the host sees them."""
    found = set[str]()
    if not namespaces:
        return found
    for name in filter(str.isdigit, os.listdir("/proc")) if first is None else {first, *descendants(first)}:
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}/ns/pid").st_ino in namespaces:
                found.add(_described(int(name)))
    return found


def _described(pid: int) -> str:
    return f"{pid}: {_name(pid)}"


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")[:80].decode("utf-8", "replace")
    except OSError:
        return "gone"


def children() -> set[int]:
    """All processes below this one; not those of sandboxes that other cases will have."""
    return descendants(os.getpid())


def descendants(pid: int, without: Collection[int] = ()) -> set[int]:
    """All processes below one, zombies included."""
    found, todo = set[int](), {pid}
    while todo:
        below = set[int]().union(*map(_children_of, todo))
        todo = below.difference(without, found)
        found |= todo
    return found


def _children_of(pid: int) -> set[int]:
    """A process's children, whichever of its threads has started them; none where it has ended."""
    found = set[int]()
    # Plain calls, because each case does this several times.
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return found
    for thread in threads:
        try:
            children = os.open(f"/proc/{pid}/task/{thread}/children", os.O_RDONLY)
        except (FileNotFoundError, ProcessLookupError):
            if os.path.exists(f"/proc/{pid}/task/{thread}"):
                raise
            continue
        try:
            while listed := os.read(children, 65536):
                found.update(map(int, listed.split()))
        except ProcessLookupError:
            continue
        finally:
            os.close(children)
    return found
