"""The oracles themselves: each must notice what it is there for, or the suite proves nothing."""

import asyncio
import os
import socket
import time
from contextlib import closing

import pytest

from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.leftovers import owner_labels
from codeact_sandbox.types.options import DEFAULT_IMAGE

from . import oracles
from .canaries import Canaries
from .faults import eventually
from .lag import MOST_EXCESS_S, LoopLag
from .oracles import HostState, processes_in
from .subject import Subject, each_engine, in_process_mode


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracles, "CLEARING_UP_S", 0.1)


@pytest.mark.usefixtures("docker_engine")
async def test_what_is_left_behind_is_noticed(canaries: Canaries) -> None:
    host = HostState.observe(canaries)
    await host.check(())
    with closing(connect()) as client:
        container = client.create_container(DEFAULT_IMAGE, ["true"], labels=owner_labels())
        try:
            with pytest.raises(AssertionError, match="containers"):
                await host.check(())
        finally:
            client.remove_container(container, force=True)


async def test_a_connection_to_a_port_is_noticed(canaries: Canaries) -> None:
    host = HostState.observe(canaries)
    socket.create_connection(("127.0.0.1", canaries.tcp_port), timeout=5).close()
    with pytest.raises(AssertionError, match="SOCK_STREAM"):
        await host.check(())


async def test_a_touched_file_is_noticed(canaries: Canaries) -> None:
    host = HostState.observe(canaries)
    status = canaries.file.stat()
    os.utime(canaries.file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(AssertionError, match=r"canary\.txt"):
        await host.check(())


async def test_memory_of_this_process_is_noticed(canaries: Canaries) -> None:
    host = HostState.observe(canaries)

    ballast = b"\1" * (2 * oracles.OWN_MEMORY_BYTES)
    with pytest.raises(AssertionError, match="this process's memory has grown"):
        await host.check(())
    del ballast
    # Also when it is given back before anybody looks, and also when another case has had as much before.
    for _ in range(2):
        host = HostState.observe(canaries)
        await host.check(())
        assert b"\1" * (2 * oracles.OWN_MEMORY_BYTES)
        with pytest.raises(AssertionError, match="this process's memory has grown"):
            await host.check(())


@each_engine
async def test_what_a_sandbox_has_written_to_the_disk_is_noticed(subject: Subject) -> None:
    await subject.start()
    subject.check_little_is_written()
    with (subject.work_dir / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 2 * oracles.WRITTEN_BYTES)
    with pytest.raises(AssertionError, match="work takes"):
        subject.check_little_is_written()
    (subject.work_dir / "ballast").unlink()


@pytest.mark.parametrize("claim", [True, False])
async def test_a_wrong_state_in_a_result_is_noticed(subject: Subject, claim: bool) -> None:
    await subject.start()
    if not claim:
        await subject.run(
            "import os; del codeact_witness" if subject.session else f"import os; os.remove({'/tmp/.witness'!r})"
        )
    subject._lost = claim
    with pytest.raises(AssertionError):
        await subject.check_next_block()
    subject._lost = False
    await subject.run("codeact_witness = 'set'; open('/tmp/.witness', 'w').close()")


@in_process_mode
async def test_a_process_that_outlives_its_block_is_noticed(subject: Subject) -> None:
    code = """
        import os, subprocess, time
        subprocess.Popen(['sleep', '60'])
        while not os.path.exists("/tmp/end"):
            time.sleep(0.01)
    """
    await subject.start()
    running = asyncio.ensure_future(subject.run(code))
    await eventually(lambda: any("sleep" in each for each in processes_in(subject.namespaces)))
    with pytest.raises(AssertionError, match="sleep"):
        await subject.check_nothing_runs_on()
    await subject.out("open('/tmp/end', 'w').close()")
    assert (await running).outcome == "ok"


async def test_a_stall_is_noticed() -> None:
    async with LoopLag() as lag:
        await asyncio.sleep(0.05)
        time.sleep(0.5)  # noqa: ASYNC251 - it is what must be noticed
    assert 0.4 < lag.largest_s < 5
    assert lag.excess_s > MOST_EXCESS_S
