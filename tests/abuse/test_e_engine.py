"""E. Host faults, 65 to 69 and 73 to 76: the engine or bubblewrap is away, refuses, hangs, restarts, or loses the sandbox.

Cases 70 to 73 are in test_e_clients.py.
"""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autogen_codeact.executors import (
    BubblewrapCommandLineCodeExecutor,
    DockerCommandLineCodeExecutor,
    SandboxDied,
    SandboxError,
    SandboxNameInUse,
    SandboxStartError,
    SandboxTimeout,
    SandboxUnavailable,
)
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.executors.pool import choose_executor
from codeact_sandbox.backends.docker import launcher
from tests.sandbox.bubblewrapped import descendants, pid_one
from tests.sandbox.sandboxes import out, pause_container, run

from .engine_proxy import EngineProxy, failure
from .faults import begin, engine, eventually, exists, rest
from .oracles import sandboxes
from .subject import Kind, in_sessions

pytestmark = pytest.mark.usefixtures("docker_engine", "untouched")

NO_PERMISSION = """
import asyncio, os, time
from autogen_codeact.executors import DockerCommandLineCodeExecutor, SandboxUnavailable
async def start(host):
    try:
        await DockerCommandLineCodeExecutor(docker_host=host).start()
    except SandboxUnavailable as error:
        return str(error)
# Everything is imported by the end of this; later it may be out of reach.
asyncio.run(start("unix:///none"))
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
began = time.monotonic()
said = asyncio.run(start(None))
print(time.monotonic() - began < 30, said)
"""


async def refused(executor: SandboxCodeExecutor, kind: type[SandboxError], text: str, seconds: float) -> None:
    began = time.monotonic()
    with pytest.raises(kind, match=text):
        await run(executor, "1")
    assert time.monotonic() - began < seconds


class TestNoEngine:
    # Case 65.
    async def test_without_a_socket_it_says_how_to_start_one(self, folder: Path) -> None:
        executor = DockerCommandLineCodeExecutor(docker_host=f"unix://{folder}/none")
        await refused(executor, SandboxUnavailable, "no such socket.*Start", 30)

    # Case 65.
    async def test_with_a_dead_socket_it_says_how_to_start_one(self, folder: Path) -> None:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(f"{folder}/dead")
        executor = DockerCommandLineCodeExecutor(docker_host=f"unix://{folder}/dead")
        await refused(executor, SandboxUnavailable, "nothing listens.*Start", 30)

    # Case 65.
    async def test_one_that_hangs_is_given_up(self, proxy: EngineProxy) -> None:
        proxy.on("GET", "", "hold")
        executor = DockerCommandLineCodeExecutor(docker_host=proxy.address)
        await refused(executor, SandboxUnavailable, "does not answer in time", 30)

    # Case 65.
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can take permissions away")
    async def test_without_permission_it_says_how_to_get_it(self) -> None:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", NO_PERMISSION],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        assert done.stdout.startswith("True No permission to use the Docker engine")
        assert "usermod -aG docker" in done.stdout

    # Case 65.
    async def test_without_bubblewrap_it_says_how_to_install_it(self, monkeypatch, tmp_path):
        monkeypatch.setenv("PATH", str(tmp_path))
        text = r"^bubblewrap is not installed: apt-get install bubblewrap"
        await refused(BubblewrapCommandLineCodeExecutor(), SandboxUnavailable, text, 30)

    # Case 65.
    async def test_without_both_it_says_how_to_get_either(self, monkeypatch, tmp_path):
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
        with pytest.raises(SandboxUnavailable, match=r"(?s)no such socket.*bubblewrap is not installed"):
            await choose_executor("auto")


# Case 66.
async def test_an_image_that_is_nowhere_is_a_timely_error() -> None:
    executor = DockerCommandLineCodeExecutor("registry.invalid/none:1", progress=lambda _: None)
    await refused(executor, SandboxError, "registry.invalid/none:1", 40)


def kill(executor: SandboxCodeExecutor) -> None:
    """Kill the sandbox from outside."""
    if isinstance(executor, DockerCommandLineCodeExecutor):
        engine(lambda api: api.kill(executor.container_name))
    else:
        os.kill(pid_one(os.getpid()), signal.SIGKILL)


def remove(executor: SandboxCodeExecutor) -> None:
    """Remove its container."""
    if isinstance(executor, DockerCommandLineCodeExecutor):
        engine(lambda api: api.remove_container(executor.container_name, force=True))


def halt(executor: SandboxCodeExecutor) -> None:
    """Stop all its processes, without an end."""
    if isinstance(executor, DockerCommandLineCodeExecutor):
        engine(lambda api: pause_container(api, executor.container_name))
    else:
        for pid in descendants(pid_one(os.getpid())) | {pid_one(os.getpid())}:
            os.kill(pid, signal.SIGSTOP)


# Case 67.
async def test_lost_is_told_and_the_block_is_not_sent_again(kind: Kind, folder: Path) -> None:
    """During a block, and between two."""
    async with kind.make(bind_dir=folder) as executor:
        for loss in (kill, remove) if kind.engine == "docker" else (kill,):
            running = await begin(executor)
            loss(executor)
            with pytest.raises(SandboxDied, match="its exit code is 137"):
                await rest(running)
            result = await run(executor, "print('next')")
            assert (result.output, result.state) == ("next\n", "lost")
            assert "had ended since the last block" in result.notes[0]
            assert (await run(executor, "1")).state == "kept"
            assert (folder / "ran").read_text() == "x"
            (folder / "ran").unlink()
            loss(executor)
            await eventually(lambda: executor.sandbox.client is not None and not executor.sandbox.client.alive)
            # What comes between must not swallow it.
            assert await executor.list_files() != ["never"]
            result = await run(executor, "print('next')")
            assert (result.output, result.state) == ("next\n", "lost")


