"""E. Host faults, 70 to 73: the client dies or cancels, a network breaks, and what is left is found."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.executors import DockerCommandLineCodeExecutor, SandboxDied, SandboxTimeout
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.backends.docker import stream
from codeact_sandbox.backends.docker.leftovers import KEEP, KIND, LIFE, OWNER, SANDBOX
from codeact_sandbox.types.options import DEFAULT_IMAGE
from tests.sandbox.sandboxes import out, pause_container, run

from .engine_proxy import EngineProxy, engine_proxy
from .faults import begin, client, engine, eventually, exists, rest
from .oracles import sandboxes
from .subject import Kind

pytestmark = pytest.mark.usefixtures("docker_engine", "untouched")


@pytest.fixture
def network() -> Iterator[EngineProxy]:
    """The engine behind a network that can break."""
    with engine_proxy(network=True) as made:
        yield made


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
            executor.sandbox.client.requests.grace_s = 2.0  # as it is, 10
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


KINDS = [Kind("docker", "process"), Kind("bubblewrap", "process")]
BEFORE_IT_IS_GONE_S = 30.0


@pytest.fixture
def executor(kind: Kind, tmp_path: Path) -> SandboxCodeExecutor:
    """One of each kind, with a folder to keep in step; it has not been started."""
    return kind.make(work_dir=tmp_path / "work", timeout=30)


async def works_again(executor: SandboxCodeExecutor) -> None:
    """Whatever was cancelled, the executor serves the next block."""
    async with executor:
        assert await out(executor, "print('again')") == "again\n"


# Case 72.
@pytest.mark.timeout(150)
async def test_cancel_while_the_engine_is_busy_waits_until_the_half_made_container_is_gone(proxy):
    """The executor starts again after each of them."""
    executor = DockerCommandLineCodeExecutor(docker_host=proxy.address)
    for step in ("create", "attach", "start"):
        rule = proxy.on("POST", f"/{step}", "hold answer", times=1)
        starting = asyncio.ensure_future(executor.start())
        assert await asyncio.to_thread(rule.seen.wait, 20), step
        name = executor.container_name
        await eventually(lambda: exists(name))  # noqa: B023
        starting.cancel()
        await asyncio.sleep(0.3)
        # It has something to clear away first.
        assert not starting.done(), step
        rule.release()
        await asyncio.wait({starting}, timeout=BEFORE_IT_IS_GONE_S)
        assert starting.cancelled(), step
        assert not exists(name), step
    await works_again(executor)


# Case 72.
async def test_cancel_while_the_engine_hangs_is_bounded_and_the_container_goes_when_it_answers(proxy, monkeypatch):
    monkeypatch.setattr("codeact_sandbox.host.client.CANCEL_TIMEOUT_S", 1.0)
    rule = proxy.on("POST", "/create", "hold answer", times=1)
    executor = DockerCommandLineCodeExecutor(docker_host=proxy.address)
    starting = asyncio.ensure_future(executor.start())
    assert await asyncio.to_thread(rule.seen.wait, 20)
    await eventually(lambda: exists(executor.container_name))
    starting.cancel()
    await asyncio.wait({starting}, timeout=4)
    assert starting.cancelled()
    name = executor.container_name
    assert exists(name)
    rule.release()
    await eventually(lambda: not exists(name))
    await works_again(executor)


# Case 72.
@pytest.mark.timeout(150)
@pytest.mark.parametrize("delays", [[0, 0.003, 0.01, 0.03], [0.1, 0.2, 0.3, 0.5]], ids=["early", "late"])
@pytest.mark.parametrize("kind", KINDS, ids=str, indirect=True)
async def test_cancel_during_start_leaves_nothing(executor: SandboxCodeExecutor, delays: list[float]) -> None:
    """The executor starts again after each of them; what is wrong with it then shows in the last one, too."""
    before = sandboxes()
    for delay in delays:
        starting = asyncio.ensure_future(executor.start())
        await asyncio.sleep(delay)
        starting.cancel()
        await asyncio.wait({starting}, timeout=BEFORE_IT_IS_GONE_S)
        if not starting.cancelled():
            await executor.stop()
        assert sandboxes() <= before, delay
    await works_again(executor)


# Case 72.
async def test_cancel_during_stop_stops_all_the_same(executor: SandboxCodeExecutor) -> None:
    before = sandboxes()
    await executor.start()
    assert sandboxes() > before
    stopping = asyncio.ensure_future(executor.stop())
    await asyncio.sleep(0.005)
    stopping.cancel()
    await asyncio.wait({stopping}, timeout=BEFORE_IT_IS_GONE_S)
    await eventually(lambda: sandboxes() <= before)
    await works_again(executor)


# Case 73.
@pytest.mark.parametrize("kind", KINDS, ids=str, indirect=True)
async def test_stops_before_a_start_again_and_at_once(executor: SandboxCodeExecutor) -> None:
    before = sandboxes()
    await executor.stop()
    await executor.start()
    assert sandboxes() > before
    await asyncio.gather(*(executor.stop() for _ in range(8)))
    await executor.stop()
    await asyncio.gather(executor.start(), executor.stop(), executor.start(), executor.stop())
    await eventually(lambda: sandboxes() <= before)


# Case 73.
@pytest.mark.parametrize("kind", KINDS, ids=str, indirect=True)
async def test_a_stop_while_a_block_runs(executor: SandboxCodeExecutor) -> None:
    running = await begin(executor)
    await executor.stop()
    with pytest.raises(SandboxDied, match="stopped"):
        await rest(running)
