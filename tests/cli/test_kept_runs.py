"""`codeact run` keeps its run by default, says where, and removes the oldest ones."""

import os
import re

import pytest

from tests.cli.support import code, codeact, replay
from tests.runs.logs import lines, whole_run, write_log

NAME = r"\d{8}-\d{6}-what-is-6-7-[0-9a-f]{4}"
PRINTS = code("print(6 * 7)")


@pytest.fixture
def state(tmp_path):
    """Return a state folder of its own."""
    return tmp_path / "state"


def run(state, folder, *answers, **more):
    env = {"XDG_STATE_HOME": str(state), **more.pop("env", {})}
    arguments = ["--model", replay(folder, *answers), "--sandbox", "bubblewrap", *more.pop("options", [])]
    return codeact("run", "What is 6*7?", *arguments, env=env, cwd=folder)


def messages_of(done):
    """Return what the command has said, without which Python bubblewrap has."""
    return "".join(line for line in done.err.splitlines(True) if "the sandbox runs" not in line)


@pytest.mark.usefixtures("bubblewrap")
def test_a_run_is_kept_and_found_as_the_last_one(tmp_path, state):
    writes = code("open('a.txt', 'w').write('x')")
    done = run(state, tmp_path, writes, "It is done.")
    assert done.status == 0
    expected = (
        rf"codeact: kept as ({NAME}): `codeact show last` prints it, `codeact view last` opens it\n"
        r"codeact: with the files a\.txt: `codeact export last --files FOLDER` writes them\n"
    )
    name = re.fullmatch(expected, messages_of(done))[1]
    folder = state / "autogen-codeact" / "runs" / name
    assert sorted(each.name for each in folder.iterdir()) == ["events.jsonl", "files"]
    assert folder.parent.stat().st_mode & 0o077 == 0
    env = {"XDG_STATE_HOME": str(state)}
    assert codeact("show", "last", env=env).out == done.out
    assert codeact("show", name, env=env).out == done.out
    listed = codeact("runs", env={**env, "COLUMNS": "120"}).out.splitlines()
    assert [line.split()[0] for line in listed] == ["RUN", name]


def test_a_narrow_terminal_has_one_line_for_each_run(tmp_path):
    name = "20250101-000000-" + "a-long-name-" * 3
    write_log(tmp_path / "short", lines(whole_run()))
    write_log(tmp_path / name, lines(whole_run()))
    wide = codeact("runs", str(tmp_path), env={"COLUMNS": "400"}).out.splitlines()
    assert wide[0].split() == ["RUN", "OUTCOME", "STEPS", "TOKENS", "TIME", "TASK"]
    assert sorted(line.split()[0] for line in wide[1:]) == [name, "short"]
    assert all(line.endswith("  9.00 s  What is 6*7?") for line in wide[1:])
    narrow = codeact("runs", str(tmp_path), env={"COLUMNS": "70"}).out.splitlines()
    assert narrow == [f"{line[:69]}…" for line in wide]


@pytest.mark.usefixtures("bubblewrap")
def test_no_save_keeps_nothing(tmp_path, state):
    done = run(state, tmp_path, PRINTS, "It is 42.", options=["--no-save"])
    assert (done.status, messages_of(done)) == (0, "")
    assert not state.exists()
    done = run(state, tmp_path, "Hm.", options=["--no-save", "--save", "here"])
    assert (done.status, done.out) == (2, "")
    assert done.err == "codeact: --save and --no-save can't be combined: choose one.\n"


@pytest.mark.usefixtures("bubblewrap")
def test_the_oldest_runs_are_removed_beyond_the_size_that_is_set(tmp_path, state):
    runs = state / "autogen-codeact" / "runs"
    old = [write_log(runs / f"2025010{number}-000000-old-0000", lines(whole_run())) for number in (1, 2)]
    for number, each in enumerate(old):
        (each / "large").write_bytes(bytes(300_000))
        os.utime(each / "events.jsonl", (number, number))
    done = run(state, tmp_path, "It is 42.", env={"CODEACT_RUNS_SIZE": "500k"})
    assert done.status == 0
    assert messages_of(done).endswith(
        "codeact: removed the oldest run: more than 512 kB were kept (CODEACT_RUNS_SIZE sets another limit)\n"
    )
    kept = sorted(each.name for each in runs.iterdir())
    assert (len(kept), kept[0]) == (2, "20250102-000000-old-0000")


def test_invalid_size_limit_is_refused_before_the_run(tmp_path, state):
    done = run(state, tmp_path, "It is 42.", env={"CODEACT_RUNS_SIZE": "much"})
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("codeact: CODEACT_RUNS_SIZE: 'much' is not a size: ")


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("where", ["file", "proc"])
def test_a_run_goes_on_where_nothing_can_be_kept(tmp_path, state, where):
    state = "/proc" if where == "proc" else state
    if where == "file":
        state.write_text("")
    done = run(state, tmp_path, PRINTS, "It is 42.")
    assert done.status == 0
    assert done.out.endswith("It is 42.\n\n")
    (line,) = messages_of(done).splitlines()
    assert re.fullmatch(
        rf"codeact: the run is not kept \({state}/autogen-codeact\S*: .*\); "
        r"--save FOLDER keeps it elsewhere, --no-save turns this message off",
        line,
    )
