"""H9. What models, code, files and errors say never steers the terminal of who runs a command, nor hides in what it prints."""

import io
import os
import pty
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import processes

from ..cli.support import COMMAND, code, environment, replay, start

pytestmark = pytest.mark.usefixtures("docker_engine")

EVIL = "\x1b]0;t\x07\x9b2J\x08\x7f\u202e\u2066\u200e\u061c\u200b\ufeff\u2028\u2029\U000e0041\x0b\x0c\x85"
SHOWN = r"\x1b]0;t\x07\x9b2J\x08\x7f\u202e\u2066\u200e\u061c\u200b\ufeff\u2028\u2029\U000e0041\x0b\x0c\x85"
ENTITIES = "".join(f"&#x{ord(char):x};" for char in "\x1b]0;t\x07\u202e\u2066\u200b\U000e0041\r\x85")
SANDBOXES = pytest.mark.parametrize("sandbox", ["docker", "bubblewrap"])
TERMINAL = pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])


def run(
    *arguments: object, terminal: bool, stdin: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> tuple[int, str]:
    """Run a command; its status and exactly what it wrote, on a terminal both streams as they come."""
    if not terminal:
        process = start(*arguments, env=env, cwd=cwd)
        for stream in (process.stdout, process.stderr):
            assert isinstance(stream, io.TextIOWrapper)
            stream.reconfigure(newline="")  # carriage returns are to be seen
        with process:
            try:
                said, errors = process.communicate(stdin, timeout=50)
            finally:
                process.kill()
        assert process.returncode is not None
        return process.returncode, said + errors
    ours, theirs = pty.openpty()
    process = processes.start([str(COMMAND), *map(str, arguments)], env=environment(env), cwd=cwd, stdout=theirs)
    os.close(theirs)
    assert process.stdin is not None
    with process.stdin:
        process.stdin.write(stdin)
    written = _read_to_end(ours).decode().replace("\r\n", "\n")
    return process.wait(50), written


def _read_to_end(terminal: int) -> bytes:
    written = b""
    with open(terminal, "rb", buffering=0) as stream:
        try:
            while piece := stream.read(65536):
                written += piece
        except OSError:
            pass  # this is how a terminal ends
    return written


def plain(text: str) -> str:
    """What is left without colours, which nobody but rich writes; there must be nothing in it that is not printable."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    # The line about what is happening: a spinner and words of our own, which are erased before anything else is written.
    text = re.sub("(?:\r\x1b\\[2K[\u2800-\u28ff] [a-z0-9, ]+)+\r\x1b\\[2K", "", text)
    assert [char for char in text if not (char.isprintable() or char in "\n\t\xa0\u3000")] == []
    return text


# Case H9.
@TERMINAL
@SANDBOXES
def test_code_and_output_of_an_executed_file_are_escaped(sandbox, terminal, tmp_path):
    # Names of files can hold no line ends and no controls here: such files are not copied at all.
    page = tmp_path / f"a{EVIL}.md"
    page.write_text(
        code(
            f"evil = {EVIL!r}",
            "open('b\\u202e\\u200bc.txt', 'w').close()",
            "open('b\\x1b]0;t\\x07.txt', 'w').close()",
            "print(evil, end='\\r\\n')",
            "raise type('E' + evil, (Exception,), {})('m' + evil + '\\ud800')",
        )
        + f"\n```x{EVIL[0]}\n1\n```\n"
    )
    status, written = run("exec", "--sandbox", sandbox, page, terminal=terminal, cwd=tmp_path)
    text = plain(written)
    assert status == 1
    assert f"\n{SHOWN}\n" in text
    assert r"File: b\u202e\u200bc.txt (0 bytes)" in text
    assert rf"failed, E{SHOWN}, exit code 1" in text
    assert f"{SHOWN}.md:" in text


# Case H9.
@TERMINAL
@pytest.mark.parametrize("options", [[], ["--act"], ["--team"]], ids=str)
def test_text_of_models_is_escaped_also_from_entities(options: list[str], terminal: bool, tmp_path: Path) -> None:
    words = f"A{EVIL} B{ENTITIES} [l{ENTITIES}](http://x/{ENTITIES} '{ENTITIES}') ![i](y{ENTITIES}) `{EVIL}`\n\n# {ENTITIES}\n"
    table = f"| a{ENTITIES} |\n|---|\n| {EVIL} |\n"
    block = code(f"print({EVIL!r}); open('b\\u202e.txt', 'w').close()")
    answers = [f"{words}\n{table}\n{block}\n```x{ENTITIES}\n{EVIL}\n```\n", f"{words}\n{table}\nTERMINATE"]
    model = replay(tmp_path, *answers)
    status, written = run(
        *("run", f"task {EVIL} {ENTITIES}", "--model", model, *options), terminal=terminal, env={"COLUMNS": "400"}
    )
    text = plain(written)
    assert status == 0
    assert "codeact: with the files b\\u202e.txt: `codeact export last --files FOLDER` writes them\n" in text
    if terminal:
        assert r"\x1b" in text


# Case H9.
@TERMINAL
def test_errors_of_commands_are_escaped(terminal: bool, tmp_path: Path) -> None:
    for arguments in (
        ["exec", f"none{EVIL}"],
        ["run", "x", "--model", f"{EVIL}.json"],
        ["run", "x", "--model", f"replay:{EVIL}"],
    ):
        status, written = run(*arguments, terminal=terminal, cwd=tmp_path)
        assert (status, SHOWN in plain(written)) == (2, True)
    for arguments in (["doctor"], ["clean"], ["image", "build"]):
        _, written = run(*arguments, terminal=terminal, env={"DOCKER_HOST": "tcp://\x1b]0;t\x07\u202e:1"})
        assert r"\u202e" in plain(written), arguments
