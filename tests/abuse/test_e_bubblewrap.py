"""E. Host faults where there is no engine, 65, 67, 68, 73 and 76: bubblewrap is missing, its PID 1 is killed or stopped."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, SandboxDied, SandboxTimeout, SandboxUnavailable
from autogen_codeact.executors.pool import choose_executor
from tests.sandbox.bubblewrapped import alive, descendants, pid_one
from tests.sandbox.sandboxes import run

from .faults import begin, rest

pytestmark = pytest.mark.usefixtures("bubblewrap", "untouched")


# Case 65.
async def test_without_bubblewrap_it_says_in_a_moment_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    began = time.monotonic()
    with pytest.raises(SandboxUnavailable, match=r"^bubblewrap is not installed: apt-get install bubblewrap"):
        await run(BubblewrapCommandLineCodeExecutor(), "1")
    assert time.monotonic() - began < 30


# Case 65.
async def test_without_bubblewrap_and_docker_it_says_how_to_get_either(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    began = time.monotonic()
    with pytest.raises(SandboxUnavailable, match=r"(?s)no such socket.*bubblewrap is not installed"):
        await choose_executor("auto")
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("mode", ["process", "session"])
class TestLost:
    # Case 67.
    async def test_pid_one_killed_from_outside_during_a_block(self, folder: Path, mode: Any) -> None:
        async with BubblewrapCommandLineCodeExecutor(bind_dir=folder, mode=mode) as executor:
            running = await begin(executor)
            os.kill(pid_one(os.getpid()), signal.SIGKILL)
            with pytest.raises(SandboxDied, match="its exit code is 137"):
                await rest(running)
            result = await run(executor, "print('next')")
            assert (result.output, result.state) == ("next\n", "lost")
            assert "had ended since the last block" in result.notes[0]
            assert (await run(executor, "1")).state == "kept"
            # It was not sent again.
            assert (folder / "ran").read_text() == "x"


class TestStopped:
    # Case 68.
    async def test_pid_one_stopped_during_a_block_the_deadline_of_the_host_holds(self, folder: Path) -> None:
        async with BubblewrapCommandLineCodeExecutor(bind_dir=folder, mode="session", timeout=4) as executor:
            running = await begin(executor)
            supervisor = pid_one(os.getpid())
            below = descendants(os.getpid())
            began = time.monotonic()
            os.kill(supervisor, signal.SIGSTOP)
            with pytest.raises(SandboxTimeout, match="did not answer within 14 s"):
                await rest(running)
            assert time.monotonic() - began < 4 + 10 + 30
            assert not [pid for pid in below if alive(pid)]
            assert (await run(executor, "1")).state == "lost"
            assert (folder / "ran").read_text() == "x"


class TestStop:
    # Case 73.
    async def test_before_start_again_and_many_at_once(self) -> None:
        executor = BubblewrapCommandLineCodeExecutor()
        await executor.stop()
        await executor.start()
        below = descendants(os.getpid())
        await asyncio.gather(*(executor.stop() for _ in range(8)))
        await executor.stop()
        assert not [pid for pid in below if alive(pid)]

    # Case 73.
    async def test_while_a_block_runs(self) -> None:
        executor = BubblewrapCommandLineCodeExecutor()
        running = await begin(executor)
        await executor.stop()
        with pytest.raises(SandboxDied, match="stopped"):
            await rest(running)

    # Case 76.
    async def test_of_a_sandbox_whose_every_process_is_stopped_is_bounded(self) -> None:
        executor = BubblewrapCommandLineCodeExecutor()
        await executor.start()
        below = descendants(os.getpid())
        for pid in below:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        await executor.stop()
        assert time.monotonic() - began < 40
        assert not [pid for pid in below if alive(pid)]