# Case 69.
@pytest.mark.parametrize("live_restore", [False, True])
async def test_engine_restarted_during_a_block_is_an_error_and_the_next_call_has_a_new_sandbox(
    proxy: EngineProxy, folder: Path, live_restore: bool
) -> None:
    """An engine that is away for a while; without live-restore it takes its containers with it."""
    options = {"bind_dir": folder, "mode": "session", "timeout": 40}
    executor = DockerCommandLineCodeExecutor(docker_host=proxy.address, **options)
    try:
        running = await begin(executor)
        before = executor.container_name
        away = [proxy.on(method, "", "drop") for method in ("GET", "POST", "DELETE", "HEAD")]
        if not live_restore:
            engine(lambda api: api.kill(before))
        proxy.cut()
        with pytest.raises(SandboxDied):
            await rest(running)
        with pytest.raises(SandboxUnavailable):
            await run(executor, "1")
        assert any(rule.seen.is_set() for rule in away)
        proxy.clear()
        result = await run(executor, "print('next')")
        assert (result.output, result.state) == ("next\n", "lost")
        assert "had ended since the last block" in result.notes[0]
        assert (await run(executor, "1")).state == "kept"
        # The block was not sent again, and what the engine had kept of the old sandbox is gone.
        assert (folder / "ran").read_text() == "x"
        await eventually(lambda: not exists(before), 20)
    finally:
        await executor.stop()
    assert not exists(executor.container_name)


# Case 68.
@in_sessions
async def test_a_halted_sandbox_times_out_and_is_removed(kind: Kind, folder: Path) -> None:
    before = sandboxes()
    async with kind.make(bind_dir=folder, timeout=4) as executor:
        running = await begin(executor)
        began = time.monotonic()
        halt(executor)
        with pytest.raises(SandboxTimeout, match="did not answer within 14 s"):
            await rest(running)
        # The block's deadline, ten seconds more, and a container that does not end by itself.
        assert time.monotonic() - began < 4 + 10 + 30
        await eventually(lambda: sandboxes() <= before)
        assert (await run(executor, "1")).state == "lost"
        assert (folder / "ran").read_text() == "x"


ANSWERS = {
    "409": failure(409, "conflict"),
    "500": failure(500, "something broke"),
    "no HTTP": b"\x00\xff\x00\xff\r\n\r\n",
    "nothing": b"",
}


# Case 73.
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_a_stop_that_fails_half_way_still_removes(proxy: EngineProxy, answer: bytes) -> None:
    async with DockerCommandLineCodeExecutor(docker_host=proxy.address) as executor:
        # So that it does not end by itself.
        engine(lambda api: pause_container(api, executor.container_name))
        wait = proxy.on("POST", "/wait", "answer", reply=answer, times=1)
        delete = proxy.on("DELETE", "", "answer", reply=answer, times=1)
        await executor.stop()
        assert wait.seen.is_set()
        assert delete.seen.is_set()
        assert not exists(executor.container_name)


# Case 74.
async def test_a_name_in_use_is_an_error_and_the_first_survives() -> None:
    name = f"codeact-case-74-{os.getpid()}"
    async with DockerCommandLineCodeExecutor(container_name=name, mode="session") as first:
        await out(first, "x = 1")
        with pytest.raises(SandboxNameInUse, match="left alone"):
            await DockerCommandLineCodeExecutor(container_name=name).start()
        assert await out(first, "x") == "1\n"
    async with DockerCommandLineCodeExecutor(container_name=name) as again:
        assert await out(again, "print(2)") == "2\n"


# Case 75.
async def test_a_full_disk_of_the_engine_is_an_error(proxy: EngineProxy) -> None:
    words = "failed to copy files: write /var/lib/docker/overlay2/x: no space left on device"
    proxy.on("POST", "/containers/create", "answer", reply=failure(500, words), times=1)
    executor = DockerCommandLineCodeExecutor(docker_host=proxy.address)
    with pytest.raises(SandboxStartError, match=r"refused to start the sandbox: .*no space left on device"):
        await executor.start()
    async with executor:
        assert await out(executor, "print(1)") == "1\n"


# Case 76.
async def test_a_wedged_stop_is_bounded_and_the_next_start_tries_again(proxy, caplog, monkeypatch):
    monkeypatch.setattr(launcher, "REMOVE_TIMEOUT_S", 3.0)
    executor = DockerCommandLineCodeExecutor(docker_host=proxy.address)
    await executor.start()
    name = executor.container_name
    engine(lambda api: pause_container(api, name))
    proxy.on("POST", "/wait", "drop")
    proxy.on("DELETE", "", "hold")
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "codeact_sandbox"):
        await executor.stop()
    assert time.monotonic() - began < 40
    assert f"the container {name} could not be removed" in caplog.text
    assert f"docker rm -f {name}" in caplog.text
    assert exists(name)
    monkeypatch.undo()
    proxy.clear()
    assert exists(name)
    async with DockerCommandLineCodeExecutor(docker_host=proxy.address) as other:
        await out(other, "1")
        await eventually(lambda: not exists(name))


# Case 76.
@pytest.mark.usefixtures("bubblewrap")
async def test_a_stop_of_halted_processes_is_bounded() -> None:
    before = sandboxes()
    executor = BubblewrapCommandLineCodeExecutor()
    await executor.start()
    halt(executor)
    began = time.monotonic()
    await executor.stop()
    assert time.monotonic() - began < 40
    await eventually(lambda: sandboxes() <= before)
