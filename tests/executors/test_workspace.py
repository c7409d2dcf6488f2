"""The host's side of the workspace: what is sent, what is stored, and what neither can be talked into."""

import errno
import os
import shutil
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from autogen_codeact.executors.errors import SandboxError, SandboxFileError
from autogen_codeact.executors.filenames import MAX_DEPTH, MAX_NAME_BYTES
from autogen_codeact.executors.workspace import HostFile, Skipped, Workspace, safe_name
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "work"


@pytest.fixture
def workspace(root: Path) -> Workspace:
    workspace = Workspace(root)
    workspace.prepare()
    return workspace


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the workspace that nothing may touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "canary.txt").write_text("alive")
    return folder


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


def names(files: list[HostFile]) -> list[str]:
    return [file.name for file in files]


def send(workspace: Workspace) -> dict[str, bytes]:
    """What an executor does before a block."""
    sent = {file.name: b"".join(workspace.read(file)) for file in workspace.outgoing()}
    workspace.mark_synced(sent)
    return sent


class TestPrepare:
    def test_creates_the_folder_and_its_parents_and_leaves_nothing_in_it(self, tmp_path: Path):
        workspace = Workspace(tmp_path / "a" / "b")
        workspace.prepare()
        workspace.prepare()
        assert list((tmp_path / "a" / "b").iterdir()) == []

    def test_making_a_workspace_touches_nothing(self, root: Path):
        Workspace(root)
        assert not root.exists()

    def test_a_file_in_its_place(self, root: Path):
        root.write_text("I am a file")
        with pytest.raises(SandboxFileError, match="Remove it, or use another name") as caught:
            Workspace(root).prepare()
        assert caught.value.errno == errno.EEXIST
        assert isinstance(caught.value, OSError)
        assert isinstance(caught.value, SandboxError)

    def test_a_place_where_nobody_may_write(self):
        folder = Path("/proc/sys/codeact-work") if sys.platform == "linux" else Path("/dev/codeact-work")
        with pytest.raises(SandboxFileError, match=f"The work_dir {folder} can't be used: "):
            Workspace(folder).prepare()

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_no_permission(self, root: Path):
        root.mkdir(mode=0o500)
        with pytest.raises(SandboxFileError, match="Change the owner or mode"):
            Workspace(root).prepare()

    def test_hosts_without_folder_descriptors_are_told(self, root: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(os, "supports_dir_fd", set())
        with pytest.raises(SandboxFileError, match="needs Linux or macOS; on Windows, run this inside WSL 2"):
            Workspace(root).prepare()


class TestOutgoing:
    def test_first_everything_then_only_what_changed(self, workspace: Workspace, root: Path):
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

    def test_a_file_that_was_not_marked_is_offered_again(self, workspace: Workspace, root: Path):
        (root / "a").write_text("1")
        assert names(workspace.outgoing()) == ["a"]
        assert names(workspace.outgoing()) == ["a"]

    def test_the_same_size_at_once_is_still_a_change(self, workspace: Workspace, root: Path):
        """Many rounds, because the file's times may not have moved on between two writes."""
        for number in range(100, 200):
            (root / "n").write_text(str(number))
            assert send(workspace) == {"n": str(number).encode()}
            assert send(workspace) == {}

    def test_a_change_that_left_no_trace_in_the_stat(
        self, workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """As on kernels whose file times move in ticks: all the files' times are one and the same."""
        monkeypatch.setattr("autogen_codeact.executors.workspace._signature", lambda status: (0, 0, 0, 0))
        (root / "n").write_text("1")
        assert send(workspace) == {"n": b"1"}
        assert send(workspace) == {}
        (root / "n").write_text("2")
        assert send(workspace) == {"n": b"2"}
        workspace.store("n", 0o644, [b"3"])
        assert send(workspace) == {}
        (root / "n").write_text("4")
        assert send(workspace) == {"n": b"4"}

    def test_a_change_with_its_time_set_back_and_a_new_mode(self, workspace: Workspace, root: Path):
        (root / "a").write_text("1")
        os.utime(root / "a", (1, 1))
        send(workspace)
        (root / "a").write_text("2")
        os.utime(root / "a", (1, 1))
        assert send(workspace) == {"a": b"2"}
        (root / "a").chmod(0o755)
        assert [(file.name, file.mode) for file in workspace.outgoing()] == [("a", 0o755)]

    def test_changed_between_scan_and_mark(self, workspace: Workspace, root: Path):
        (root / "a").write_text("old")
        files = workspace.outgoing()
        content = b"".join(workspace.read(files[0]))
        (root / "a").write_text("newer")
        workspace.mark_synced(["a"])
        assert content == b"old"
        assert send(workspace) == {"a": b"newer"}

    def test_deletion_is_not_propagated_and_the_file_can_come_back(self, workspace: Workspace, root: Path):
        (root / "a").write_text("1")
        send(workspace)
        (root / "a").unlink()
        assert workspace.outgoing() == []
        (root / "a").write_text("1")
        assert send(workspace) == {"a": b"1"}

    def test_links_are_skipped_and_named_once(self, workspace: Workspace, root: Path, outside: Path):
        (root / "file").symlink_to(outside / "canary.txt")
        (root / "folder").symlink_to(outside)
        (root / "loop").symlink_to(root / "loop")
        (root / "self").symlink_to(root)
        (root / "real").write_text("x")
        assert names(workspace.outgoing()) == ["real"]
        assert sorted(workspace.skipped, key=lambda entry: entry.name) == [
            Skipped(name, "is a symbolic link.") for name in ("file", "folder", "loop", "self")
        ]
        workspace.outgoing()
        assert workspace.skipped == []
        (root / "file").unlink()
        workspace.outgoing()
        (root / "file").symlink_to(outside)
        workspace.outgoing()
        assert workspace.skipped == [Skipped("file", "is a symbolic link.")]

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

    def test_a_sparse_terabyte_is_skipped_by_size(self, workspace: Workspace, root: Path):
        with (root / "sparse").open("wb") as file:
            file.truncate(1024**4)
        (root / "small").write_text("x")
        assert names(workspace.outgoing()) == ["small"]
        assert workspace.skipped == [Skipped("sparse", "is 1099511627776 bytes large; at most 104857600 are sent.")]
        workspace.outgoing()
        assert workspace.skipped == []

    def test_size_caps_at_their_edges(self, root: Path):
        workspace = Workspace(root, max_file_bytes=10, max_total_bytes=25)
        workspace.prepare()
        for name, size in {"a": 10, "b": 11, "c": 10, "d": 6, "e": 5}.items():
            (root / name).write_bytes(b"x" * size)
        assert names(workspace.outgoing()) == ["a", "c", "e"]
        assert workspace.skipped == [
            Skipped("b", "is 11 bytes large; at most 10 are sent."),
            Skipped("d", "would bring all files together over 25 bytes."),
        ]

    def test_too_many_files(self, root: Path):
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

    def test_folders_without_end_are_bounded(self, root: Path):
        workspace = Workspace(root, max_files=5)
        workspace.prepare()
        for number in range(50):
            (root / str(number)).mkdir()
        assert workspace.outgoing() == []
        assert [entry.name for entry in workspace.skipped] == ["."]

    def test_a_folder_too_deep_is_named(self, workspace: Workspace, root: Path):
        deepest = root.joinpath(*["d"] * (MAX_DEPTH - 1))
        deepest.mkdir(parents=True)
        (deepest / "f").write_text("x")
        (deepest / "d").mkdir()
        (deepest / "d" / "f").write_text("x")
        assert names(workspace.outgoing()) == ["d/" * (MAX_DEPTH - 1) + "f"]
        assert [entry.name for entry in workspace.skipped] == ["d/" * (MAX_DEPTH - 1) + "d"]

    @pytest.mark.skipif(sys.platform == "darwin", reason="macOS refuses such names itself")
    def test_names_that_cant_travel_are_skipped_and_printable(self, workspace: Workspace, root: Path):
        for name in (b"un\xffdecodable", b"new\nline", b"-option", b"back\\slash"):
            (root / os.fsdecode(name)).write_text("x")
        assert workspace.outgoing() == []
        shown = {entry.name: entry.reason for entry in workspace.skipped}
        assert set(shown) == {"un\\udcffdecodable", "new\\nline", "-option", "back\\slash"}
        assert "not valid Unicode" in shown["un\\udcffdecodable"]
        assert all(text.isprintable() for text in [*shown, *shown.values()])

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_unreadable_things_are_skipped(self, workspace: Workspace, root: Path):
        (root / "file").touch(mode=0)
        (root / "folder").mkdir(mode=0)
        assert workspace.outgoing() == []
        assert {entry.name for entry in workspace.skipped} == {"file", "folder"}

    def test_the_folder_is_gone(self, workspace: Workspace, root: Path):
        root.rmdir()
        with pytest.raises(SandboxFileError, match="no longer exists"):
            workspace.outgoing()


class TestRead:
    def test_chunks(self, workspace: Workspace, root: Path):
        content = os.urandom(600_000)
        (root / "big").write_bytes(content)
        chunks = list(workspace.read(workspace.outgoing()[0]))
        assert [len(chunk) for chunk in chunks] == [262_144, 262_144, 75_712]
        assert b"".join(chunks) == content

    def test_grown_and_shrunk_since_the_scan(self, workspace: Workspace, root: Path):
        (root / "a").write_text("12345")
        (file,) = workspace.outgoing()
        (root / "a").write_text("1234567")
        assert list(workspace.read(file)) == [b"12345"]
        (root / "a").write_text("123")
        assert list(workspace.read(file)) == [b"123"]

    @pytest.mark.parametrize("kind", ["link", "fifo", "folder", "gone"])
    def test_swapped_after_the_scan(self, workspace: Workspace, root: Path, outside: Path, kind: str):
        (root / "a").write_text("12345")
        (file,) = workspace.outgoing()
        (root / "a").unlink()
        if kind == "link":
            (root / "a").symlink_to(outside / "canary.txt")
        elif kind == "fifo":
            os.mkfifo(root / "a")
        elif kind == "folder":
            (root / "a").mkdir()
        with pytest.raises(SandboxFileError, match="Can't read `a`"):
            list(workspace.read(file))

    def test_folder_swapped_for_a_link_after_the_scan(self, workspace: Workspace, root: Path, outside: Path):
        (root / "sub").mkdir()
        (root / "sub" / "canary.txt").write_text("mine")
        (file,) = workspace.outgoing()
        assert list(workspace.read(file)) == [b"mine"]
        shutil.rmtree(root / "sub")
        (root / "sub").symlink_to(outside)
        assert file.path.read_text() == "alive"  # what following the link would have given away
        with pytest.raises(SandboxFileError, match="symbolic link"):
            list(workspace.read(file))


class TestStore:
    def test_content_mode_and_folders(self, workspace: Workspace, root: Path):
        path = workspace.store("out/deep/run.sh", 0o6711, [b"echo ", b"", b"hi"])
        assert path == root / "out" / "deep" / "run.sh"
        assert path.read_bytes() == b"echo hi"
        assert path.stat().st_mode & 0o7777 == 0o755
        assert workspace.store("./plain", 0o600, []).stat().st_mode & 0o7777 == 0o644

    def test_what_was_stored_is_not_sent_back(self, workspace: Workspace, root: Path):
        workspace.store("a", 0o644, [b"1"])
        assert workspace.outgoing() == []
        workspace.store("a", 0o644, [b"2"])
        assert workspace.outgoing() == []
        (root / "a").write_text("3")
        assert send(workspace) == {"a": b"3"}

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

    def test_a_link_in_the_files_place_is_replaced(self, workspace: Workspace, root: Path, outside: Path):
        before = listing(outside)
        (root / "a").symlink_to(outside / "canary.txt")
        (root / "dangling").symlink_to(outside / "new.txt")
        (root / "loop").symlink_to(root / "loop")
        for name in ("a", "dangling", "loop"):
            path = workspace.store(name, 0o644, [b"stored"])
            assert not path.is_symlink()
            assert path.read_bytes() == b"stored"
        assert listing(outside) == before

    def test_a_hard_link_keeps_its_content(self, workspace: Workspace, root: Path, outside: Path):
        before = listing(outside)
        os.link(outside / "canary.txt", root / "a")
        workspace.store("a", 0o755, [b"stored"])
        assert listing(outside) == before

    @pytest.mark.parametrize("name", ["link/canary.txt", "link/new/canary.txt", "sub/link/canary.txt", "loop/a"])
    def test_a_link_in_a_folders_place_is_refused(self, workspace: Workspace, root: Path, outside: Path, name: str):
        (root / "sub").mkdir()
        (root / "link").symlink_to(outside)
        (root / "sub" / "link").symlink_to(outside)
        (root / "loop").symlink_to(root / "loop")
        before, before_inside = listing(outside), listing(root)
        with pytest.raises(SandboxFileError, match="symbolic link") as caught:
            workspace.store(name, 0o644, [b"stored"])
        assert caught.value.errno in {errno.ELOOP, errno.ENOTDIR}
        assert (listing(outside), listing(root)) == (before, before_inside)

    def test_folder_swapped_for_a_link_between_two_calls(self, workspace: Workspace, root: Path, outside: Path):
        workspace.store("sub/canary.txt", 0o644, [b"1"])
        (root / "sub").rename(root / "moved")
        (root / "sub").symlink_to(outside)
        before = listing(outside)
        with pytest.raises(SandboxFileError):
            workspace.store("sub/canary.txt", 0o644, [b"2"])
        assert listing(outside) == before

    def test_folder_swapped_for_a_link_while_it_is_written(self, workspace: Workspace, root: Path, outside: Path):
        before = listing(outside)

        def chunks():
            yield b"1"
            (root / "sub").rename(root / "moved")
            (root / "sub").symlink_to(outside)
            yield b"2"

        workspace.store("sub/canary.txt", 0o644, chunks())
        assert listing(outside) == before
        assert (root / "moved" / "canary.txt").read_bytes() == b"12"

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

    @pytest.mark.parametrize("name", ["../a", "a/../../b", "/etc/passwd", "", ".", "a\0b", "-rf", "a/", "x\udcff"])
    def test_unsafe_names(self, workspace: Workspace, tmp_path: Path, name: str):
        before = listing(tmp_path)
        with pytest.raises(SandboxFileError) as caught:
            workspace.store(name, 0o644, [b"x"])
        assert caught.value.errno == errno.EINVAL
        assert listing(tmp_path) == before

    def test_caps_while_writing_leave_nothing(self, root: Path):
        workspace = Workspace(root, max_files=3, max_file_bytes=10, max_total_bytes=15)
        workspace.prepare()
        (root / "mine").write_bytes(b"x" * 3)
        workspace.store("a", 0o644, [b"x" * 5, b"x" * 5])
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
        with pytest.raises(SandboxFileError, match="already holds 3 files") as caught:
            workspace.store("fourth", 0o644, [])
        assert caught.value.errno == errno.EDQUOT
        workspace.outgoing()
        workspace.store("a", 0o644, [b"x" * 10])

    def test_endless_chunks_are_cut_off_at_the_cap(self, root: Path):
        workspace = Workspace(root, max_file_bytes=1000)
        workspace.prepare()
        taken = []

        def endless():
            while True:
                taken.append(1)
                yield b"x" * 100

        with pytest.raises(SandboxFileError):
            workspace.store("a", 0o644, endless())
        assert len(taken) == 11

    def test_no_descriptor_is_left_open(self, workspace: Workspace, root: Path, outside: Path):
        (root / "link").symlink_to(outside)
        (root / "f").write_text("x" * 10)
        (file,) = workspace.outgoing()
        before = len(os.listdir("/dev/fd"))
        for _ in range(20):
            workspace.store("a/b/c", 0o644, [b"x"])
            workspace.outgoing()
            next(workspace.read(file))
            for name in ("link/x", "a", "../x"):
                with pytest.raises(SandboxFileError):
                    workspace.store(name, 0o644, [b"x"])
        assert len(os.listdir("/dev/fd")) == before


DISK_FULL = """
import errno, os, subprocess, sys
from pathlib import Path
from autogen_codeact.executors.workspace import Workspace
from autogen_codeact.executors.errors import SandboxFileError

root = Path(sys.argv[1])
mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(root)], capture_output=True, text=True)
if mounted.returncode:
    sys.exit("no mount: " + mounted.stderr)
workspace = Workspace(root)
workspace.prepare()
workspace.store("kept", 0o644, [b"x" * 500_000])
try:
    workspace.store("new/full", 0o644, [b"x" * 100_000] * 10)
except SandboxFileError as error:
    assert error.errno == errno.ENOSPC, error.errno
    print(error)
print(sorted(os.listdir(root)), (root / "kept").stat().st_size)
workspace.store("later", 0o644, [b"x" * 400_000])
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare to mount a small disk")
def test_disk_full(root: Path):
    root.mkdir()
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", DISK_FULL, str(root)]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=50)
    if "no mount" in run.stderr or "unshare failed" in run.stderr:
        pytest.skip(f"not proven on this kernel: {run.stderr.strip()}")
    assert run.stderr == ""
    assert run.stdout.splitlines() == [
        f"Can't store `new/full` in {root}: the host's disk is full. "
        "Free some space, or use a work_dir on another disk.",
        "['kept'] 500000",
    ]


def test_a_write_that_the_host_refuses_half_way(root: Path):
    """The same without any right to mount: the process may not write files of more than 100,000 bytes."""
    script = """
        import os, resource, sys
        from pathlib import Path
        from autogen_codeact.executors.workspace import Workspace
        workspace = Workspace(Path(sys.argv[1]))
        workspace.prepare()
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            workspace.store("new/a", 0o644, [b"x" * 60_000] * 2)
        except OSError as error:
            print(type(error).__name__, error.errno, os.listdir(sys.argv[1]))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(root)]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=50)
    assert (run.stdout, run.stderr) == (f"SandboxFileError {errno.EFBIG} []\n", "")


