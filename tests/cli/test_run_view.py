"""`codeact run --view` and `--approve`: the page of a run that goes on, and questions there and in the terminal."""

import os
import re
import signal

import httpx
import pexpect
import pytest

from autogen_codeact.viewer.steps import RunSteps

from .support import COMMAND, code, environment, replay, start, wait_until

WAIT_S = 50
OPTIONS = ("--sandbox", "bubblewrap", "--act")


class Page:
    """The page of a run, as a browser asks for it."""

    def __init__(self, url):
        self.api = url.replace("/runs/", "/api/runs/")

    def changes(self):
        """All that the page has to know."""
        return httpx.get(f"{self.api}/changes", params={"since": 0, "questions": ""}, timeout=WAIT_S).json()

    def questions(self):
        """The first question that is open."""
        wait_until(lambda: self.changes()["questions"], "a question", WAIT_S)
        return self.changes()["questions"][0]

    def wait_for_block(self):
        """Wait until a block runs."""

        def runs():
            return any(each["kind"] == "block" and each["running"] for each in self.changes()["summaries"])

        wait_until(runs, "the block", WAIT_S)

    def post(self, what, **body):
        return httpx.post(f"{self.api}/{what}", json=body, timeout=WAIT_S)


def page_of(process):
    """Read where the page is, and return it."""
    said = process.stderr.readline()
    return Page(re.fullmatch(r"codeact: the page of this run: (\S+)\n", said)[1])


def run(folder, *answers, approve=True):
    options = ["--approve"] if approve else []
    return start(
        "run", "Go.", "--model", replay(folder, *answers), *OPTIONS, "--view", *options, "--save", folder / "run"
    )


@pytest.mark.parametrize("approve", [True, False])
def test_code_is_approved_or_denied_on_the_page(bubblewrap, tmp_path, approve):
    with run(tmp_path, code("print(6 * 7)"), "Done.") as process:
        page = page_of(process)
        question = page.questions()
        assert (question["kind"], question["text"]) == ("code", "```python\nprint(6 * 7)\n```")
        assert page.post("answer", question=question["id"], approve=approve).status_code == 200
        out, _ = process.communicate(timeout=WAIT_S)
    # Code that was not approved has failed.
    assert process.returncode == (0 if approve else 1)
    assert ("42\nok" in out) is approve
    assert ("the person said no on the run's page" in out) is not approve


def test_stop_on_the_page_ends_the_run_as_ctrl_c_does(bubblewrap, tmp_path):
    with run(tmp_path, code("import time", "time.sleep(60)"), approve=False) as process:
        page = page_of(process)
        page.wait_for_block()
        assert page.post("stop").status_code == 200
        process.communicate(timeout=WAIT_S)
    assert process.returncode == 128 + signal.SIGINT
    log = RunSteps(tmp_path / "run")
    log.view.read_all()
    assert log.header()["outcome"] == "cancelled"


def test_first_answer_counts_in_the_terminal_and_on_the_page(bubblewrap, tmp_path):
    model = replay(tmp_path, code("x = 1\nx"), code("x + 1"), "Done.")
    arguments = ["run", "Go.", "--model", model, *OPTIONS, "--view", "--approve", "--save", str(tmp_path / "run")]
    environ = environment({"DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": ""})
    terminal = pexpect.spawn(
        str(COMMAND), arguments, env=environ, timeout=WAIT_S, encoding="utf-8", dimensions=(40, 200)
    )
    try:
        terminal.expect(r"the page of this run: (\S+)\r\n")
        page = Page(terminal.match[1])
        terminal.expect("The model wants to run this code:")
        terminal.expect("why not")
        assert page.post("answer", question=page.questions()["id"], approve=True).status_code == 200
        terminal.expect("the question about the code was withdrawn; no answer is needed")
        terminal.expect(r"a yes to this one needs a code, such as: (y \d+)")
        answer = terminal.match[1]
        terminal.expect("why not")
        number = page.questions()["id"]
        terminal.sendline(answer)
        terminal.expect("the page can be looked at until Ctrl-C")
        assert page.post("answer", question=number, approve=False).status_code == 409

        def header():
            return page.changes()["header"]

        # The page reads the log several times a second, so it can know of the end a little later than the terminal.
        wait_until(lambda: header()["outcome"] == "completed", "the run's end on the page", WAIT_S)
        assert (header()["blocks"], header()["controls"]) == (2, False)
        os.kill(terminal.pid, signal.SIGINT)
        terminal.expect(pexpect.EOF)
        terminal.wait()
        assert terminal.exitstatus == 0
    finally:
        terminal.close(force=True)


def test_approve_without_a_terminal_and_without_a_page_runs_nothing(bubblewrap, tmp_path):
    model = replay(tmp_path, code("print(6 * 7)"), "Done.")
    with start("run", "Go.", "--model", model, *OPTIONS, "--approve", "--save", "none") as process:
        out, _ = process.communicate("", timeout=WAIT_S)
    assert process.returncode == 1
    assert "approval needed, but stdin is not a terminal" in out


def test_view_needs_a_run_that_is_kept(tmp_path):
    with start("run", "Go.", "--model", replay(tmp_path, "Done."), "--view", "--save", "none") as process:
        out, err = process.communicate("", timeout=WAIT_S)
    assert (process.returncode, out) == (2, "")
    assert err == "codeact: --view and --save none can't be combined: the page shows the log.\n"
