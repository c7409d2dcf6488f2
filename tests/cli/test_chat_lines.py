"""The reader of piped messages."""

from autogen_codeact.cli import chat_lines
from autogen_codeact.cli.chat_lines import MAX_LINES_AHEAD, LineReader


async def test_a_pipe_is_read_only_a_little_ahead(monkeypatch, capsys):
    pieces = iter([b"".join(b"%d\n" % number for number in range(at, at + 1000)) for at in range(0, 20_000, 1000)])
    read = []

    def next_piece() -> bytes:
        piece = next(pieces, b"")
        read.append(len(piece.splitlines()))
        return piece

    monkeypatch.setattr(chat_lines, "_read_piece", next_piece)
    reader = LineReader(echo=False)
    for number in range(20_000):
        assert await reader.message() == str(number)
        # The piece that waits for room has been read, too.
        assert sum(read) <= number + MAX_LINES_AHEAD + 2 * 1000
    assert read[-1] == 0
