"""Copies of run logs and workspaces, made from what the other side sends."""

from pathlib import Path

import pytest

from autogen_codeact.batch.ray_worker import PART_BYTES, Folders, Piece


class Pair:
    """An attempt's folders, and their copy."""

    def __init__(self, folder: Path) -> None:
        self.log, self.work = folder / "a/log", folder / "a/work"
        self.copied_log, self.copied_work = folder / "b/log", folder / "b/work"
        (self.log / "files").mkdir(parents=True)
        self.work.mkdir()
        self.original = Folders(self.log, self.work)
        self.copy = Folders(self.copied_log, self.copied_work)

    def append(self, line: bytes) -> None:
        with open(self.log / "events.jsonl", "ab") as file:
            file.write(line)

    def send(self, *, with_work: bool = True) -> list[tuple[str, str]]:
        """Bring the copy up to date, and return what was sent."""
        sent = []
        for part in self.original.changes(with_work=with_work):
            self.copy.write(part)
            sent += [(each.kind, each.name) for each in part]
        return sent


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_the_events_come_after_the_files_that_they_name(pair: Pair) -> None:
    (pair.log / "files" / "abc").write_bytes(b"x")
    (pair.log / ".reserve").write_bytes(bytes(100))
    (pair.work / "events.jsonl").write_bytes(b"y")
    pair.append(b'{"seq":1}\n')
    assert pair.send() == [("work", "events.jsonl"), ("log", "files/abc"), ("log", "events.jsonl")]
    assert contents(pair.copied_log) == {"files/abc": b"x", "events.jsonl": b'{"seq":1}\n'}
    pair.append(b'{"seq":2}\n')
    assert pair.send() == [("log", "events.jsonl")]
    assert (pair.copied_log / "events.jsonl").read_bytes() == b'{"seq":1}\n{"seq":2}\n'


def test_the_workspace_is_copied_without_links(pair: Pair) -> None:
    (pair.work / "a").write_bytes(b"1")
    (pair.work / "b").mkdir()
    (pair.work / "b" / "c").write_bytes(b"2")
    (pair.work / "link").symlink_to("/etc/passwd")
    assert sorted(pair.send()) == [("work", "a"), ("work", "b/c")]
    assert contents(pair.copied_work) == {"a": b"1", "b/c": b"2"}
    (pair.work / "a").unlink()
    (pair.work / "a").mkdir()
    (pair.work / "a" / "d").write_bytes(b"3")
    (pair.work / "b" / "c").unlink()
    (pair.work / "b").rmdir()
    (pair.work / "b").write_bytes(b"4")
    pair.send()
    assert contents(pair.copied_work) == {"a/d": b"3", "b": b"4"}
    (pair.work / "new").write_bytes(b"5")
    assert pair.send(with_work=False) == []
    assert pair.send() == [("work", "new")]


def test_only_files_inside_the_folders_are_written(pair: Pair) -> None:
    for kind, name in (("work", "../x"), ("work", "/x"), ("work", ""), ("log", "../events.jsonl"), ("work", "a\0")):
        for content in (b"x", None):
            with pytest.raises(ValueError, match="is not a path inside the workspace"):
                pair.copy.write([Piece(kind, name, content)])


@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES + 5])
def test_large_files_are_sent_in_parts(pair: Pair, size: int) -> None:
    content = bytes(number % 251 for number in range(997)) * (size // 997 + 1)
    (pair.work / "before").write_bytes(b"x")
    (pair.work / "large").write_bytes(content[:size])
    (pair.work / "same").write_bytes(content[:size])
    sizes = [sum(len(each.content or b"") for each in part) for part in Folders(pair.log, pair.work).changes()]
    assert max(sizes) <= PART_BYTES
    pair.send()
    assert contents(pair.copied_work) == {"before": b"x", "large": content[:size], "same": content[:size]}
