"""The sandbox that a case attacks; it keeps the deadline (oracle 1) and looks whether life goes on (oracle 3)."""

import asyncio
import contextlib
import os
import time
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken
from docker.errors import NotFound, NullResource

from autogen_codeact.executors import DockerCommandLineCodeExecutor, ExecutionResult, Limits, SandboxError
from autogen_codeact.executors.bubblewrap import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.host.client import RunnerClient
from tests.sandbox.bubblewrapped import supervisors
from tests.sandbox.sandboxes import block

from .canaries import Canaries
from .lag import MOST_EXCESS_S, Control, LoopLag
from .oracles import (
    MIB,
    WRITTEN_BYTES,
    HostState,
    eventually_empty,
    known_engine,
    processes_in,
    written_in,
    written_layer,
)

GRACE_S = 9.0
"""How long beyond a block's own deadline its result may take, whatever the code did, in seconds; after 10 the host gives up."""

TIMEOUT_S = 10.0
SMALL = Limits(memory="256m", pids=64, nofile=256, workspace="16m", tmp="16m", files=2000, output=64 * 1024)
WITNESS = "/tmp/.witness"
LOOK = f"""
    import os
    print(globals().get("codeact_witness"), os.path.exists({WITNESS!r}) and "there")
"""
# Supervisor, zygote, and the process that waits for the next block, or the session.
AT_REST = 3


@dataclass(frozen=True)
class Kind:
    """An executor in one of its modes."""

    engine: str
    mode: str

    def __str__(self) -> str:
        return f"{self.engine}-{self.mode}"

    @property
    def session(self) -> bool:
        """Whether its blocks share an interpreter."""
        return self.mode == "session"

    def make(self, **options: Any) -> SandboxCodeExecutor:
        """Make the executor, which has not been started."""
        made: SandboxCodeExecutor = self.executor(mode=self.mode, **{"timeout": 30, **options})
        return made

    @property
    def executor(self) -> Any:
        """The class of the executor."""
        return DockerCommandLineCodeExecutor if self.engine == "docker" else BubblewrapCommandLineCodeExecutor


SUBJECTS = [Kind(engine, mode) for engine in ("docker", "bubblewrap") for mode in ("process", "session")]
# The host decides: what it answers does not depend on the executor.
one_kind = pytest.mark.parametrize("kind", [Kind("docker", "session")], indirect=True, ids=str)
in_process_mode = pytest.mark.parametrize(
    "kind", [kind for kind in SUBJECTS if kind.mode == "process"], ids=str, indirect=True
)
in_sessions = pytest.mark.parametrize(
    "kind", [kind for kind in SUBJECTS if kind.mode == "session"], ids=str, indirect=True
)
# One cell for each engine, and one for each mode: only where networks, mounts, the filter of system calls or the host's code
# for files decide, which are the same in both modes. Streams, processes, their ends and Landlock's domains are not.
each_engine = pytest.mark.parametrize(
    "kind", [Kind("docker", "session"), Kind("bubblewrap", "process")], indirect=True, ids=str
)


