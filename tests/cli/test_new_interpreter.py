"""What the tests run in forked processes does the same in a new interpreter, where the command imports everything itself."""

import re
import subprocess

import pytest

from tests.cli.support import COMMAND, Finished, code, codeact, environment, on_terminal, replay

pytestmark = pytest.mark.usefixtures("docker_engine", "bubblewrap")

STEPS = [code("print(6 * 7)"), "It is 42. TERMINATE"]
BOX = ["--sandbox", "bubblewrap"]
"""What starts with less processor time; the first command shows that Docker, too, is used as in a new interpreter."""
WITH_MODEL = {
    "run": [],
    "run --json": ["--json", *BOX],
}
OTHERS = {
    "doctor": ["doctor", "--json"],
    "usage error": ["exec"],
}
RUN = re.compile(r"\b\d{8}-\d{6}-[\w-]+-[0-9a-f]{4}\b")
"""Name of a kept run."""
ERASE = "\r\x1b[2K"
"""How a line about what is happening disappears."""


def alike(done: Finished) -> tuple[int, str, str]:
    """What is the same in each run: no times and the space that they fill, no names, no other tests' sandboxes and images."""
    shown = "".join(f"{line.split(ERASE)[-1]}\n" for line in RUN.sub("RUN", done.out).split("\n"))
    out = re.sub(
        r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\dT[\d:.]+Z|\b\d[\d.]* (m?s|kB)\b|\d+\.\d+(e-\d+)?", "N", shown
    )
    out = re.sub(r'\{"name": "leftovers".*?\}|"sandboxes": .*', "", re.sub(r"[ ─]+", " ", out))
    out = re.sub(r"(?m)^(sha256:|autogen-codeact/derived:).*\n", "", out)
    return done.status, out, RUN.sub("RUN", done.err)


@pytest.mark.parametrize("kind", WITH_MODEL)
def test_run_is_the_same_in_a_new_interpreter(kind: str, tmp_path) -> None:
    arguments = ["run", "Compute", "--model", replay(tmp_path, *STEPS), *WITH_MODEL[kind]]
    forked, new = (codeact(*arguments, new_interpreter=new) for new in (False, True))
    assert alike(forked) == alike(new)
    assert "42" in forked.out


@pytest.mark.parametrize("kind", OTHERS)
def test_command_is_the_same_in_a_new_interpreter(kind: str, tmp_path) -> None:
    forked, new = (
        codeact(*OTHERS[kind], stdin=code("print(1)"), cwd=tmp_path, new_interpreter=new) for new in (False, True)
    )
    assert alike(forked) == alike(new)
    assert forked.out + forked.err


def test_terminal_is_the_same_in_a_new_interpreter(tmp_path) -> None:
    arguments = ["run", "Compute", "--model", replay(tmp_path, *STEPS), *BOX]
    forked, new = (on_terminal(*arguments, new_interpreter=new) for new in (False, True))
    assert alike(Finished(0, forked, "")) == alike(Finished(0, new, ""))
    assert "\x1b[" in forked


def test_installed_command_runs_a_file(tmp_path) -> None:
    page = tmp_path / "page.md"
    page.write_text(code("print(6 * 7)"))
    done = subprocess.run(
        [COMMAND, "exec", page], env=environment(), capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("[1/1] python, line 2\n42\nok, ")
