"""E. Host faults, 70 and 71: the client dies, and what it leaves is found; a network breaks without a word."""

import asyncio
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.executors import DockerCommandLineCodeExecutor, SandboxDied, SandboxTimeout
from codeact_sandbox.backends.docker import stream
from codeact_sandbox.backends.docker.leftovers import KEEP, KIND, LIFE, OWNER, SANDBOX
from codeact_sandbox.types.options import DEFAULT_IMAGE
from tests.cases import case
from tests.sandbox.bubblewrapped import alive, open_folder, pid_one
from tests.sandbox.sandboxes import out, pause_container, run

from .engine_proxy import EngineProxy, engine_proxy
from .faults import Client, begin, client, engine, eventually, exists, rest
from .oracles import processes_in
from .subject import Kind

pytestmark = pytest.mark.usefixtures("docker_engine", "untouched")

GONE_S = 30.0
"""In all. Ten seconds are promised; a quiet machine takes two, and one under load starts the other clients meanwhile."""
FLOOD = "import os\nopen('begun', 'w').close()\nwhile True:\n    os.write(1, b'x' * 65536)"
SLEEP = "open('begun', 'w').close()\nimport time\ntime.sleep(60)"
IGNORE = "import signal\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n"
LEAVE = "import subprocess\nfor _ in range(3): subprocess.Popen(['setsid', 'sleep', '600'])\n"
WORK = {
    "nothing": None,
    "sleeps": SLEEP,
    "floods": FLOOD,
    "ignores signals and has left children": LEAVE + IGNORE + LEAVE + SLEEP,
}


@pytest.fixture
def network() -> Iterator[EngineProxy]:
    """The engine behind a network that can break."""
    with engine_proxy(network=True) as made:
        yield made


def pid_of(kind: Kind, other: Client) -> int:
    """The supervisor of another process's sandbox, as this machine counts."""
    if kind.engine == "bubblewrap":
        return pid_one(other.process.pid)
    return int(engine(lambda api: api.inspect_container(other.name))["State"]["Pid"])


# Case 70.
async def test_when_the_client_is_sigkilled_its_sandbox_is_gone_in_time(kind: Kind) -> None:
    """Whatever it does, each kind of work in a client of its own, at the same time."""

    async def check(work: str) -> None:
        executor, code = f"{kind.engine.capitalize()}CommandLineCodeExecutor", WORK[work]
        with case(work), open_folder() as folder:
            folder.chmod(0o777)
            with client(executor, mode=kind.mode, bind_dir=str(folder), timeout=60) as other:
                supervisor = pid_of(kind, other)
                if code is not None:
                    other.send(code)
                    await eventually(Path(folder, "begun").exists, 20)
                namespace = os.stat(f"/proc/{supervisor}/ns/pid").st_ino
                other.kill()
                await eventually(lambda: gone(supervisor, namespace, other), GONE_S)

    def gone(supervisor: int, namespace: int, other: Client) -> bool:
        return not (alive(supervisor) or processes_in({namespace}) or (kind.engine == "docker" and exists(other.name)))

    await asyncio.gather(*map(check, WORK))


class TestLease:
    # Case 70.
    async def test_behind_a_network_that_breaks_silently_the_sandbox_ends_by_itself(self, network, monkeypatch):
        monkeypatch.setattr(stream, "NETWORK_LEASE_S", 2.0)
        executor = DockerCommandLineCodeExecutor(docker_host=network.address, timeout=60)
        running = await begin(executor)
        name = executor.container_name
        network.freeze()
        # The block's own deadline is far off, and nobody here says anything.
        await eventually(lambda: not exists(name), 20)
        network.thaw()
        with pytest.raises(SandboxDied, match="its exit code is 75"):
            await rest(running)
        await executor.stop()

    # Case 70.
    async def test_while_the_network_works_signs_of_life_keep_it_going(self, network, monkeypatch) -> None:
        monkeypatch.setattr(stream, "NETWORK_LEASE_S", 3.0)
        async with DockerCommandLineCodeExecutor(docker_host=network.address, mode="session") as executor:
            await out(executor, "x = 7")
            await asyncio.sleep(4)
            result = await run(executor, "import time; time.sleep(4); x")
            assert (result.value_repr, result.state) == ("7", "kept")

    # Case 70.
    async def test_the_client_behind_a_broken_network_has_a_deadline_too(self, network: EngineProxy) -> None:
        async with DockerCommandLineCodeExecutor(docker_host=network.address, timeout=3) as executor:
            assert executor.sandbox.client is not None
            executor.sandbox.client.blocks._grace_s = 2.0  # as it is, 10
            running = await begin(executor)
            network.freeze()
            began = time.monotonic()
            # It takes the requests that end the container, too: they fail, and the next start tries again.
            ending = asyncio.ensure_future(rest(running))
            await asyncio.sleep(6)
            network.thaw()
            with pytest.raises(SandboxTimeout, match="did not answer within 5 s"):
                await ending
            assert time.monotonic() - began < 5 + 40
            assert (await run(executor, "print(2)")).output == "2\n"


def make(marks: dict[str, str], state: str = "created") -> str:
    """Make a container with these labels."""
    name = f"codeact-case-71-{uuid.uuid4().hex[:8]}"

    def create(api: Any) -> None:
        command = ["true"] if state == "exited" else ["sleep", "60"]
        made = api.create_container(DEFAULT_IMAGE, command, name=name, labels=marks)["Id"]
        if state != "created":
            api.start(made)
        if state == "exited":
            api.wait(made)

    engine(create)
    return name


# Case 71.
async def test_the_sweep_of_a_start_removes_only_ours_whose_owner_is_dead() -> None:
    made: list[str] = []
    try:
        with client() as living, client() as dying:
            # It does not read the end of its stream while it is paused.
            engine(lambda api: pause_container(api, dying.name))
            dead = dying.labels
            # While it runs, the start of any other test would remove it if its owner were dead.
            kept = make({**dead, KEEP: "1"}, "exited")
            made.append(kept)
            dying.kill()
            made += [
                make(dead),
                make(dead, "running"),
                make({**dead, KEEP: "1"}, "running"),  # its user wanted to look at it once it has ended
            ]
            others = [
                make({OWNER: dead[OWNER], LIFE: dead[LIFE]}),  # no sandbox
                make({KIND: SANDBOX, OWNER: "elsewhere:1", LIFE: "unknown"}, "running"),
                make({KIND: SANDBOX}),
                kept,
                make(living.labels),
                make({}),
            ]
            orphans = [dying.name, *(name for name in made if name != kept)]
            made += [*others, dying.name]
            with client() as third:
                await eventually(lambda: not any(exists(name) for name in orphans), 20)
                assert [name for name in (living.name, third.name, *others) if not exists(name)] == []
                # The living one has noticed nothing.
                living.send("print(1)")
                assert living.hear()["output"] == "1\n"
    finally:
        for name in made:
            if exists(name):
                engine(lambda api, name=name: api.remove_container(name, force=True))
