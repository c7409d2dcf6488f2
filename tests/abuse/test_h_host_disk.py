"""75 and H18. The host's disk is full, or `work_dir` is removed, read-only or replaced, while files are stored."""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from autogen_codeact.executors import SandboxFileError
from tests.cases import case
from tests.sandbox.sandboxes import out, run

from .faults import begin, rest
from .subject import Kind

pytestmark = pytest.mark.usefixtures("untouched")

SIZE = 256 * 1024
DISK = f"size={SIZE},nr_inodes=16,mode=0755"
FULL = "the host's disk is full. Free some space, or use a work_dir on another disk."
REPLACED = (
    "the work_dir was replaced by another folder or a symbolic link after the start. Restart the executor to use it."
)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# Cases 75, H18.
@pytest.mark.parametrize("disk", [DISK], indirect=True)
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
        assert names(disk) == {"old", "small", "folder"}
        assert (disk / "old").read_text() == "old"
        # They are still to be had once there is room.
        with pytest.raises(
            SandboxFileError, match=f"^Can't store `large` in {disk}: the host's disk is full"
        ) as caught:
            await executor.download("large", disk / "large")
        assert caught.value.errno == errno.ENOSPC
        assert names(disk) == {"old", "small", "folder"}
        target = await executor.download("large", disk.parent / "large")
        assert target.stat().st_size == 2 * SIZE
        assert await out(executor, "print(2)") == "2\n"


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def replace_by_link(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(folder.with_name("outside"))


def replace_by_folder(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.mkdir()


def replace_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("")


WRITES_LATER = """
    import time
    print("begun", flush=True)
    time.sleep(1)
    open("small", "w").close()
    open("large", "wb").write(bytes(600_000))
"""
CHANGES: list[tuple[Callable[[Path], None], str]] = [
    (remove, "it no longer exists on the host. Create it again, or start again."),
    (replace_by_link, REPLACED),
    (replace_by_folder, REPLACED),
    (replace_by_file, "a symbolic link or a file is where a folder should be. Use another name, or remove it."),
]


# Case H18.
async def test_nothing_is_written_to_or_beside_a_replaced_work_dir(kind: Kind, tmp_path: Path) -> None:
    """All changes at the same time, each with a sandbox of its own."""

    async def check(number: int, change: Callable[[Path], None], reason: str) -> None:
        folder = tmp_path / str(number)
        outside, work_dir = folder / "outside", folder / "work"
        outside.mkdir(parents=True)
        (outside / "canary").write_text("alive")
        executor = kind.make(work_dir=work_dir, delete_tmp_files=True)
        await executor.start()
        running = await begin(executor, WRITES_LATER)
        change(work_dir)
        result = await rest(running)
        assert (result.outcome, result.error and result.error.type) == ("error", "FilesNotStored")
        notes = {item.name: item.note for item in result.artifacts}
        assert notes == dict.fromkeys(("small", "large"), f"not copied: {reason}")
        with pytest.raises(SandboxFileError, match=reason.partition(".")[0]):
            await run(executor, "print(1)")
        await executor.stop()
        assert {path.name: path.read_text() for path in outside.iterdir()} == {"canary": "alive"}
        if change is replace_by_folder:
            assert os.listdir(work_dir) == []
            async with kind.make(work_dir=work_dir, delete_tmp_files=True) as again:
                await run(again, "open('new', 'w').close()")
            assert os.listdir(work_dir) == ["new"]

    async def named(number: int, change: Callable[[Path], None], reason: str) -> None:
        with case(change):
            await check(number, change, reason)

    await asyncio.gather(*(named(number, *each) for number, each in enumerate(CHANGES)))
