"""Executors whose sandbox is reset after a test, and used again by another test of the same process.

To start and stop a container takes a third of a second of processor time, a reset some milliseconds. The pools stop at the end of
the tests, and before tests that count the processes of all sandboxes: `tests/conftest.py`.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox import AsyncSandbox
from codeact_sandbox import backend_selection as select
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.managed_sandbox import ManagedSandbox
from codeact_sandbox.pool import UNFIT, SandboxPool
from codeact_sandbox.tools.approval import ApproveTool
from codeact_sandbox.tools.broker import ToolBroker
from codeact_sandbox.toolset import Toolset
from codeact_sandbox.types.limits import ToolLimits
from tests.sandbox.bubblewrapped import descendants

Kind = TypeVar("Kind", DockerCommandLineCodeExecutor, BubblewrapCommandLineCodeExecutor)
Loaded = TypeVar("Loaded", bound=SandboxCodeExecutor)
Found = dict[str, set[str]]

MOST_IDLE = 12
"""Sandboxes of this process that wait for a test; when there are more, the pools that were used least stop."""
MAX_USES = 10_000
RESET_TIMEOUT_S = 10.0
"""Longer than the product's, so that fewer sandboxes are started on a machine under load."""
SETTLED_S = 40.0
ENGINE_VARIABLES = (
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "HOME"),
    *("DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"),
)
OWN_SANDBOX = {
    *("allow_domains", "allow_pip", "auto_remove", "data", "docker_host", "extra_hosts", "extra_volumes", "hosts"),
    *("image", "packages", "python", "readable", "secrets", *UNFIT),
}
"""Options that hardly two tests share, or that hold on to something of the test."""


def executor(kind: type[Kind], **options: Any) -> Kind:
    """Make an executor, not started, that uses a sandbox of an earlier test again if its options allow that.

    The sandbox is not among the leftovers that tests look for. It is nothing for tests of starts, ends, names and containers, or
    of the memory and the numbers of processes that a sandbox has which nobody has used.
    """
    made = kind(**options)
    if "progress" in options or not _can_share(made.sandbox):
        return made
    return kind(**options, pool=_pool_for(made.sandbox))


def fixture(*modes: str, **options: Any) -> Any:
    """Make a fixture: an executor with Docker that all tests of a module share, in each of the modes if there are some."""

    @pytest_asyncio.fixture(scope="module", loop_scope="module", params=modes or None)
    async def shared(
        request: pytest.FixtureRequest, sandbox_image: str
    ) -> AsyncIterator[DockerCommandLineCodeExecutor]:
        chosen = {**options, "mode": request.param} if modes else options
        async with executor(DockerCommandLineCodeExecutor, **chosen) as started:
            yield started

    return shared


def executor_with_tools(
    kind: type[Kind], tools: Sequence[Any], *, approve_tool: ApproveTool | None = None, **options: Any
) -> Kind:
    """Make such an executor with tools; in session mode they are added before its start.

    Each block brings them then, as those of an agent, so that tests with other tools can use the sandbox. Give `tools` to
    `executor` where a session must know its tools from the start. In process mode a sandbox is not reset after that.
    """
    if options.get("mode") != "session":
        return executor(kind, tools=tools, approve_tool=approve_tool, **options)
    made = executor(kind, **options)
    made.add_tools(tools, approve_tool)
    return made


def sandbox(backend: str, **options: Any) -> AsyncSandbox:
    """Make a sandbox, not started, in the same way."""
    made = ManagedSandbox(backend, **options)  # type: ignore[arg-type]
    if "progress" in options or not _can_share(made):
        return AsyncSandbox(backend, **options)  # type: ignore[arg-type]
    return AsyncSandbox(backend, **options, pool=_pool_for(made))  # type: ignore[arg-type]


def loaded(made: Loaded) -> Loaded:
    """Let an executor that was loaded from a configuration, and not started, use such a sandbox, too; return it."""
    if _can_share(made.sandbox):
        made.sandbox._pool = _pool_for(made.sandbox)
    return made


def _can_share(made: ManagedSandbox) -> bool:
    """Return whether its sandbox can be reset, and there will be others like it."""
    if made._pool is not None or engine_variables() != _first_engine:
        return False
    values, defaults = made.options.values(), type(made.options)().values()
    if any(values[name] != defaults[name] for name in OWN_SANDBOX & values.keys()):
        return False
    if any(value.host_name is not None for value in made.options.variables.values()):
        return False
    try:
        select.check_reusable(made.options)
    except ValueError:
        return False
    return True


class _Pool(SandboxPool):
    """A pool that starts with its first use."""

    def __init__(self, like: ManagedSandbox) -> None:
        super().__init__(0, backend=like.options, tools=_tools_with(like.tools.broker.settings()), max_uses=MAX_USES)
        self.uses = 0

    async def acquire(self) -> RunnerClient:
        await self.start()
        self.uses += 1
        # The last one in `_pools` is the one that was used last.
        with suppress(ValueError):
            _pools.remove(self)
        _pools.append(self)
        await _stop_unused(MOST_IDLE)
        return await super().acquire()

    async def _start_one(self) -> RunnerClient:
        before = descriptors()
        client = await super()._start_one()
        _clients.append((client, client.requests.connection, descriptors() - before))
        return client


