"""The command ends its process fast, and does what an interpreter does at its end."""

from typing import Any

import pytest

from tests import processes
from tests.cli.support import environment

PROGRAM = """
import atexit, os, sys, threading
from autogen_codeact.cli.main import main

class Freed:
    def __del__(self, write=os.write):
        write(1, b"freed\\n")

def wait():
    threading.main_thread().join()
    print("the thread ends")

atexit.register(print, "an exit handler runs")
kept = Freed()
threading.Thread(target=wait).start()
sys.argv = ["codeact", *sys.argv[1:]]
main()
"""
LINES = ["the thread ends", "an exit handler runs"]


def run(*arguments: str, program: str = PROGRAM, **more: Any) -> tuple[int, list[str], str]:
    done = processes.run(["-c", program, *arguments], env=environment(), **more)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_threads_and_exit_handlers_end_before_the_process() -> None:
    status, lines, errors = run("--version")
    assert (status, lines[1:], errors) == (0, LINES, "")


def test_exit_status_and_message_of_an_error_are_kept() -> None:
    status, lines, errors = run("exec", "/nowhere")
    assert (status, lines) == (2, LINES)
    assert errors == "codeact: /nowhere can't be read: No such file or directory\n"


def test_interpreter_that_reports_what_is_not_closed_ends_as_usual() -> None:
    status, lines, _ = run("--version", options=("-X", "dev"), new_interpreter=True)
    assert (status, lines[1:]) == (0, [*LINES, "freed"])


@pytest.mark.parametrize("closed", ["sys.stdout", "sys.stderr"])
def test_output_that_is_closed_does_not_fail_the_end(closed: str) -> None:
    program = PROGRAM.replace("kept =", f"atexit.register(lambda: {closed}.close()); kept =")
    assert run("--version", program=program)[0] == 0


def test_output_that_can_not_be_written_is_reported_by_the_interpreter() -> None:
    program = PROGRAM.replace("kept =", "sys.stdout = open('/dev/full', 'w'); kept =")
    status, lines, errors = run("exec", "/nowhere", program=program)
    assert (status, lines) == (120, ["freed"])
    assert "No space left on device" in errors
