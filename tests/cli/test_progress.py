"""The line about what is happening, on a real terminal."""

import os
import pty
import re
import signal
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest
from pexpect import fdpexpect

from autogen_codeact.cli.progress import format_seconds
from tests.cli.support import code, replay, start
from tests.openai_server import OpenAIServer, Reply

LINE = r"\r\x1b\[2K(?:\x1b\[[0-9;]*m)*[\u2800-\u28ff][^\r\n]*"
"""The line, drawn."""
ERASED = rf"(?:{LINE})+\r\x1b\[2K"


@contextmanager
def running(folder, *arguments, **env):
    """Run a task on a terminal; yield the process and what reads the terminal."""
    ours, theirs = pty.openpty()
    variables = {"COLUMNS": "80", "XDG_STATE_HOME": str(folder), **env}
    with start("run", *arguments, "--sandbox", "bubblewrap", env=variables, cwd=folder, terminal=theirs) as process:
        os.close(theirs)
        child = fdpexpect.fdspawn(ours, encoding="utf-8", timeout=40)
        try:
            yield process, child
        finally:
            process.kill()
            child.close()


@contextmanager
def served(server):
    """Stop a server at the end."""
    try:
        yield
    finally:
        server.stop()


def lines_of(written):
    """Return what stays on the terminal, without colours and without which Python bubblewrap has."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", re.sub(ERASED, "", written))
    assert not re.search(r"[\u2800-\u28ff]", text)
    return [line for line in text.split("\r\n") if line and "the sandbox runs" not in line]


@pytest.fixture
def data():
    """Return a folder that the user of the sandbox can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.usefixtures("bubblewrap")
def test_the_terminal_says_what_is_happening_and_keeps_nothing_of_it(tmp_path, data):
    waits = code(
        "import glob, time",
        "def wait(name):",
        "    while not glob.glob(f'/data/**/{name}', recursive=True): time.sleep(0.02)",
        "print('begins')",
        "wait('one')",
        "print('10 %', end='\\r', flush=True)",
        "print('part', end='', flush=True)",
        "wait('two')",
        "print(' ends \\x1b[2K')",
    )
    server = OpenAIServer([waits, Reply(silent=True)]).start()
    model = ["--model", "gpt-4o", "--base-url", server.base_url, "--data", data]
    written = ""
    with served(server), running(tmp_path, "Wait.", *model, OPENAI_API_KEY="sk-of-the-tests") as (process, child):
        for expected, then in (
            (r"running block 1, \d+ s", (data / "one").touch),
            (r"part", lambda: (time.sleep(0.5), (data / "two").touch())),
            (r"model thinking, \d+ s", lambda: process.send_signal(signal.SIGINT)),
            (pexpect.EOF, process.wait),
        ):
            child.expect(expected)
            written += child.before + (child.after if isinstance(child.after, str) else "")
            then()
    assert process.returncode == 130
    assert "part ends \\x1b[2K\r\n" in written, "nothing is drawn in a line that the code has begun"
    shown = lines_of(written)
    at = next(number for number, line in enumerate(shown) if line.startswith("── Attempt 1 in the sandbox ──"))
    assert shown[at + 1 : at + 3] == ["begins", "10 %\rpart ends \\x1b[2K"]
    assert re.fullmatch(r"ok, [\d.]+ s", shown[at + 3])
    assert re.fullmatch(r"codeact: stopping; Ctrl-C again ends at once", shown[at + 4])
    assert re.fullmatch(r"codeact: `codeact resume \S+` continues the run", shown[at + 5])
    assert len(shown) == at + 6


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize(
    ("env", "options", "drawn"),
    [
        ({"NO_COLOR": "1"}, [], True),
        ({"TERM": "dumb"}, [], False),
        ({}, ["--json"], False),
    ],
    ids=["no colours", "dumb", "json"],
)
def test_simple_terminals_get_no_progress_line(tmp_path, env, options, drawn):
    with running(tmp_path, "What?", "--model", replay(tmp_path, "It is 42."), *options, **env) as (process, child):
        child.expect(pexpect.EOF)
        written = child.before
        assert process.wait() == 0
    assert ("\x1b[2K" in written) == drawn
    assert not re.search(r"\x1b\[[0-9;]*m", written) or not env
    assert "It is 42." in written


def test_seconds_have_minutes():
    assert [format_seconds(each) for each in (1, 59, 60, 605)] == ["1 s", "59 s", "1 min 00 s", "10 min 05 s"]
