"""Files that the sandbox sends: whole or not at all, and never outside the folder."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codeact_sandbox.files.workspace import Workspace
from codeact_sandbox.types.errors import SandboxFileError
from codeact_sandbox.types.filenames import safe_name
from tests.sandbox.files.workspaces import names
from tests.texts import ANY


def listing(folder: Path) -> dict[str, object]:
    """Everything under a folder: kind, permission bits, content, link targets."""
    found: dict[str, object] = {}
    for parent, folders, files in os.walk(folder):
        for name in folders + files:
            path = Path(parent, name)
            status = path.lstat()
            content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            found[str(path.relative_to(folder))] = (status.st_mode, status.st_ino, content)
    return found


class TestStore:
    def test_content_mode_and_folders(self, workspace: Workspace, root: Path):
        path = workspace.store("out/deep/run.sh", 0o6711, [b"echo ", b"", b"hi"])
        assert path == root / "out" / "deep" / "run.sh"
        assert path.read_bytes() == b"echo hi"
        assert path.stat().st_mode & 0o7777 == 0o755
        assert workspace.store("./plain", 0o600, []).stat().st_mode & 0o7777 == 0o644

    def test_the_old_file_stays_until_the_new_one_is_whole(self, workspace: Workspace, root: Path):
        (root / "a").write_text("old")

        def chunks():
            yield b"new"
            assert (root / "a").read_text() == "old"
            assert names(workspace.outgoing()) == ["a"], "the part file is not offered"
            raise ConnectionResetError("the stream broke")

        with pytest.raises(ConnectionResetError, match="the stream broke"):
            workspace.store("a", 0o644, chunks())
        assert {name: entry[2] for name, entry in listing(root).items()} == {"a": b"old"}

    def test_a_fifo_in_its_place_is_replaced_without_opening(self, workspace: Workspace, root: Path):
        os.mkfifo(root / "fifo")
        assert workspace.store("fifo", 0o644, [b"x"]).read_bytes() == b"x"
        os.mkfifo(root / "folder")
        with pytest.raises(SandboxFileError):
            workspace.store("folder/x", 0o644, [b"x"])

    def test_a_folder_in_its_place(self, workspace: Workspace, root: Path):
        (root / "a").mkdir()
        with pytest.raises(SandboxFileError, match="there is a folder of that name") as caught:
            workspace.store("a", 0o644, [b"x"])
        assert caught.value.errno == errno.EISDIR
        assert list(listing(root)) == ["a"]

    def test_limits_exceeded_while_writing_leave_nothing(self, root: Path):
        workspace = Workspace(root, max_files=3, max_file_bytes=10, max_total_bytes=15)
        workspace.prepare()
        (root / "mine").write_bytes(b"x" * 3)
        workspace.store("a", 0o644, [b"x" * 5, b"x" * 5])
        (root / "new").mkdir()
        before = listing(root)
        for name, chunks, number in [
            ("new/big", [b"x", b"x" * 10], errno.EFBIG),
            ("new/total", [b"x" * 3], errno.EDQUOT),
            ("mine", [b"x" * 6], errno.EDQUOT),
        ]:
            with pytest.raises(SandboxFileError) as caught:
                workspace.store(name, 0o644, iter(chunks))
            assert caught.value.errno == number
            assert listing(root) == before
        workspace.store("mine", 0o644, [b"x" * 5])
        workspace.store("empty", 0o644, [])
        with pytest.raises(SandboxFileError, match="3 files are there already") as caught:
            workspace.store("fourth", 0o644, [])
        assert caught.value.errno == errno.EDQUOT
        workspace.outgoing()
        workspace.store("a", 0o644, [b"x" * 10])


PARTS = st.one_of(
    st.sampled_from(["..", ".", "", "link", "deep", "back", "file", "-x", "\0", "canary.txt", "x" * 255, "\udcff"]),
    st.text(ANY, max_size=8),
)
NAMES = st.one_of(st.lists(PARTS, max_size=6).map("/".join), st.text(ANY, max_size=40))


@given(name=NAMES, mode=st.integers(0, 0o177777), content=st.binary(max_size=20))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_name_writes_outside(tmp_path: Path, name: str, mode: int, content: bytes):
    shutil.rmtree(tmp_path)
    root, outside = tmp_path / "in" / "root", tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "canary.txt").write_text("alive")
    (outside / "deep" / "file").write_text("alive")
    root.mkdir(parents=True)
    (root / "link").symlink_to(outside)
    (root / "back").symlink_to("..")
    (root / "file").symlink_to(outside / "canary.txt")
    (root / "deep").mkdir()
    (root / "deep" / "link").symlink_to(outside / "deep")

    def everything_else() -> dict[str, object]:
        return {key: value for key, value in listing(tmp_path).items() if not key.startswith("in/root/")}

    before = everything_else()
    try:
        path = Workspace(root).store(name, mode, [content])
    except SandboxFileError:
        pass
    else:
        assert path == root / safe_name(name)
        assert not path.is_symlink()
        assert path.resolve().is_relative_to(root.resolve())
        assert path.read_bytes() == content
        assert path.stat().st_mode & 0o7777 in {0o644, 0o755}
    assert everything_else() == before
