"""The runner removes what code has left in a folder, whatever that is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from codeact_sandbox.runner.shared import folders

DEPTH = 1500


def remove(folder: Path) -> int:
    """Remove the content of a folder; return the number of steps."""
    return sum(1 for _ in folders.remove_content(str(folder)))


def make_deep(folder: Path) -> None:
    """Make a tree that is deeper than Python's stack and than the length of a path."""
    program = f"import os\nfor _ in range({DEPTH}): os.mkdir('folder'); open('file', 'w').close(); os.chdir('folder')"
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)


def test_removes_deep_large_and_closed_folders(tmp_path: Path) -> None:
    make_deep(tmp_path)
    (tmp_path / "large").mkdir()
    for number in range(3 * folders.BATCH):
        (tmp_path / "large" / str(number)).touch()
    (tmp_path / "closed" / "inner").mkdir(parents=True)
    (tmp_path / "closed" / "inner" / "file").touch()
    (tmp_path / "closed" / "inner").chmod(0)
    (tmp_path / "closed").chmod(0)
    (tmp_path / "link").symlink_to(tmp_path.parent)
    assert remove(tmp_path) > 2 * DEPTH
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_leaves_what_is_mounted(tmp_path: Path) -> None:
    mounted = tmp_path / "folder" / "mounted"
    mounted.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "none", mounted], check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        mounted.chmod(0o755)
        (mounted / "file").touch()
        (tmp_path / "folder" / "file").touch()
        remove(tmp_path)
        assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
            "folder",
            "folder/mounted",
            "folder/mounted/file",
        ]
        assert mounted.stat().st_mode & 0o777 == 0o755
    finally:
        subprocess.run(["umount", mounted], check=True)
