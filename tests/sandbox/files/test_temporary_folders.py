"""Temporary folders of executors: made, locked, and removed when their process has ended without doing so."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from codeact_sandbox.files import temporary_folder
from codeact_sandbox.files.temporary_folder import (
    PREFIX,
    TemporaryFolder,
    abandoned_folders,
    make_folder,
    owner_of,
    remove_abandoned,
    remove_folder,
)
from codeact_sandbox.leftovers import remove_leftovers_in_background

MAKE = """
import os, sys, tempfile
from codeact_sandbox.files.temporary_folder import make_folder
tempfile.tempdir = sys.argv[1]
path, lock = make_folder()
(path / "data.csv").write_text("1")
print(path, flush=True)
sys.stdin.read() or os._exit(0)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def left_behind(place: Path) -> Path:
    """The folder of a process that has ended."""
    done = subprocess.run([sys.executable, "-c", MAKE, place], input="", capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def fill(folder: Path, depth: int) -> None:
    """Folders in folders, deeper than a path can be long, with files and links among them."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.close(os.open("file", os.O_CREAT, 0o600, dir_fd=at))
        os.symlink("/etc", "link", dir_fd=at)
        os.mkdir("folder", dir_fd=at)
        below = os.open("folder", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def test_a_folder_is_locked_until_its_process_ends(place: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MAKE, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        folder = Path(process.stdout.readline().strip())
        assert owner_of(folder) == str(process.pid)
        assert abandoned_folders() == []
        assert not remove_abandoned(folder)
        process.kill()
    assert abandoned_folders() == [folder]
    assert remove_abandoned(folder)
    assert not folder.exists()
    assert not remove_abandoned(folder)


async def test_a_folder_of_this_process_is_not_abandoned(place: Path) -> None:
    folder = TemporaryFolder()
    assert (folder.path.parent, folder.path.stat().st_mode & 0o777) == (place, 0o700)
    assert abandoned_folders() == []
    before = len(os.listdir("/proc/self/fd"))
    await folder.remove()
    assert not folder.path.exists()
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_only_own_folders_are_removed(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Anybody may put something of this name into a folder for temporary files."""
    target = tmp_path_factory.mktemp("target")
    (target / "data").write_text("1")
    (place / f"{PREFIX}1-symblink").symlink_to(target)
    (place / f"{PREFIX}1-somefile").write_text("1")
    (place / "codeact-1-other").mkdir()
    os.mkfifo(place / f"{PREFIX}1-fifopipe")
    if os.geteuid() == 0:
        other = place / f"{PREFIX}1-someones"
        other.mkdir()
        (other / "data").write_text("1")
        os.chown(other, 4321, 4321)
    own = left_behind(place)
    assert abandoned_folders() == [own]
    there = set(place.iterdir()) - {own}
    assert not any(remove_abandoned(path) for path in there if path.name.startswith(PREFIX))
    assert set(place.iterdir()) == there | {own}
    assert (target / "data").read_text() == "1"
    assert (place / f"{PREFIX}1-symblink").is_symlink()


@pytest.mark.parametrize("name", ["1", "mine", "1-mine", "1-fourteen14", "x-abcdefgh", "1-abcdefgh.old"])
def test_a_users_folder_with_a_similar_name_is_not_removed(place: Path, name: str) -> None:
    kept = place / f"{PREFIX}{name}" / "data"
    kept.parent.mkdir()
    kept.write_text("1")
    assert abandoned_folders() == []
    remove_leftovers_in_background()
    for thread in threading.enumerate():
        if thread.name == "codeact-leftovers":
            thread.join()
    assert kept.read_text() == "1"


def test_links_in_a_folder_are_removed_and_not_followed(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    target = tmp_path_factory.mktemp("target")
    (target / "data").write_text("1")
    folder = left_behind(place)
    (folder / "link").symlink_to(target)
    (folder / "below").mkdir()
    (folder / "below" / "link").symlink_to(target)
    assert remove_abandoned(folder)
    assert not folder.exists()
    assert (target / "data").read_text() == "1"


def test_a_deep_folder_is_removed(place: Path) -> None:
    folder = left_behind(place)
    fill(folder, 1200)
    assert remove_abandoned(folder)
    path, lock = make_folder()
    fill(path, 1200)
    remove_folder(path, lock)
    assert list(place.iterdir()) == []


def test_removal_is_limited_in_time_and_the_next_continues(place: Path) -> None:
    folder = left_behind(place)
    fill(folder, 1200)
    with pytest.raises(TimeoutError, match=r"contains too much to be removed in 0\.005 s"):
        remove_abandoned(folder, 0.005)
    assert abandoned_folders() == [folder]
    for _ in range(10_000):
        try:
            remove_abandoned(folder, 0.02)
            break
        except TimeoutError:
            continue
    assert not folder.exists()


def test_abandoned_folders_are_removed_once_in_the_background(place: Path) -> None:
    folder = left_behind(place)
    remove_leftovers_in_background()
    until = time.monotonic() + 30
    while folder.exists() or any(thread.name == "codeact-leftovers" for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.01)
    second = left_behind(place)
    remove_leftovers_in_background()
    time.sleep(0.2)
    assert second.exists()


def test_a_folder_that_another_process_removes_while_it_is_made_is_made_again(place, monkeypatch):
    """Between the making of a folder and its lock it looks like one of a dead process."""
    made: list[Path] = []
    lock = temporary_folder._lock

    def locked(path: Path) -> int:
        made.append(path)
        if len(made) == 1:
            held = lock(path)
            try:
                return lock(path)
            finally:
                os.close(held)
        if len(made) == 2:
            fd = lock(path)
            path.rmdir()
            return fd
        if len(made) == 3:
            path.rmdir()
        return lock(path)

    monkeypatch.setattr(temporary_folder, "_lock", locked)
    path, held = make_folder()
    assert len(set(made)) == 4
    assert path == made[3]
    monkeypatch.undo()
    remove_folder(path, held)
