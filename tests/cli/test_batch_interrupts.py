"""`codeact batch` is interrupted in every way, and the same command goes on where it ended."""

import json
import re
import signal

import pytest

from tests.cli.batch_support import ENV, Model, answers, doubled, rows, write_tasks
from tests.cli.chat_terminal import Chat
from tests.cli.support import start, wait_until

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.timeout(200)]

SECONDS = 60


@pytest.fixture
def model():
    with Model() as made:
        yield made


def begin(model, tasks, out, *more):
    """Start a batch of 2 tasks at a time, and wait until two are at the model, which holds them."""
    model.held.clear()
    process = start(*model.arguments(tasks, out, "--concurrency", 2, *more), env=ENV)
    wait_until(lambda: sum(model.asked.values()) == 2, "the first requests", SECONDS)
    return process


def ends(process):
    out, err = process.communicate(timeout=SECONDS)
    return (
        process.returncode,
        out,
        [line for line in err.splitlines() if not re.search(r"the sandbox runs|done, 0 failed", line)],
    )


def goes_on(model, tasks, out, count):
    """Run the same command again, and assert that all tasks then have their answer, in one row each."""
    model.held.set()
    done = model.run(tasks, out)
    assert done.status == 0
    assert answers(out) == doubled(count)
    assert len(rows(out)) == count


def test_ctrl_c_lets_tasks_that_run_end(model, tmp_path):
    tasks = write_tasks(tmp_path, 4)
    with begin(model, tasks, tmp_path / "out") as process:
        process.send_signal(signal.SIGINT)
        line = next(line for line in process.stderr if "the sandbox runs" not in line)
        assert line == (
            "codeact: no further task begins; the 2 that run go on to the end (Ctrl-C again stops at once)\n"
        )
        model.held.set()
        status, out, err = ends(process)
    assert (status, err) == (130, ["codeact: interrupted, 2 of 4 done; the same command goes on from here"])
    assert out.startswith("2 tasks: 2 completed\n")
    assert answers(tmp_path / "out") == doubled(2)
    goes_on(model, tasks, tmp_path / "out", 4)
    assert set(model.asked.values()) == {1}


def test_ctrl_c_while_the_last_tasks_run_ends_the_batch_as_usual(model, tmp_path):
    with begin(model, write_tasks(tmp_path, 2), tmp_path / "out") as process:
        process.send_signal(signal.SIGINT)
        next(line for line in process.stderr if "no further task" in line)
        model.held.set()
        status, out, err = ends(process)
    assert (status, err) == (0, [])
    assert out.startswith("2 tasks: 2 completed\n")


def test_second_ctrl_c_stops_at_once(model, tmp_path):
    tasks = write_tasks(tmp_path, 4)
    with begin(model, tasks, tmp_path / "out", "--json") as process:
        process.send_signal(signal.SIGINT)
        next(line for line in process.stderr if "no further task" in line)
        process.send_signal(signal.SIGINT)
        status, out, err = ends(process)
    assert (status, err) == (130, ["codeact: stopping; Ctrl-C again ends at once"])
    (last,) = map(json.loads, out.splitlines())
    assert (last["outcome"], last["error"]["message"]) == ("cancelled", "stopped by SIGINT")
    assert last["error"]["advice"] == "the same command goes on from here"
    assert rows(tmp_path / "out") == []
    goes_on(model, tasks, tmp_path / "out", 4)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_other_signals_stop_at_once(model, tmp_path, number, status):
    tasks = write_tasks(tmp_path, 4)
    with begin(model, tasks, tmp_path / "out") as process:
        process.send_signal(number)
        assert ends(process) == (status, "", ["codeact: stopping; Ctrl-C again ends at once"])
    goes_on(model, tasks, tmp_path / "out", 4)


def test_killed_batch_goes_on(model, tmp_path):
    tasks = write_tasks(tmp_path, 4)
    with begin(model, tasks, tmp_path / "out") as process:
        process.kill()
        assert process.wait(SECONDS) == -signal.SIGKILL
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 2
    goes_on(model, tasks, tmp_path / "out", 4)
    assert sorted(model.asked.values()) == [1, 1, 2, 2]
    assert {row["id"] for row in rows(tmp_path / "out") if row["resumed"]} == {"t0", "t1"}


class Terminal(Chat):
    """A batch in a pseudo-terminal that is its controlling one."""

    command = "batch"


def test_closed_terminal_stops_the_batch(model, tmp_path):
    tasks = write_tasks(tmp_path, 4)
    model.held.clear()
    _, *arguments = model.arguments(tasks, tmp_path / "out", "--concurrency", 2)
    with Terminal(*arguments, state=tmp_path / "state", env=ENV) as terminal:
        terminal.until("2 running")
        wait_until(lambda: sum(model.asked.values()) == 2, "the first requests", SECONDS)
        terminal.hang_up()
        assert terminal.process.wait(SECONDS) == 129
    goes_on(model, tasks, tmp_path / "out", 4)
