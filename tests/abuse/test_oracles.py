"""The oracles themselves: each must notice what it is there for, or the suite proves nothing."""

import asyncio
import ctypes
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from autogen_codeact.executors import Limits
from codeact_sandbox.backends.bubblewrap.cgroups import Cgroup
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.types.options import DEFAULT_IMAGE

from . import oracles
from .canaries import Canaries
from .faults import eventually
from .oracles import MIB, HostState, processes_in
from .subject import Subject, each_engine, in_process_mode


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracles, "CLEARING_UP_S", 0.1)


@contextmanager
def _file_left() -> Iterator[str]:
    handle, name = tempfile.mkstemp()
    os.close(handle)
    yield "temporary files"
    Path(name).unlink()


@contextmanager
def _descriptor_left() -> Iterator[str]:
    handle = os.open(os.devnull, os.O_RDONLY)
    yield "descriptors"
    os.close(handle)


@contextmanager
def _process_left() -> Iterator[str]:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            yield "children"
        finally:
            process.kill()


@contextmanager
def _thread_left() -> Iterator[str]:
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="codeact-left")
    thread.start()
    try:
        yield "threads"
    finally:
        done.set()
        thread.join()


@contextmanager
def _task_left() -> Iterator[str]:
    task = asyncio.ensure_future(asyncio.sleep(60))
    yield "tasks"
    task.cancel()


@contextmanager
def _shared_memory_left() -> Iterator[str]:
    path = Path(f"/dev/shm/codeact-test-{os.getpid()}")
    path.touch()
    yield "shared memory"
    path.unlink()


@contextmanager
def _system_v_left() -> Iterator[str]:
    libc = ctypes.CDLL(None, use_errno=True)
    left = libc.shmget(0, 4096, 0o1600), libc.semget(0, 1, 0o1600), libc.msgget(0, 0o1600)
    try:
        assert min(left) >= 0
        yield "system V memory': {(?=.*'shm )(?=.*'sem )(?=.*'msg )"
    finally:
        libc.shmctl(left[0], 0, None)
        libc.semctl(left[1], 0, 0)
        libc.msgctl(left[2], 0, None)


@contextmanager
def _control_group_left() -> Iterator[str]:
    group = Cgroup.create("codeact-planted", Limits())
    if group is None:
        pytest.skip("this process may make no control group")
    yield "control groups"
    group.remove()


@contextmanager
def _container_left() -> Iterator[str]:
    labels = {
        "org.autogen-codeact.kind": "sandbox",
        "org.autogen-codeact.owner": f"{socket.gethostname()}:{os.getpid()}",
    }
    with closing(connect()) as client:
        container = client.create_container(DEFAULT_IMAGE, ["true"], labels=labels)
        try:
            yield "containers"
        finally:
            client.remove_container(container, force=True)


PLANTED = [plant for name, plant in list(globals().items()) if name.endswith("_left")]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.strip("_"))
async def test_what_is_left_behind_is_noticed(plant, canaries, request):
    if plant is _container_left:
        request.getfixturevalue("docker_engine")
    host = HostState.observe(canaries)
    await host.check(())
    with plant() as where, pytest.raises(AssertionError, match=where):
        await host.check(())


async def test_a_process_of_a_sandbox_is_noticed(canaries: Canaries) -> None:
    host = HostState.observe(canaries)
    with pytest.raises(AssertionError, match="processes of the sandbox"):
        await host.check([os.stat("/proc/self/ns/pid").st_ino])


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


async def test_a_file_beside_the_canaries_is_noticed(canaries: Canaries) -> None:
    host = HostState.observe(canaries)
    (canaries.folder / "planted").touch()
    try:
        with pytest.raises(AssertionError):
            await host.check(())
    finally:
        (canaries.folder / "planted").unlink()


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


def test_memory_and_disk_of_the_host_are_noticed(canaries, tmp_path, monkeypatch):
    monkeypatch.setattr(oracles, "HOST_MEMORY_BYTES", 64 * MIB)
    monkeypatch.setattr(oracles, "HOST_DISK_BYTES", 64 * MIB)
    host = HostState.observe(canaries)
    expected, said = {"the host's memory", "/"}, set[str]()
    for _ in range(20):  # others take and give back, too
        host.available, host.disk = oracles.available_memory(), oracles.free_disk()
        ballast = os.memfd_create("ballast")
        try:
            os.posix_fallocate(ballast, 0, 256 * MIB)  # in no process's memory
            said |= host.lost().keys()
        finally:
            os.close(ballast)
        with (tmp_path / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 256 * MIB)
            said |= host.lost().keys()
        (tmp_path / "ballast").unlink()
        if expected <= said:
            return
    pytest.fail(f"only {said} noticed")


async def test_loss_on_the_machine_fails_a_case_unless_it_is_given_back(canaries, monkeypatch):
    host = HostState.observe(canaries)
    looks = iter([{"/": host.disk["/"] - 2 * oracles.HOST_DISK_BYTES}, host.disk])
    monkeypatch.setattr(oracles, "free_disk", lambda: next(looks))
    await host.check_machine()
    monkeypatch.undo()
    monkeypatch.setattr(oracles, "LOSS_S", 0.1)
    host.available, host.disk = 1 << 50, dict.fromkeys(host.disk, 1 << 50)
    with pytest.raises(AssertionError, match=r"^lost on this machine: .*'/'.*the host's memory"):
        await host.check_machine()


@each_engine
async def test_what_a_sandbox_has_written_to_the_disk_is_noticed(subject: Subject) -> None:
    await subject.start()
    subject.check_little_is_written()
    with (subject.work_dir / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 2 * oracles.WRITTEN_BYTES)
    with pytest.raises(AssertionError, match="work takes"):
        subject.check_little_is_written()
    (subject.work_dir / "ballast").unlink()


def test_what_a_container_has_written_to_the_engine_s_disk_is_noticed(docker_engine: str) -> None:
    with closing(connect()) as client:
        code = "head -c 4194304 /dev/zero >/ballast"
        container = client.create_container(DEFAULT_IMAGE, ["sh", "-c", code], user="0:0")
        try:
            client.start(container)
            assert client.wait(container, timeout=30)["StatusCode"] == 0
            name = client.inspect_container(container)["Name"].lstrip("/")
            assert oracles.written_layer(name) >= 4 * MIB
        finally:
            client.remove_container(container, force=True)


async def test_a_late_result_is_noticed(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    await subject.start()
    monkeypatch.setattr("tests.abuse.subject.GRACE_S", 0.0)
    with pytest.raises(pytest.fail.Exception, match="no result"):
        await subject.run("import time; time.sleep(3)", timeout=0.01)


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
