"""How the command ends: its status, its message, and what an interpreter does at its end."""

from typing import Any

import pytest

from autogen_codeact.cli import sandbox
from autogen_codeact.cli.output import in_options
from codeact_sandbox import SandboxUnavailable
from tests import processes
from tests.cli.support import environment

PROGRAM = """
import atexit, sys, threading
from autogen_codeact.cli.main import main

def wait():
    threading.main_thread().join()
    print("the thread ends")

atexit.register(print, "an exit handler runs")
threading.Thread(target=wait).start()
sys.argv = ["codeact", *sys.argv[1:]]
main()
"""


def run(*arguments: str, program: str = PROGRAM, **more: Any) -> tuple[int, list[str], str]:
    done = processes.run(["-c", program, *arguments], env=environment(), **more)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_exit_status_and_message_of_an_error_are_kept() -> None:
    status, lines, errors = run("exec", "/nowhere")
    assert (status, lines) == (2, ["the thread ends", "an exit handler runs"])
    assert errors == "codeact: /nowhere can't be read: No such file or directory\n"


def test_output_that_can_not_be_written_is_reported_by_the_interpreter() -> None:
    program = PROGRAM.replace("sys.argv =", "sys.stdout = open('/dev/full', 'w'); sys.argv =")
    status, lines, errors = run("exec", "/nowhere", program=program)
    assert (status, lines) == (120, [])
    assert "No space left on device" in errors


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("DockerCommandLineCodeExecutor(cpus=…): must be a number", "--option cpus: must be a number"),
        ("Sandbox(timeout=…): must be a number", "--timeout: must be a number"),
        ("data= shows it, and bind_dir= mounts it", "--data shows it, and --option bind_dir= mounts it"),
        ("or with Docker pass `user=`", "or with Docker pass `--option user=`"),
        ("evil.example:80 is not in allow_domains", "evil.example:80 is not in --allow-domain"),
        ("The work_dir /a/work_dir/b can't be used", "The --work-dir /a/work_dir/b can't be used"),
        ("--budget cost=… needs it; --option memory=2g", "--budget cost=… needs it; --option memory=2g"),
        ("include=['.env'] sends it", "include=['.env'] sends it"),
    ],
)
def test_messages_have_the_words_of_the_command_line(text: str, shown: str) -> None:
    assert in_options(text) == shown


@pytest.mark.parametrize(
    ("error", "said"), [(PermissionError(13, "denied"), "No permission"), (OSError(), "no Docker")]
)
def test_missing_permission_is_not_a_missing_engine(error: OSError, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect() -> None:
        raise SandboxUnavailable("No permission to use the engine.") from error

    monkeypatch.setattr(sandbox, "connect", connect)
    assert said in sandbox._why_bubblewrap()
