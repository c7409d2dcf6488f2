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

from codeact_sandbox.backends.leftovers import remove_leftovers_in_background
from codeact_sandbox.files.temporary_folder import (
    PREFIX,
    abandoned_folders,
    owner_of,
    remove_abandoned,
)

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


def test_forked_child_that_ends_keeps_its_parents_folder(place: Path) -> None:
    program = """
import os, sys, tempfile
from codeact_sandbox.files.temporary_folder import TemporaryFolder
tempfile.tempdir = sys.argv[1]
folder = TemporaryFolder()
if os.fork() == 0:
    sys.exit(0)
os.wait()
print(folder.path.is_dir(), flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, place], capture_output=True, text=True, timeout=50, check=True
    )
    assert (done.stdout, list(place.iterdir())) == ("True\n", [])
