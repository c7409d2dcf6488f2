"""Forked programs are processes like those of a new interpreter."""

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.cases import case

LOOK = """
import json, logging, os, pathlib, signal, sys, threading, warnings
streams = (sys.stdin, sys.stdout, sys.stderr)
print(json.dumps({
    "arguments": sys.argv,
    "main": [__name__, sys.modules["__main__"].__dict__ is globals(), globals().get("__file__")],
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "path": sys.path,
    "streams": [[s.encoding, s.errors, s.line_buffering, s.write_through, s.fileno()] for s in streams],
    "terminals": [os.isatty(number) for number in range(3)],
    "files": os.listdir("/proc/self/fd"),
    "threads": [thread.name for thread in threading.enumerate()],
    "signals": [repr(signal.getsignal(number)) for number in range(1, 32)],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "group": [os.getpgrp(), os.getsid(0)],
    "logging": [len(logging.root.handlers), logging.root.level],
    "options": [sys.warnoptions, sys.flags],
    "filters": [str(each) for each in warnings.filters],
    "limits": pathlib.Path("/proc/self/limits").read_text(),
    "umask": os.umask(0),
}))
"""


def look(folder: Path, *, new_interpreter: bool, terminal: bool = False, as_text: bool = False) -> dict[str, Any]:
    program = folder / "look.py"
    program.write_text(LOOK)
    command = ["-c", LOOK] if as_text else [str(program)]
    env = {**os.environ, "COLUMNS": "77", "OPENAI_API_KEY": "not-a-key"}
    ours, theirs = pty.openpty()
    streams = {"stdin": subprocess.DEVNULL, "stdout": theirs} if terminal else {}
    process = processes.start(
        [*command, "one", "two"],
        env=env,
        cwd=folder,
        options=("-W", "error"),
        new_interpreter=new_interpreter,
        **streams,
    )
    with process:
        out, _ = process.communicate("", timeout=50)
    os.close(theirs)
    with open(ours) as screen:
        seen: dict[str, Any] = json.loads(screen.readline() if terminal else out)
    assert process.returncode == 0
    return seen


@pytest.mark.parametrize("kind", ["file", "terminal", "text"])
def test_forked_program_sees_what_it_would_see_in_a_new_interpreter(tmp_path: Path, kind: str) -> None:
    forked, new = (
        look(tmp_path, new_interpreter=new, terminal=kind == "terminal", as_text=kind == "text")
        for new in (False, True)
    )
    # Modules add filters of their own when they are imported; the first that fits counts, and "error" stays.
    with_modules, without = forked.pop("filters"), new.pop("filters")
    assert [each for each in with_modules if each in without] == without
    assert forked == new


def test_forked_program_reads_its_input_and_ends_as_the_interpreter_ends_it() -> None:
    program = (
        "import atexit, sys, threading, time\n"
        "atexit.register(print, 'at exit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.05), print('thread'))).start()\n"
        "print(sys.stdin.read(), end='')\n"
        "raise ValueError('the last line')\n"
    )
    done = processes.run(["-c", program], env=os.environ, text="given\n")
    assert (done.returncode, done.stdout) == (1, "given\nthread\nat exit\n")
    assert done.stderr.endswith("\nValueError: the last line\n")


def test_variable_that_python_reads_at_its_start_needs_a_new_interpreter() -> None:
    for more, new in [
        *(({name: "x"}, False) for name in ("COLUMNS", "OPENAI_API_KEY", "PYTHONBREAKPOINT", "RAY_CLIENT_MODE")),
        *(({name: "utf-8"}, True) for name in ("PYTHONIOENCODING", "PYTHONPATH", "LC_ALL", "FORCE_COLOR")),
    ]:
        with case(more, new):
            command = ["-c", "import sys; print('typer' in sys.modules)"]
            assert processes.run(command, env={**processes.ENVIRONMENT, **more}).stdout == f"{not new}\n"


def test_import_that_warns_stops_the_server(tmp_path: Path) -> None:
    (tmp_path / "docker.py").write_text("import warnings\nwarnings.warn('old')\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with pytest.raises(AssertionError, match=r"(?s)the fork server has failed: .*UserWarning: old"):
        processes.start_server(f"{processes.ADDRESS}-that-warns", env)
