"""Copies of run logs and workspaces, made from what the other side sends."""

from pathlib import Path

import pytest

from autogen_codeact.batch.ray.folders import FolderChanges, FolderCopy, Sent
from autogen_codeact.runs.writer import LogLocked

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

    def send(self, *, whole: bool = False) -> list[tuple[str, str]]:
        """Bring the copy up to date, and return what was sent."""
        sent = list(self.changes.take(whole=whole))
        for each in sent:
            self.copy.write(each)
        return [(each.kind, each.name) for each in sent]

    def copied(self) -> dict[str, bytes]:
        return contents(self.copied_work)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_a_log_is_copied_in_whole_lines_after_the_files_that_it_names(pair: Pair) -> None:
    (pair.log / "files" / "abc").write_bytes(b"x")
    pair.append(b'{"seq":1}\n{"se')
    assert pair.changes.has_grown()
    assert pair.send() == [("files", "abc"), ("log", "")]
    assert contents(pair.copied_log) == {"files/abc": b"x", "events.jsonl": b'{"seq":1}\n'}
    pair.append(b'q":2}\n')
    assert pair.send() == [("log", "")]
    assert (pair.copied_log / "events.jsonl").read_bytes() == b'{"seq":1}\n{"seq":2}\n'
    assert pair.send() == []


def test_the_workspace_is_copied_before_the_end_of_a_block(pair: Pair) -> None:
    (pair.work / "a").write_bytes(b"1")
    (pair.work / "b").mkdir()
    (pair.work / "b" / "c").write_bytes(b"2")
    (pair.work / "link").symlink_to("/etc/passwd")
    pair.append(b'{"type":"block_started"}\n')
    assert pair.send() == [("log", "")]
    pair.append(BLOCK)
    assert pair.send() == [("work", "a"), ("work", "b/c"), ("log", "")]
    assert pair.copied() == {"a": b"1", "b/c": b"2"}
    (pair.work / "a").unlink()
    (pair.work / "a").mkdir()
    (pair.work / "a" / "d").write_bytes(b"3")
    (pair.work / "b" / "c").unlink()
    (pair.work / "b").rmdir()
    (pair.work / "b").write_bytes(b"4")
    pair.append(BLOCK)
    pair.send()
    assert pair.copied() == {"a/d": b"3", "b": b"4"}
    (pair.work / "new").write_bytes(b"5")
    assert pair.send() == []
    assert pair.send(whole=True) == [("work", "new")]


def test_a_copy_goes_on_behind_the_last_whole_line(pair: Pair) -> None:
    pair.copied_log.mkdir(parents=True)
    (pair.copied_log / "events.jsonl").write_bytes(b'{"seq":1}\n{"se')
    pair.copy.write(Sent("log", b'{"seq":2}\n'))
    assert (pair.copied_log / "events.jsonl").read_bytes() == b'{"seq":1}\n{"seq":2}\n'


def test_only_files_inside_the_folders_are_written(pair: Pair) -> None:
    for kind, name in (("work", "../x"), ("work", "/x"), ("work", ""), ("files", "../events.jsonl"), ("work", "a\0")):
        for content in (b"x", None):
            with pytest.raises(ValueError, match="is not a path inside the workspace"):
                pair.copy.write(Sent(kind, content, name))  # type: ignore[arg-type]


def test_a_log_that_another_process_writes_is_not_touched(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autogen_codeact.runs.writer.LOCK_S", 0.0)
    pair.copy.write(Sent("log", b"1\n"))
    other = FolderCopy(pair.copied_log, pair.copied_work)
    with pytest.raises(LogLocked):
        other.write(Sent("log", b"2\n"))
    other.close()
    pair.copy.close()
    assert (pair.copied_log / "events.jsonl").read_bytes() == b"1\n"
