"""The reader of piped messages."""

import asyncio
import os

import pytest

from autogen_codeact.cli.chat_input import Interrupted, LineReader


@pytest.fixture
def pipe():
    """Connect a pipe to standard input; return its other end."""
    before = os.dup(0)
    ours, theirs = os.pipe()
    os.dup2(ours, 0)
    os.close(ours)
    yield theirs
    os.dup2(before, 0)
    os.close(before)


async def test_lines_of_a_pipe_are_messages_until_its_end(pipe, capsys):
    os.write(pipe, b"one\r\ntw\xff\nthree")
    os.close(pipe)
    reader = LineReader()
    assert [await reader.message(), await reader.answer("Run? "), await reader.message()] == [
        "one",
        "tw\ufffd",
        "three",
    ]
    with pytest.raises(EOFError):
        await reader.message()
    assert capsys.readouterr().out.startswith("> one\nRun? tw")


async def test_interrupted_line_is_the_next_message(pipe):
    reader = LineReader()
    assert not reader.interrupt()
    reading = asyncio.ensure_future(reader.message())
    await asyncio.sleep(0.05)
    assert reader.interrupt()
    with pytest.raises(Interrupted):
        await reading
    os.write(pipe, b"late\n")
    assert await reader.message() == "late"
    os.close(pipe)
