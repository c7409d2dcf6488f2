"""E. Host faults, 72 and 73: cancelled or stopped while it is created, started, filled, run, or stopped."""

import asyncio
from pathlib import Path

import pytest

from autogen_codeact.executors import DockerCommandLineCodeExecutor, SandboxDied
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.host import client
from tests.sandbox.sandboxes import out

from .faults import begin, eventually, exists, must_cancel, rest
from .oracles import sandboxes
from .subject import Kind

pytestmark = pytest.mark.usefixtures("docker_engine", "untouched")

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
    monkeypatch.setattr(client, "CANCEL_TIMEOUT_S", 1.0)
    rule = proxy.on("POST", "/create", "hold answer", times=1)
    executor = DockerCommandLineCodeExecutor(docker_host=proxy.address)
    starting = asyncio.ensure_future(executor.start())
    assert await asyncio.to_thread(rule.seen.wait, 20)
    await eventually(lambda: exists(executor.container_name))
    await must_cancel(starting)
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
