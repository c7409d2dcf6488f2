"""H18. The host's disk is full, or `work_dir` is removed, read-only or replaced, while files are stored."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from autogen_codeact.executors import SandboxFileError
from tests.cases import case
from tests.sandbox.sandboxes import out, run

from .faults import begin, rest
from .lag import MOST_EXCESS_S, median_excess
from .oracles import MIB
from .subject import Kind

pytestmark = pytest.mark.usefixtures("untouched")

DISK_OPTIONS = "size=4m"
FULL = "the host's disk is full. Free some space, or use a work_dir on another disk."
REPLACED = (
    "the work_dir was replaced by another folder or a symbolic link after the start. Restart the executor to use it."
)


# Case H18.
async def test_a_disk_that_fills_up_during_a_block_leaves_no_partial_files(kind: Kind, disk: Path) -> None:
    """Small files first, then one that comes in pieces, then more small ones; the event loop goes on."""
    work_dir = disk / "work"
    code = f"""
        import os
        for n in range(100): open(f"a{{n}}", "wb").write(os.urandom(10_000))
        open("b-large", "wb").write(os.urandom({8 * MIB}))
        for n in range(200): open(f"c{{n}}", "wb").write(os.urandom(50_000))
    """
    async with kind.make(work_dir=work_dir, delete_tmp_files=True) as executor:

        async def load() -> None:
            result = await run(executor, code)
            assert (result.outcome, result.exit_code, result.state) == ("error", 1, "kept")
            notes = {item.name: item.note for item in result.artifacts}
            assert notes["b-large"] == f"not copied: {FULL}"
            stored = {item.name: item.size for item in result.artifacts if item.note is None}
            assert 100 <= len(stored) < 200
            assert any(note.startswith("Not copied to work_dir: ") and FULL in note for note in result.notes)
            # What was there is replaced, or whole as it was.
            sizes = {name: os.stat(work_dir / name).st_size for name in os.listdir(work_dir)}
            assert set(stored) <= set(sizes)
            assert set(sizes.values()) == {10_000, 50_000}

        assert await median_excess(load) < MOST_EXCESS_S
        for name in os.listdir(work_dir):
            (work_dir / name).unlink()
        await out(executor, "open('last', 'w').write('last')")
        assert (work_dir / "last").read_text() == "last"


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
