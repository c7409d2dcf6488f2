"""E. Host faults, 65 to 69 and 73 to 76: the engine is away, refuses, hangs, is restarted, or loses the sandbox.

Cases 70 to 72 are in test_e_clients.py and test_e_cancel.py.
"""

import asyncio
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.executors import (
    DockerCommandLineCodeExecutor,
    SandboxDied,
    SandboxError,
    SandboxNameInUse,
    SandboxTimeout,
    SandboxUnavailable,
)
from codeact_sandbox.backends.docker import launcher
from tests.sandbox.sandboxes import out, pause_container, run

from .engine_proxy import EngineProxy, failure
from .faults import begin, engine, eventually, exists, open_folder, rest

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


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because the path of a socket is limited to some hundred characters."""
    with tempfile.TemporaryDirectory(prefix="e") as made:
        yield Path(made)


async def refused(executor: DockerCommandLineCodeExecutor, kind: type[SandboxError], text: str, seconds: float) -> None:
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


# Case 66.
async def test_an_image_that_is_nowhere_is_a_timely_error() -> None:
    executor = DockerCommandLineCodeExecutor("registry.invalid/none:1", progress=lambda _: None)
    await refused(executor, SandboxError, "registry.invalid/none:1", 40)


LOSSES = {
    "killed": lambda api, name: api.kill(name),
    "removed": lambda api, name: api.remove_container(name, force=True),
}


# Case 67.
@pytest.mark.parametrize("mode", ["process", "session"])
async def test_lost_is_told_and_the_block_is_not_sent_again(tmp_path: Path, mode: Any) -> None:
    """Killed and removed, both during a block and between two."""
    folder = open_folder(tmp_path / "bound")
    async with DockerCommandLineCodeExecutor(bind_dir=folder, user="65534:65534", mode=mode) as executor:
        for loss in LOSSES.values():
            await lose_during_a_block(executor, loss, folder / "ran")
            await lose_between_blocks(executor, loss)


async def lose_during_a_block(executor: DockerCommandLineCodeExecutor, loss: Callable[..., None], ran: Path) -> None:
    running = await begin(executor)
    before = executor.container_name
    engine(lambda api: loss(api, before))
    with pytest.raises(SandboxDied, match="its exit code is 137"):
        await rest(running)
    result = await run(executor, "print('next')")
    assert (result.output, result.state) == ("next\n", "lost")
    assert "had ended since the last block" in result.notes[0]
    assert executor.container_name != before
    assert (await run(executor, "1")).state == "kept"
    assert await asyncio.to_thread(ran.read_text) == "x"
    await asyncio.to_thread(ran.unlink)


async def lose_between_blocks(executor: DockerCommandLineCodeExecutor, loss: Callable[..., None]) -> None:
    await out(executor, "1")
    before = executor.container_name
    engine(lambda api: loss(api, before))
    await eventually(lambda: executor.sandbox.client is not None and not executor.sandbox.client.alive)
    # What comes between must not swallow it.
    assert await executor.list_files() != ["never"]
    result = await run(executor, "print('next')")
    assert (result.output, result.state) == ("next\n", "lost")
    assert executor.container_name != before


# Case 69.
@pytest.mark.parametrize("live_restore", [False, True])
async def test_engine_restarted_during_a_block_is_an_error_and_the_next_call_has_a_new_sandbox(
    proxy: EngineProxy, tmp_path: Path, live_restore: bool
) -> None:
    """An engine that is away for a while; without live-restore it takes its containers with it."""
    folder = open_folder(tmp_path / "bound")
    options: dict[str, Any] = {"bind_dir": folder, "user": "65534:65534", "mode": "session", "timeout": 40}
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


class TestPaused:
    # Case 68.
    async def test_during_a_block_the_deadline_of_the_host_holds_and_the_container_is_removed(self, tmp_path):
        folder = open_folder(tmp_path / "bound")
        options: dict[str, Any] = {"bind_dir": folder, "user": "65534:65534", "mode": "session", "timeout": 4}
        async with DockerCommandLineCodeExecutor(**options) as executor:
            running = await begin(executor)
            name = executor.container_name
            began = time.monotonic()
            engine(lambda api: pause_container(api, name))
            with pytest.raises(SandboxTimeout, match="did not answer within 14 s"):
                await rest(running)
            # The block's deadline, ten seconds more, and a container that does not end by itself.
            assert time.monotonic() - began < 4 + 10 + 30
            assert not exists(name)
            assert (await run(executor, "1")).state == "lost"
            assert (folder / "ran").read_text() == "x"


ANSWERS = {
    "409": failure(409, "conflict"),
    "500": failure(500, "something broke"),
    "garbage": b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\ngarbage",
    "half an answer": b"HTTP/1.1 201 Created\r\nContent-Length: 700\r\n\r\n{",
    "no HTTP": b"\x00\xff\x00\xff\r\n\r\n",
    "nothing": b"",
}


class TestStop:
    # Case 73.
    async def test_before_start_many_at_once_and_again(self) -> None:
        executor = DockerCommandLineCodeExecutor()
        await executor.stop()
        await executor.start()
        await asyncio.gather(*(executor.stop() for _ in range(8)))
        assert not exists(executor.container_name)
        await executor.stop()
        assert not exists(executor.container_name)

    # Case 73.
    async def test_while_it_starts(self) -> None:
        executor = DockerCommandLineCodeExecutor()
        await asyncio.gather(executor.start(), executor.stop(), executor.start(), executor.stop())
        assert not exists(executor.container_name)

    # Case 73.
    async def test_while_a_block_runs(self) -> None:
        executor = DockerCommandLineCodeExecutor()
        running = await begin(executor)
        await executor.stop()
        with pytest.raises(SandboxDied, match="stopped"):
            await rest(running)

    # Case 73.
    @pytest.mark.parametrize("answer", ["500", "409", "nothing", "no HTTP"])
    async def test_that_fails_half_way_still_removes(self, proxy: EngineProxy, answer: str) -> None:
        async with DockerCommandLineCodeExecutor(docker_host=proxy.address) as executor:
            # So that it does not end by itself.
            engine(lambda api: pause_container(api, executor.container_name))
            wait = proxy.on("POST", "/wait", "answer", reply=ANSWERS[answer], times=1)
            delete = proxy.on("DELETE", "", "answer", reply=ANSWERS[answer], times=1)
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


class TestWedgedStop:
    # Case 76.
    async def test_is_bounded_and_reported_and_the_next_start_tries_again(self, proxy, caplog, monkeypatch):
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
