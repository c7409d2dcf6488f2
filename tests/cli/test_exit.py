"""How the command ends: its status, its message, and what an interpreter does at its end."""

from typing import Any

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
