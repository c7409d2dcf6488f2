"""E. Host faults, 75: the host's disk is full, or the engine's."""

import errno
from pathlib import Path

import pytest

from autogen_codeact.executors import DockerCommandLineCodeExecutor, SandboxFileError, SandboxStartError
from tests.sandbox.sandboxes import out, run

from .engine_proxy import engine_proxy, failure

pytestmark = pytest.mark.usefixtures("docker_engine", "untouched")

FULL = "the host's disk is full. Free some space, or use a work_dir on another disk."
SIZE = 256 * 1024
DISK_OPTIONS = f"size={SIZE},nr_inodes=16"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# Case 75.
async def test_files_that_do_not_fit_are_not_partly_written_and_the_result_has_the_reason(kind, disk):
    (disk / "old").write_text("old")
    async with kind.make(work_dir=disk, delete_tmp_files=True) as executor:
        code = f"""
            open("small", "w").write("small")
            for name in ("large", "old", "folder/large"):
                import os
                os.makedirs("folder", exist_ok=True)
                open(name, "wb").write(os.urandom({2 * SIZE}))  # zeros would be a hole, which takes no room
            print("done")
        """
        result = await run(executor, code)
        assert (result.outcome, result.exit_code, result.state) == ("error", 1, "kept")
        assert result.output.startswith("done\n")
        assert result.output.endswith(f" and 2 other files could not be copied to work_dir: {FULL}\n")
        files = {item.name: (item.path, item.note) for item in result.artifacts}
        missing = (None, f"not copied: {FULL}")
        assert files == {"small": (disk / "small", None), "large": missing, "old": missing, "folder/large": missing}
        assert names(disk) == {"old", "small"}
        assert (disk / "old").read_text() == "old"
        # They are still to be had once there is room.
        with pytest.raises(
            SandboxFileError, match=f"^Can't store `large` in {disk}: the host's disk is full"
        ) as caught:
            await executor.download("large", disk / "large")
        assert caught.value.errno == errno.ENOSPC
        assert names(disk) == {"old", "small"}
        target = await executor.download("large", disk.parent / "large")
        assert target.stat().st_size == 2 * SIZE
        assert await out(executor, "print(2)") == "2\n"


# Case 75.
async def test_full_disk_of_the_engine_is_an_error() -> None:
    with engine_proxy() as proxy:
        words = "failed to copy files: write /var/lib/docker/overlay2/x: no space left on device"
        proxy.on("POST", "/containers/create", "answer", reply=failure(500, words), times=1)
        executor = DockerCommandLineCodeExecutor(docker_host=proxy.address)
        with pytest.raises(SandboxStartError, match=r"refused to start the sandbox: .*no space left on device"):
            await executor.start()
        async with executor:
            assert await out(executor, "print(1)") == "1\n"