class Subject:
    """One sandbox under attack."""

    def __init__(
        self, request: pytest.FixtureRequest, kind: Kind, canaries: Canaries, control: Control, work_dir: Path
    ) -> None:
        self._request = request
        self.kind = kind
        self.session = kind.session
        self.canaries = canaries
        self.work_dir = work_dir
        self.limits = SMALL
        # Bytes that the host takes in because it should, such as files of the workspace.
        self.kept = 0
        self.namespaces: dict[int, int] = {}
        # The supervisor's number on the host, by namespace.
        self._supervisors: dict[int, int] = {}
        # Seconds for which the case itself blocks the event loop.
        self.own_stall_s = 0.0
        self._control = control
        self._lag_s = 0.0
        self._executor: SandboxCodeExecutor | None = None
        self._lost = False
        # The sandbox that runs now, and its supervisor; the engine is asked once for each.
        self._known: tuple[RunnerClient, int] | None = None
        # The host as it is before the case can do anything; the fixture compares it with what it is afterwards.
        self.host = HostState.observe(canaries)

    @property
    def started(self) -> bool:
        """Whether there is a sandbox to ask."""
        return self._executor is not None

    @property
    def executor(self) -> SandboxCodeExecutor:
        """The executor; `start` or `run` first."""
        assert self._executor is not None
        return self._executor

    async def start(self, options: Mapping[str, Any] | None = None, **limits: Any) -> SandboxCodeExecutor:
        """Start the sandbox and leave a witness in it; `run` does it where nobody has."""
        self.limits = Limits(**{**SMALL.model_dump(), **limits})
        arguments = {"work_dir": self.work_dir, "timeout": TIMEOUT_S, "limits": self.limits, **(options or {})}
        if arguments.get("bind_dir") is not None:
            del arguments["work_dir"]
        self._executor = self.kind.make(**arguments)
        await self._executor.start()
        self.look()
        result = await self.run(f"codeact_witness = 'set'\nopen({WITNESS!r}, 'w').close()", timeout=10)
        assert (result.outcome, result.state) == ("ok", "kept"), result
        self.executor.sandbox.timeout = arguments["timeout"]
        return self.executor

    async def run(self, code: str, language: str = "python", timeout: float = TIMEOUT_S) -> ExecutionResult:
        """Run one block and see that its result comes by its deadline plus `GRACE_S`."""
        if self._executor is None:
            await self.start()
        # The deadline is the executor's, for all blocks; a suite of seconds needs one for each.
        self.executor.sandbox.timeout = timeout
        began = time.monotonic()
        token = CancellationToken()
        running = asyncio.ensure_future(self.executor.execute_code_blocks([block(code, language)], token))
        try:
            async with LoopLag(self._control) as lag:
                await asyncio.wait({running}, timeout=timeout + GRACE_S)
            self._lag_s = max(self._lag_s, lag.excess_s)
            took = time.monotonic() - began
            if not running.done():
                token.cancel()
                await asyncio.wait({running}, timeout=GRACE_S)
                pytest.fail(f"no result {GRACE_S} s after the deadline of {timeout} s")
            result = running.result()
        except SandboxError:
            self._lost = True
            raise
        finally:
            self.look()
        assert took <= timeout + GRACE_S
        self._lost = self._lost or result.state == "lost"
        return result

    async def out(self, code: str, language: str = "python", timeout: float = TIMEOUT_S) -> str:
        """Run one block that must end well, and give its output."""
        result = await self.run(code, language, timeout)
        assert (result.outcome, result.exit_code) == ("ok", 0), result
        return result.output

    def look(self) -> None:
        """Note the pid namespace of the sandbox that runs now."""
        pid = self.pid_one()
        if pid is None:
            return
        try:
            # Held open, so that the kernel does not give its number to another one meanwhile.
            handle = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY)
        except OSError:
            return
        number = os.fstat(handle).st_ino
        # With TEST_RUNTIME=runsc it is the host's: the processes of the code are not the host kernel's.
        if number in self.namespaces or number == os.stat("/proc/self/ns/pid").st_ino:
            os.close(handle)
        else:
            self.namespaces[number] = handle
            self._supervisors[number] = pid

    async def check_host(self) -> None:
        """Oracles 4 and 5: nothing of the sandbox is left, and the host is untouched."""
        self.host.expect(self._control.pid)
        await self.host.check(self.namespaces.keys(), self.kept)

    def forget(self) -> None:
        """Let go of the pid namespaces."""
        while self.namespaces:
            os.close(self.namespaces.popitem()[1])

    def pid_one(self) -> int | None:
        """The supervisor's number on the host, or None where there is none."""
        client = self.executor.sandbox.client
        if client is None:
            return None
        if self._known is None or self._known[0] is not client or not Path(f"/proc/{self._known[1]}").exists():
            pid = _pid_one_of(self.executor)
            self._known = (client, pid) if pid is not None else None
        return self._known[1] if self._known is not None else None

    def may_fail_without_cgroup(self) -> None:
        """Name this case as one that bubblewrap can't hold where this process may make no control group."""
        if self.kind.engine == "bubblewrap" and not self.has_cgroup:
            reason = "bubblewrap without a control group: memory and processor time of the whole are not bounded"
            self._request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

    @property
    def has_cgroup(self) -> bool:
        """Whether a control group bounds the sandbox."""
        if self.kind.engine == "docker":
            return True
        pid = self.pid_one()
        assert pid is not None
        return "autogen-codeact" in Path(f"/proc/{pid}/cgroup").read_text()

    async def check_next_block(self) -> None:
        """Oracle 3: the next block works, and `state` has said truly what became of what was there before."""
        result = await self.run(LOOK, timeout=10)
        assert (result.outcome, result.exit_code) == ("ok", 0), result
        witness = "set" if self.session else "there"
        assert (witness in result.output.split()) is not self._lost, (result, self._lost)
        again = await self.run("print('goes on')", timeout=10)
        assert (again.outcome, again.output, again.state) == ("ok", "goes on\n", "kept")

    async def check_nothing_runs_on(self) -> None:
        """Oracle 4, in process mode: no process outlives its block."""
        if not self.session:
            await self._check_at_rest(self.namespaces)

    async def _check_at_rest(self, namespaces: Collection[int]) -> None:
        # All processes of a namespace are below its supervisor, which adopts orphans; with it, all others die.
        def too_many() -> dict[str, set[str]]:
            found = set[str]().union(*(processes_in({each}, self._supervisors[each]) for each in namespaces))
            return {"processes": found} if len(found) > AT_REST else {}

        left = await eventually_empty(too_many)
        assert not left, f"the code has left {left}"

    def check_little_is_written(self) -> None:
        """Oracle 5, in detail: what this sandbox alone could have filled on the host's disks."""
        folders = written_in(self.work_dir)
        assert folders < WRITTEN_BYTES + self.kept, f"{self.work_dir} takes {folders} bytes"
        if isinstance(self.executor, DockerCommandLineCodeExecutor):
            layer = written_layer(self.executor.container_name)
            assert layer < MIB, f"the container has written {layer} bytes to the engine's disk"

    def check_event_loop(self, what: str = "") -> None:
        """Oracle 6: nothing that the sandbox has sent has stalled the event loop, in any of its blocks."""
        assert self._lag_s < MOST_EXCESS_S + self.own_stall_s, (
            f"the event loop was stalled for {self._lag_s:.3f} s {what}"
        )

    async def end(self) -> None:
        """Stop the sandbox."""
        if self._executor is None:
            return
        await asyncio.wait_for(self._executor.stop(), 30)


def _pid_one_of(executor: SandboxCodeExecutor) -> int | None:
    if isinstance(executor, DockerCommandLineCodeExecutor):
        with closing(known_engine()) as client, contextlib.suppress(NotFound, NullResource):
            return int(client.inspect_container(executor.container_name)["State"]["Pid"]) or None
        return None
    process = getattr(executor.sandbox.client and executor.sandbox.client._launcher, "_process", None)
    return next(iter(supervisors(process.pid)), None) if process is not None else None
