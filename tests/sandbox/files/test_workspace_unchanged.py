"""When the host's folder need not be looked through: never where something in it may have changed."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from codeact_sandbox.files.workspace import Workspace
from tests.sandbox.files.workspaces import send

DEADLINE_S = 20.0


def settle(workspace: Workspace) -> None:
    """Look until nothing need be looked at any more."""
    deadline = time.monotonic() + DEADLINE_S
    while not workspace.unchanged():
        assert time.monotonic() < deadline
        assert send(workspace) == {}
        time.sleep(0.01)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "work")
    workspace.prepare()
    (workspace.root / "a.txt").write_text("one")
    (workspace.root / "sub" / "deep").mkdir(parents=True)
    (workspace.root / "sub" / "deep" / "b.txt").write_text("two")
    (workspace.root / "link").symlink_to("a.txt")
    return workspace


def test_a_folder_that_was_just_scanned_does_not_count_as_unchanged(workspace: Workspace) -> None:
    assert not workspace.unchanged()
    assert list(send(workspace)) == ["a.txt", "sub/deep/b.txt"]
    assert not workspace.unchanged()
    assert send(workspace) == {}
    # Two looks at nothing new, but not far enough from each other for the ticks of the times.
    fresh = Workspace(workspace.root)
    assert list(send(fresh)) == ["a.txt", "sub/deep/b.txt"]
    assert send(fresh) == send(fresh) == {}
    settle(workspace)
    assert workspace.unchanged()


CHANGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "other words of the same length": (lambda root: (root / "a.txt").write_text("eno"), ["a.txt"]),
    "more words in a folder": (lambda root: (root / "sub/deep/b.txt").write_text("three"), ["sub/deep/b.txt"]),
    "another mode": (lambda root: (root / "a.txt").chmod(0o755), ["a.txt"]),
    "a time set back": (lambda root: os.utime(root / "a.txt", ns=(0, 0)), ["a.txt"]),
    "a new file": (lambda root: (root / "c.txt").write_text(""), ["c.txt"]),
    "a new file in a folder": (lambda root: (root / "sub/c.txt").write_text(""), ["sub/c.txt"]),
    "another file of the same name": (lambda root: _replace(root / "a.txt"), ["a.txt"]),
    "a file that is gone": (lambda root: (root / "a.txt").unlink(), []),
    "a folder that is gone": (lambda root: shutil.rmtree(root / "sub"), []),
    "another folder of the same name": (lambda root: _move_away(root / "sub/deep"), ["sub/deep/new.txt"]),
    "a link in place of a folder": (lambda root: _link(root / "sub/deep"), []),
}


def _replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("one")
    shutil.copystat(path, other)
    other.replace(path)


def _move_away(folder: Path) -> None:
    shutil.move(folder, folder.parents[2] / "away")
    folder.mkdir()
    (folder / "new.txt").write_text("")


def _link(folder: Path) -> None:
    away = folder.parents[2] / "away"
    shutil.move(folder, away)
    folder.symlink_to(away)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_detected_by_the_next_check(workspace: Workspace, change: str) -> None:
    send(workspace)
    settle(workspace)
    make, found = CHANGES[change]
    make(workspace.root)
    assert not workspace.unchanged()
    assert list(send(workspace)) == found
    settle(workspace)
