"""The line about what is happening, on a real terminal."""

import re
import tempfile
import time
from pathlib import Path

import pexpect
import pytest

from autogen_codeact.cli.progress import format_seconds
from tests.cli.support import COMMAND, code, environment, replay
from tests.openai_server import OpenAIServer, Reply

LINE = r"\r\x1b\[2K(?:\x1b\[[0-9;]*m)*[\u2800-\u28ff][^\r\n]*"
"""The line, drawn."""
ERASED = rf"(?:{LINE})+\r\x1b\[2K"


def start(folder, *arguments, **env):
    variables = environment({"COLUMNS": "80", "XDG_STATE_HOME": str(folder), **env})
    command = ["run", *map(str, arguments), "--sandbox", "bubblewrap"]
    return pexpect.spawn(str(COMMAND), command, env=variables, cwd=folder, encoding="utf-8", timeout=40)


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
    child = start(tmp_path, "Wait.", *model, OPENAI_API_KEY="sk-of-the-tests")
    written = ""
    try:
        for expected, then in (
            (r"running block 1 for \d+ s", (data / "one").touch),
            (r"part", lambda: (time.sleep(0.5), (data / "two").touch())),
            (r"model thinking \d+ s", child.sendintr),
            (pexpect.EOF, child.close),
        ):
            child.expect(expected)
            written += child.before + (child.after if isinstance(child.after, str) else "")
            then()
    finally:
        server.stop()
        child.close(force=True)
    assert child.exitstatus == 130
    assert "part ends \\x1b[2K\r\n" in written, "nothing is drawn in a line that the code has begun"
    shown = lines_of(written)
    at = next(number for number, line in enumerate(shown) if line.startswith("── Attempt 1 in the sandbox ──"))
    assert shown[at + 1 : at + 3] == ["begins", "10 %\rpart ends \\x1b[2K"]
    assert re.fullmatch(r"ok, [\d.]+ s", shown[at + 3])
    assert re.fullmatch(r"(?:\^C)?codeact: stopping \(again to leave at once\)", shown[at + 4])
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
def test_terminals_that_want_less_get_less(tmp_path, env, options, drawn):
    child = start(tmp_path, "What?", "--model", replay(tmp_path, "It is 42."), *options, **env)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    written = child.before
    assert ("\x1b[2K" in written) == drawn
    assert not re.search(r"\x1b\[(?:[0-9;]*;)?[34]\d", written) or not env
    assert "It is 42." in written


def test_seconds_have_minutes():
    assert [format_seconds(each) for each in (1, 59, 60, 605)] == ["1 s", "59 s", "1 min 00 s", "10 min 05 s"]
