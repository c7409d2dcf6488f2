"""The host's side of the workspace: what is sent, what is stored, and what neither can be talked into."""

import errno
import os
import socket
import sys
from pathlib import Path

import pytest

from codeact_sandbox.files.host_folder import Skipped
from codeact_sandbox.files.workspace import HostFile, Workspace
from codeact_sandbox.types.errors import SandboxError, SandboxFileError
from tests.sandbox.files.workspaces import names, send


class TestPrepare:
    def test_creates_the_folder_and_its_parents_and_leaves_nothing_in_it(self, tmp_path: Path):
        workspace = Workspace(tmp_path / "a" / "b")
        workspace.prepare()
        workspace.prepare()
        assert list((tmp_path / "a" / "b").iterdir()) == []

    def test_file_instead_of_the_folder_is_an_error(self, root: Path):
        root.write_text("I am a file")
        with pytest.raises(SandboxFileError, match="Use another name, or remove it") as caught:
            Workspace(root).prepare()
        assert caught.value.errno == errno.EEXIST
        assert isinstance(caught.value, OSError)
        assert isinstance(caught.value, SandboxError)

    def test_a_folder_that_can_not_be_created(self):
        folder = Path("/proc/sys/codeact-work") if sys.platform == "linux" else Path("/dev/codeact-work")
        with pytest.raises(SandboxFileError, match=f"The work_dir {folder} can't be used: ") as caught:
            Workspace(folder).prepare()
        assert "no longer" not in str(caught.value)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_missing_permission_is_an_error(self, root: Path):
        root.mkdir(mode=0o500)
        with pytest.raises(SandboxFileError, match="Change the owner or mode"):
            Workspace(root).prepare()


class TestOutgoing:
    def test_everything_is_sent_first_and_then_only_changes(self, workspace: Workspace, root: Path):
        (root / "data").mkdir()
        (root / "data" / "b.csv").write_text("1,2")
        (root / "a.sh").write_text("echo")
        (root / "a.sh").chmod(0o700)
        assert workspace.outgoing() == [
            HostFile("a.sh", 4, 0o755, root / "a.sh"),
            HostFile("data/b.csv", 3, 0o644, root / "data" / "b.csv"),
        ]
        assert send(workspace) == {"a.sh": b"echo", "data/b.csv": b"1,2"}
        assert send(workspace) == {}
        (root / "data" / "b.csv").write_text("1,2,3")
        (root / "new").write_text("")
        assert send(workspace) == {"data/b.csv": b"1,2,3", "new": b""}
        assert workspace.skipped == []

    def test_a_change_without_a_change_of_the_stat_is_detected(self, workspace, root, monkeypatch):
        """As on kernels whose file times move in ticks: all the files' times are one and the same."""
        monkeypatch.setattr("codeact_sandbox.files.workspace.signature_of", lambda status: (0, 0, 0, 0))
        # A tick is much shorter than that; but the test may be held up between two steps.
        monkeypatch.setattr("codeact_sandbox.files.workspace._FRESH_NS", 60 * 10**9)
        (root / "n").write_text("1")
        assert send(workspace) == {"n": b"1"}
        assert send(workspace) == {}
        (root / "n").write_text("2")
        assert send(workspace) == {"n": b"2"}
        workspace.store("n", 0o644, [b"3"])
        assert send(workspace) == {}
        (root / "n").write_text("4")
        assert send(workspace) == {"n": b"4"}

    def test_deletion_is_not_propagated_and_the_file_can_come_back(self, workspace: Workspace, root: Path):
        (root / "a").write_text("1")
        send(workspace)
        (root / "a").unlink()
        assert workspace.outgoing() == []
        (root / "a").write_text("1")
        assert send(workspace) == {"a": b"1"}

    def test_fifo_socket_and_device_are_skipped_without_opening(self, root: Path, workspace: Workspace):
        os.mkfifo(root / "fifo")
        with socket.socket(socket.AF_UNIX) as listener:
            here = Path.cwd()
            os.chdir(root)  # the path of a socket is short
            try:
                listener.bind("socket")
            finally:
                os.chdir(here)
            assert workspace.outgoing() == []
        assert {(entry.name, entry.reason) for entry in workspace.skipped} == {
            ("fifo", "is not a regular file."),
            ("socket", "is not a regular file."),
        }

    def test_size_caps_at_their_edges(self, root: Path):
        workspace = Workspace(root, max_file_bytes=10, max_total_bytes=25)
        workspace.prepare()
        for name, size in {"a": 10, "b": 11, "c": 10, "d": 6, "e": 5}.items():
            (root / name).write_bytes(b"x" * size)
        assert names(workspace.outgoing()) == ["a", "c", "e"]
        mount = "data= shows it in /data without copying it, and bind_dir= mounts a folder that can be written"
        assert workspace.skipped == [
            Skipped("b", f"has 11 bytes; at most 10 are sent. {mount}; in Python, upload() sends it once.", limit=True),
            Skipped("d", f"would bring all files together over 25 bytes. {mount}.", limit=True),
        ]

    def test_too_many_files_are_refused(self, root: Path):
        workspace = Workspace(root, max_files=5)
        workspace.prepare()
        for number in range(5):
            (root / str(number)).write_text("x")
        assert len(workspace.outgoing()) == 5
        assert workspace.skipped == []
        (root / "5").write_text("x")
        assert len(workspace.outgoing()) == 5
        assert [entry.name for entry in workspace.skipped] == ["."]
        assert "more than 5 files" in workspace.skipped[0].reason

    def test_a_removed_folder_is_an_error(self, workspace: Workspace, root: Path):
        root.rmdir()
        with pytest.raises(SandboxFileError, match="no longer exists"):
            workspace.outgoing()


class TestRead:
    def test_file_that_has_grown_or_shrunk_since_the_scan(self, workspace: Workspace, root: Path):
        (root / "a").write_text("12345")
        (file,) = workspace.outgoing()
        (root / "a").write_text("1234567")
        assert list(workspace.read(file)) == [b"12345"]
        (root / "a").write_text("123")
        assert list(workspace.read(file)) == [b"123"]
