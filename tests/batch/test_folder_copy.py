"""Copies of run logs and workspaces, made from pieces."""

import hashlib
from pathlib import Path

import pytest

from autogen_codeact.batch.folder_changes import FolderChanges, input_pieces
from autogen_codeact.batch.folder_copy import FolderCopy, whole_lines
from autogen_codeact.batch.pieces import PIECE_BYTES, Header, Piece, PieceError

BLOCK = b'{"type":"block_finished"}\n'


class Pair:
    """An attempt's folders, and their copy."""

    def __init__(self, folder: Path) -> None:
        self.log, self.work = folder / "a/log", folder / "a/work"
        self.copied_log, self.copied_work = folder / "b/log", folder / "b/work"
        (self.log / "files").mkdir(parents=True)
        self.work.mkdir()
        self.changes = FolderChanges(self.log, self.work)
        self.copy = FolderCopy(self.copied_log, self.copied_work)

    def append(self, line: bytes) -> None:
        with open(self.log / "events.jsonl", "ab") as file:
            file.write(line)

    def send(self, *, whole: bool = False) -> list[str]:
        """Bring the copy up to date, and return the kinds of the pieces."""
        pieces = [Piece.decode(piece.encode()) for piece in self.changes.pieces(whole=whole)]
        for piece in pieces:
            self.copy.write(piece)
        return [piece.header.kind for piece in pieces]

    def copied(self) -> dict[str, bytes]:
        return contents(self.copied_work)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_a_log_is_copied_in_whole_lines_after_the_files_that_it_names(pair: Pair) -> None:
    data = b"x" * (2 * PIECE_BYTES + 1)
    (pair.log / "files" / hashlib.sha256(data).hexdigest()).write_bytes(data)
    (pair.log / "files" / ".unfinished.part").write_bytes(b"x")
    pair.append(b'{"seq":1}\n{"se')

    assert pair.send() == ["file", "file", "file", "log"]
    assert contents(pair.copied_log) == {
        f"files/{hashlib.sha256(data).hexdigest()}": data,
        "events.jsonl": b'{"seq":1}\n',
    }
    assert not pair.changes.has_grown() or pair.send() == []
    pair.append(b'q":2}\n' + b"y" * PIECE_BYTES + b"\n")
    assert pair.changes.has_grown()
    assert pair.send() == ["log", "log"]
    assert (pair.copied_log / "events.jsonl").read_bytes() == (pair.log / "events.jsonl").read_bytes()


def test_the_workspace_is_copied_when_a_block_has_ended(pair: Pair) -> None:
    (pair.work / "folder").mkdir()
    (pair.work / "folder/a").write_bytes(b"1")
    (pair.work / "gone").write_bytes(b"")
    (pair.work / "link").symlink_to("/etc/passwd")
    pair.append(b"{}\n")
    assert pair.send() == ["work", "work", "log"]
    assert pair.copied() == {"folder/a": b"1", "gone": b""}

    (pair.work / "gone").unlink()
    (pair.work / "folder/a").unlink()
    (pair.work / "folder").rmdir()
    (pair.work / "folder").write_bytes(b"now a file")
    pair.append(b"{}\n")
    assert pair.send() == ["log"]
    pair.append(BLOCK)
    assert pair.send() == ["removed", "removed", "work", "log"]
    assert pair.copied() == {"folder": b"now a file"}

    (pair.work / "folder").unlink()
    (pair.work / "folder/deep").mkdir(parents=True)
    (pair.work / "folder/deep/a").write_bytes(b"2")
    assert pair.send(whole=True) == ["removed", "work"]
    assert pair.copied() == {"folder/deep/a": b"2"}


def test_what_the_other_side_has_is_not_sent_again(pair: Pair) -> None:
    (pair.work / "a").write_bytes(b"1")
    pair.append(b"{}\n")
    pair.changes.skip()
    assert pair.send(whole=True) == []


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (Header(kind="work", name="../a"), "'../a' is not a path inside the workspace"),
        (Header(kind="removed", name="/etc/passwd"), "'/etc/passwd' is not a path inside the workspace"),
        (Header(kind="input", name="a"), "'input' is not taken here"),
        (Header(kind="file", name="../events.jsonl"), "'../events.jsonl' is not the name of a file in a run log"),
        (Header(kind="file", name="0" * 64), f"{'0' * 64!r} has another content than its name says"),
        (Header(kind="work", name="a", offset=1), "a piece of 'a' is missing"),
        (Header(kind="log", offset=1), "a piece of the log is missing"),
        (Header(kind="enter"), "'enter' is not a part of a folder"),
    ],
)
def test_pieces_that_do_not_belong_are_refused(pair: Pair, header: Header, message: str, tmp_path: Path) -> None:
    with pytest.raises(PieceError) as refused:
        pair.copy.write(Piece(header, b"x"))
    assert str(refused.value) == message
    pair.copy.close()
    assert set(contents(tmp_path / "b")) <= {"log/events.jsonl"}


def test_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    copy = FolderCopy(tmp_path / "log", tmp_path / "work", max_bytes=10)
    copy.write(Piece(Header(kind="work", name="a"), b"x" * 9))
    with pytest.raises(PieceError, match=r"^the attempt has sent more than is allowed for its log and files$"):
        copy.write(Piece(Header(kind="work", name="b")))


@pytest.mark.parametrize("raw", [b"no header", b"{}\n", b'{"kind":"log","more":1}\n', b"x" * 70_000 + b"\n", "text"])
def test_what_is_no_piece_is_refused(raw: object) -> None:
    with pytest.raises(PieceError):
        Piece.decode(raw)


def test_files_and_folders_of_a_task_are_copied(tmp_path: Path) -> None:
    (tmp_path / "folder/sub").mkdir(parents=True)
    (tmp_path / "folder/sub/a").write_bytes(b"1")
    (tmp_path / "file").write_bytes(b"2")
    copy = FolderCopy(tmp_path / "log", tmp_path / "work", tmp_path / "inputs")
    for piece in input_pieces([str(tmp_path / "file"), str(tmp_path / "folder")]):
        copy.write(piece)
    assert contents(tmp_path / "inputs") == {"0": b"2", "1/sub/a": b"1"}
    with pytest.raises(PieceError, match=r"^files: /no/such/file does not exist$"):
        list(input_pieces(["/no/such/file"]))


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"", b""), (b"half", b""), (b"one\n", b"one\n"), (b"one\nha", b"one\n"), (b"1\n" + b"x" * 100_000, b"1\n")],
)
def test_a_log_is_cut_after_its_last_whole_line(tmp_path: Path, before: bytes, after: bytes) -> None:
    (tmp_path / "events.jsonl").write_bytes(before)
    whole_lines(tmp_path)
    assert (tmp_path / "events.jsonl").read_bytes() == after
