"""Ctrl-C ends a command cleanly at every stage."""

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from autogen_codeact.cli import main
from tests.cli.support import code, containers_of, replay, start, wait_until
from tests.openai_server import OpenAIServer, Reply

pytestmark = pytest.mark.usefixtures("docker_engine", "bubblewrap")

SLOW = code("print('on', flush=True)", "import time", "time.sleep(60)")
STOPPING = "codeact: stopping; Ctrl-C again ends at once\n"
BOX = ["--sandbox", "bubblewrap"]
"""For what is the same in any sandbox, and costs less processor time there."""


def read_until(process, kind):
    """Read JSON lines up to a message of a type."""
    for line in process.stdout:
        if json.loads(line)["type"] == kind:
            return
    raise AssertionError(f"no {kind}: {process.stderr.read()}")


def finish(process, *, as_json=False):
    out, err = process.communicate(timeout=45)
    if as_json:
        last = json.loads(out.splitlines()[-1])
        assert (last["type"], last["outcome"], last["error"]["class"]) == ("error", "cancelled", "Interrupted")
        assert last["error"]["message"] == f"stopped by {signal.Signals(process.returncode - 128).name}"
    wait_until(lambda: not containers_of(process.pid), "the end of the container", seconds=30)
    said = [line for line in err.splitlines(keepends=True) if not line.startswith("codeact: the sandbox runs ")]
    return process.returncode, "".join(said)


@pytest.mark.parametrize("extra", [[], ["--team", *BOX], ["--option", "mode=session"]])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_while_code_runs(tmp_path, extra, number, status):
    arguments = ["--model", replay(tmp_path, SLOW), "--json", *extra]
    with start("run", "task", *arguments) as process:
        read_until(process, "TextMessage" if "--team" in extra else "CodeGenerationEvent")
        process.send_signal(number)
        assert finish(process, as_json=True) == (status, STOPPING)


@pytest.mark.parametrize("mode", ["process", "session"])
def test_ctrl_c_keeps_the_output_of_a_line_that_has_not_ended(tmp_path, mode):
    for extra in ([], ["--json"]):
        page, seconds = tmp_path / "slow.md", f"{60 + len(extra)}.{os.getpid()}"
        lines = ["import subprocess", "for n in range(3): print(n, end=' ')", f"subprocess.run(['sleep', '{seconds}'])"]
        page.write_text(code(*lines))
        with start("exec", page, *extra, *BOX, "--option", f"mode={mode}") as process:
            sleeping = f"sleep\0{seconds}\0".encode()
            wait_until(lambda: sleeping in command_lines(), "the end of what the code prints")  # noqa: B023
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=45)
        assert process.returncode == 130
        if extra:
            result = json.loads(out)
            assert (result["output"], result["exit_code"], result["error"]["type"]) == ("0 1 2 ", 130, "Stopped")
        else:
            assert out == "[1/1] python, line 2\n0 1 2 \n"


def command_lines():
    """The command lines of all processes of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return found


@pytest.mark.parametrize("extra", [[], ["--team", *BOX]])
def test_ctrl_c_while_the_model_generates(extra):
    with OpenAIServer([Reply(silent=True)]) as server:
        arguments = ["--model", "gpt-4o", "--base-url", server.base_url, "--json", *extra]
        with start("run", "task", *arguments, env={"OPENAI_API_KEY": "sk-of-the-tests"}) as process:
            wait_until(lambda: server.requests, "the request")
            process.send_signal(signal.SIGINT)
            assert finish(process, as_json=True) == (130, STOPPING)


def test_ctrl_c_while_the_sandbox_starts(tmp_path):
    with start("run", "task", "--model", replay(tmp_path, SLOW)) as process:
        wait_until(lambda: containers_of(process.pid), "the container")
        process.send_signal(signal.SIGINT)
        assert finish(process) == (130, STOPPING)


def test_second_ctrl_c_exits_at_once(tmp_path):
    # An exit at once leaves the temporary folder behind.
    env = {"TMPDIR": str(tmp_path)}
    with start("run", "task", "--model", replay(tmp_path, SLOW), "--json", env=env) as process:
        read_until(process, "CodeGenerationEvent")
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == STOPPING
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        status, err = finish(process, as_json=True)
    assert (status, err) == (130, "")


def test_ctrl_c_while_the_file_is_read(tmp_path):
    pipe = tmp_path / "pipe.md"
    os.mkfifo(pipe)
    with start("exec", pipe) as process:
        writing = os.open(pipe, os.O_WRONLY)  # returns when the command has opened it too
        process.send_signal(signal.SIGINT)
        result = finish(process)
        os.close(writing)
    assert result == (130, "codeact: interrupted\n")


def test_ctrl_c_before_a_command_has_begun(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "app", interrupted)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "codeact: interrupted\n")