class TestSafeName:
    @pytest.mark.parametrize(
        ("name", "safe"),
        [
            ("a.py", "a.py"),
            ("./a//b/./c.txt", "a/b/c.txt"),
            ("with space/ü/图.png", "with space/ü/图.png"),
            (".hidden", ".hidden"),
            ("...", "..."),
            ("a-b", "a-b"),
            ("C:x", "C:x"),
            ("x" * 255, "x" * 255),
            ("/".join(["d"] * MAX_DEPTH), "/".join(["d"] * MAX_DEPTH)),
        ],
    )
    def test_accepted(self, name: str, safe: str):
        assert safe_name(name) == safe
        assert safe_name(safe) == safe

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("", "empty"),
            (" \t", "empty"),
            (".", "workspace itself"),
            ("././/.", "names a folder"),
            ("..", "could leave the workspace"),
            ("a/../b", "could leave the workspace"),
            ("/a", "absolute"),
            ("//a", "absolute"),
            ("a/", "names a folder"),
            ("a/.", "names a folder"),
            ("a\0b", "control character"),
            ("a\nb", "control character"),
            ("a\x7fb", "control character"),
            ("a\x85b", "control character"),
            ("a\u2028b", "control character"),
            ("a\\b", "backslash"),
            ("-rf", "begins with `-`"),
            ("a/-rf", "begins with `-`"),
            (".codeact-part-x", "reserved"),
            ("x" * 256, "more than 255 bytes"),
            ("ü" * 128, "more than 255 bytes"),
            ("/".join(["d" * 200] * 20), "bytes long; at most"),
            ("/".join(["d"] * (MAX_DEPTH + 1)), "levels deep"),
            (os.fsdecode(b"a\xff"), "not valid Unicode"),
            ("a\ud800", "not valid Unicode"),
        ],
    )
    def test_refused_with_a_sentence(self, name: str, why: str):
        with pytest.raises(ValueError, match=why) as caught:
            safe_name(name)
        message = str(caught.value)
        assert message.isprintable()
        assert message.endswith(".")
        assert len(message) < 250
        assert type(caught.value) is ValueError


PARTS = st.one_of(
    st.sampled_from(["..", ".", "", "link", "deep", "back", "file", "-x", "\0", "canary.txt", "x" * 255, "\udcff"]),
    st.text(max_size=8),
)
NAMES = st.one_of(st.lists(PARTS, max_size=6).map("/".join), st.text(max_size=40))


@given(name=NAMES, mode=st.integers(0, 0o177777), content=st.binary(max_size=20))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_name_writes_outside(tmp_path: Path, name: str, mode: int, content: bytes):
    shutil.rmtree(tmp_path)
    root, outside = tmp_path / "in" / "work", tmp_path / "outside"
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
        return {key: value for key, value in listing(tmp_path).items() if not key.startswith("in/work/")}

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


@given(name=NAMES)
def test_safe_names_are_safe_and_stable(name: str):
    try:
        safe = safe_name(name)
    except ValueError:
        return
    parts = safe.split("/")
    assert not {"", ".", ".."} & set(parts)
    assert len(safe.encode()) <= MAX_NAME_BYTES
    assert safe_name(safe) == safe
