"""E. Host faults, 69: the engine is restarted, or killed and started again, while a block runs."""

import signal
from typing import Any

import pytest

from autogen_codeact.executors import DockerCommandLineCodeExecutor, SandboxDied, SandboxUnavailable
from tests.sandbox.sandboxes import run

from .faults import begin, eventually, open_folder, rest

pytestmark = [pytest.mark.usefixtures("docker_engine"), pytest.mark.timeout(180)]

WAYS = {
    "restarted": (signal.SIGTERM, False),
    "restarted with live-restore": (signal.SIGTERM, True),
    "killed": (signal.SIGKILL, False),
    "killed with live-restore": (signal.SIGKILL, True),
}


# Case 69.
@pytest.mark.parametrize("way", WAYS)
async def test_engine_restarted_during_a_block_is_an_error_and_the_next_call_has_a_new_sandbox(
    second_engine, untouched, tmp_path, way
):
    number, live_restore = WAYS[way]
    folder = open_folder(tmp_path / "bound")
    second_engine.start(live_restore=live_restore)
    options: dict[str, Any] = {"bind_dir": folder, "user": "65534:65534", "mode": "session", "timeout": 40}
    executor = DockerCommandLineCodeExecutor(docker_host=second_engine.address, **options)
    try:
        running = await begin(executor)
        second_engine.end(number)
        with pytest.raises(SandboxDied):
            await rest(running)
        with pytest.raises(SandboxUnavailable, match=f"No Docker engine at {second_engine.address}"):
            await run(executor, "1")
        second_engine.start(live_restore=live_restore)
        result = await run(executor, "print('next')")
        assert (result.output, result.state) == ("next\n", "lost")
        assert "had ended since the last block" in result.notes[0]
        assert (await run(executor, "1")).state == "kept"
        # The block was not sent again, and what the engine had kept of the old sandbox is gone.
        assert (folder / "ran").read_text() == "x"
        await eventually(lambda: second_engine.containers() == {executor.container_name}, 20)
        await executor.stop()
        await eventually(lambda: second_engine.containers() == set())
    finally:
        await executor.stop()
        second_engine.end()
