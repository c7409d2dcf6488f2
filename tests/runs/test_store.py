"""Where runs are kept by default: names, finding, and removing the oldest."""

import fcntl
import os
import re
import subprocess
import sys
from contextlib import contextmanager

import pytest

from autogen_codeact.runs.errors import RunFolderError
from autogen_codeact.runs.store import EVENTS, find_run, is_being_written, new_run_folder, runs_folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the default folder, which does not exist yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "autogen-codeact" / "runs"


def make(folder, name, *, size=100, written=1_800_000_000.0, log=b"x"):
    """Make a folder with a log, and another file, of so many bytes together."""
    (folder / name / "files").mkdir(parents=True)
    (folder / name / EVENTS).write_bytes(log)
    (folder / name / "files" / "a").write_bytes(bytes(size - len(log)))
    os.utime(folder / name / EVENTS, (written, written))
    return folder / name


@contextmanager
def writer_of(run):
    """Hold the lock that the writer of a log holds."""
    with open(run / EVENTS, "ab") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        yield


def test_the_folder_is_in_the_state_folder_of_the_user(folder, monkeypatch, tmp_path):
    assert runs_folder() == folder
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert runs_folder() == tmp_path / ".local" / "state" / "autogen-codeact" / "runs"
    assert not folder.exists()


@pytest.mark.parametrize(
    ("task", "slug"),
    [
        ("Plot sales, by month!", "plot-sales-by-month"),
        ("../../etc/passwd\n; rm -rf", "etc-passwd-rm-rf"),
        ("Réécris l'été", "reecris-l-ete"),
        ("画个图", "run"),
        ("a" * 50, "a" * 32),
        ("one two three four five six seven eight nine", "one-two-three-four-five-six"),
        ("", "run"),
    ],
)
def test_a_new_run_is_named_by_time_and_task(folder, task, slug):
    path = new_run_folder(task)
    assert path.parent == folder
    assert re.fullmatch(rf"\d{{8}}-\d{{6}}-{slug}-[0-9a-f]{{4}}", path.name)
    assert not path.exists()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_run_is_found_by_path_by_name_and_as_the_last(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text, words in (
        ("last", f"There is no last run: {folder} has none. `codeact run` keeps its run there."),
        ("plot", f"There is no run plot, neither here nor in {folder}. `codeact runs` lists those that are kept."),
    ):
        with pytest.raises(RunFolderError) as raised:
            find_run(text)
        assert str(raised.value) == words
    make(folder, "20261122-174501-b-0000", written=5.0)
    make(folder, "20261122-174501-a-0000", written=6.0)
    make(folder, "20261121-174501-z-0000", written=7.0)
    make(folder, "mine", written=8.0)
    (folder / "20271122-174501-empty-0000").mkdir()
    (folder / "20271122-174501-link-0000").symlink_to(folder / "mine")
    assert find_run("last") == folder / "20261122-174501-a-0000"
    assert find_run("20261122-174501-b") == folder / "20261122-174501-b-0000"
    with pytest.raises(RunFolderError, match=r"^The names of 2 runs begin with 20261122: give more of the name\."):
        find_run("20261122")
    assert find_run("last", is_chat=lambda path: "-z-" in path.name) == folder / "20261121-174501-z-0000"
    with pytest.raises(
        RunFolderError, match=rf"^There is no last chat: {folder} has none\. `codeact chat` keeps its chat"
    ):
        find_run("last", is_chat=lambda _: False)
    assert find_run("mine") == folder / "mine"
    assert str(find_run("./mine")) == "mine"
    assert str(find_run("none/mine")) == "none/mine"
    (tmp_path / "mine").mkdir()
    assert str(find_run("mine")) == "mine"


def test_a_run_is_being_written_while_its_writer_has_the_lock(folder):
    run = make(folder, "run")
    assert not is_being_written(run)
    with writer_of(run):
        assert is_being_written(run)
    assert not is_being_written(run)
    assert not is_being_written(folder / "none")
    (run / EVENTS).unlink()
    os.mkfifo(run / EVENTS)
    assert not is_being_written(run)


def test_the_module_imports_no_autogen_and_no_pydantic():
    program = "import sys, autogen_codeact.runs.store; print([m for m in sys.modules if 'autogen_' in m or 'pyd' in m])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "autogen_core" not in done.stdout
    assert "pydantic" not in done.stdout
    assert "autogen_codeact.runs.writer" not in done.stdout