class _Settings(ToolBroker):
    """The settings of some tools, without what they refer to in a test."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__((), ToolLimits())
        self._settings = dict(settings)

    def settings(self) -> dict[str, Any]:
        return self._settings


def _tools_with(settings: Mapping[str, Any]) -> Toolset:
    tools = Toolset()
    tools.broker = _Settings(settings)
    return tools


# Pools by what their sandboxes have in common; those that run, the one that was used last at the end.
_by_shape: dict[str, _Pool] = {}
_pools: list[_Pool] = []
# All sandboxes that were started, with their connection, and the descriptors that were opened meanwhile.
_clients: list[tuple[RunnerClient, Any, set[str]]] = []


def engine_variables() -> tuple[str | None, ...]:
    """The values of the variables that decide which engine is used."""
    return tuple(map(os.environ.get, ENGINE_VARIABLES))


_first_engine = engine_variables()


def _pool_for(like: ManagedSandbox) -> _Pool:
    values = {name: value.value for name, value in like.options.variables.items()}
    shape = repr((like.options.backend, values, sorted(like.options.shape().items()), like.tools.broker.settings()))
    return _by_shape.setdefault(shape, _Pool(like))


async def _stop_unused(most_idle: int) -> None:
    """Stop pools of which no sandbox is in use until few sandboxes are idle.

    Those with few uses come first: most are for options that hardly another test has, and many tests use those without options.
    """
    for pool in sorted(_pools[:-1], key=lambda each: each.uses):
        if sum(each.idle for each in _pools) <= most_idle:
            break
        if pool.leased == 0 and pool in _pools:  # another start may have stopped it meanwhile
            _pools.remove(pool)
            await pool.stop()


def stop() -> None:
    """Stop all of them; further executors start new ones."""

    async def stop_all() -> None:
        await asyncio.gather(*(pool.stop() for pool in _pools))

    if _pools:
        thread = threading.Thread(target=lambda: asyncio.run(stop_all()))
        thread.start()
        thread.join()
    for each in (_pools, _by_shape, _clients):
        each.clear()  # type: ignore[attr-defined]


def settle() -> None:
    """Wait for resets and ends that run, so that they are no part of what the next tests see."""
    until = time.monotonic() + SETTLED_S
    while any(not (held.idle or held.leased) for held in _held().values()) and time.monotonic() < until:
        time.sleep(0.002)


async def is_kept(name: str) -> bool:
    """Whether a sandbox whose use has ended waits for another one; until its reset is over, or its end, this waits."""
    until = time.monotonic() + SETTLED_S
    pause = 0.002
    while (held := _held().get(name)) is not None and time.monotonic() < until:
        if held.idle:
            return True
        await asyncio.sleep(pause)
        pause = min(1.5 * pause, 0.05)
    return False


def containers() -> set[str]:
    """The names of the sandboxes that the pools have."""
    return set(_held())


def parents() -> set[int]:
    """The processes of the host below which all those of the pools' bubblewrap sandboxes are."""
    processes = (getattr(client._launcher, "_process", None) for client, _, _ in _present())
    return {process.pid for process in processes if process is not None and process.returncode is None}


def processes() -> set[int]:
    """All these processes."""
    roots = parents()
    return roots.union(*map(descendants, roots))


def _held() -> dict[str, Any]:
    return {
        held.sandbox.name: held
        for pool in _pools
        if pool._manager is not None
        for held in list(pool._manager._sandboxes)
    }


def _present() -> list[tuple[RunnerClient, Any, set[str]]]:
    """Those of `_clients` that the pools still have, or are about to have."""
    names = _held()
    gone = [each for each in _clients if each[0].name not in names and not each[1]._thread.is_alive()]
    for each in gone:
        _clients.remove(each)
    return [each for each in _clients if each[0].name in names]


def without(found: Found) -> Found:
    """Return what a test has found, as `tests.abuse.oracles.leftovers` has it, without what belongs to reused sandboxes."""
    if not _pools:
        return found
    present = _present()
    names = {client.name for client, _, _ in present}
    threads = {id(pool._manager._thread) for pool in _pools if pool._manager is not None}
    threads |= {id(connection._thread) for _, connection, _ in present}
    pids = processes() if found.get("children") else set[int]()
    opened = set[str]().union(*(each for _, _, each in present))
    own: dict[str, Callable[[str], bool]] = {
        "containers": names.__contains__,
        "threads": lambda thread: int(thread.rpartition(" ")[2], 16) in threads,
        "descriptors": opened.__contains__,
        "children": lambda child: int(child.partition(":")[0]) in pids,
        "control groups": lambda path: path.rpartition("/")[2].rpartition(".")[0] in names,
    }
    return {
        kind: {each for each in each_kind if not (kind in own and own[kind](each))} for kind, each_kind in found.items()
    }


def descriptors() -> set[str]:
    """What this process has open: numbers, and what they stand for."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            # Of another process it is another one, though it may have the same number.
            found.add(f"{name} -> {target}{_process_of(name) if target.endswith('[pidfd]') else ''}")
    return found


def _process_of(descriptor: str) -> str:
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    return next((f" {line}" for line in lines if line.startswith("Pid:")), "")
