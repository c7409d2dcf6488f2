"""The command `codeact-sandbox`, which a user of the sandbox alone has."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("bubblewrap")


def run(*arguments: str, given: str = "", folder: Path | None = None) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "codeact_sandbox.integrations.command", *arguments]
    done = subprocess.run(command, input=given, cwd=folder, capture_output=True, text=True, timeout=50, check=False)
    return done.returncode, done.stdout, done.stderr


def test_exec_runs_a_file_standard_input_or_code_and_ends_with_its_status(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("open('made.txt', 'w').write('x')\nprint('done')\n")
    sandbox = ("exec", "--backend", "bubblewrap")
    assert run(*sandbox, "--work-dir", ".", "program.py", folder=tmp_path)[:2] == (0, "done\n")
    assert (tmp_path / "made.txt").read_text() == "x"
    assert run(*sandbox, "-", given="import sys; sys.exit(3)")[0] == 3
    status, output, errors = run(*sandbox, "--timeout", "0.5", "--code", "print('\\x1b[31mred')\nwhile True: pass")
    assert (status, output.splitlines()[0]) == (124, "\\x1b[31mred")
    assert errors.endswith("the program was stopped after 0.5 s: --timeout SECONDS sets another limit\n")


def test_mistakes_are_one_line_that_says_what_is_wrong(tmp_path: Path) -> None:
    status, output, errors = run("exec", "missing.py", folder=tmp_path)
    assert (status, output, errors) == (1, "", "codeact-sandbox: missing.py: No such file or directory\n")
    status, _, errors = run("exec", "--backend", "bubblewrap", "--work-dir", __file__, "--code", "1", folder=tmp_path)
    assert status == 1
    assert "work_dir" in errors
    assert "Traceback" not in errors
    assert run()[0] == 2
    said = "codeact-sandbox: --allow and --call-log are for the tools of --wrap FILE.json: add that.\n"
    assert run("mcp", "--allow", "x") == (1, "", said)


def test_doctor_reports_each_backend_and_clean_ends_well() -> None:
    status, output, _ = run("doctor")
    assert status == 0
    assert [line.partition(":")[0] for line in output.splitlines()] == ["docker", "bubblewrap"]
    assert "bubblewrap: ok, Python 3." in output
    assert run("clean")[0] == 0
