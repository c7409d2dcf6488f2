"""Runs that are kept, by default or with `--save`, and the commands that read them: runs, show and export."""

import fcntl
import json
import re
from pathlib import Path

import pytest
from atif import Trajectory

from autogen_codeact.cli.terminal import format_size
from tests.cases import case
from tests.cli.support import code, codeact, decision, in_bubblewrap, on_terminal, replay
from tests.openai_server import OpenAIServer, Reply
from tests.runs.logs import lines, started, text, whole_run, write_log

FAILS = "First try.\n" + code("print('one')", "1 / 0")
WORKS = "Second try.\n" + code("print(6 * 7)")
RETRIED = (FAILS, decision(True), WORKS, "It is **42**.")
STEPS = ("I look first.\n" + code("x = 6", "1 / 0"), "", code("x * 7"), code("final_answer(x * 7)"))
TEAM = (WORKS, "It is 42.\n\nTERMINATE")


# A run that is kept


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize(
    ("options", "answers"),
    [([], RETRIED), (["--act"], STEPS), (["--team"], TEAM)],
    ids=["agent", "act", "team"],
)
def test_a_saved_run_is_shown_as_it_was_printed(tmp_path, options, answers):
    folder = tmp_path / "runs" / "42"
    done = in_bubblewrap("run", "What is 6*7?", *options, "--model", replay(tmp_path, *answers), "--save", folder)
    where = f"codeact: kept in {folder}: `codeact show {folder}` prints it, `codeact view {folder}` opens it\n"
    assert (done.status, done.err) == (0, where)
    shown = codeact("show", folder)
    assert (shown.status, shown.err, shown.out) == (0, "", done.out)
    (run,) = codeact("runs", folder.parent, "--json").objects
    assert (run["task"], run["outcome"], run["error"], run["gaps"]) == ("What is 6*7?", "completed", None, 0)
    assert run["steps"] == {"--act": 3, "--team": 1}.get("".join(options), 2)


@pytest.mark.usefixtures("bubblewrap")
def test_files_of_a_saved_run_are_kept_and_can_be_exported(tmp_path):
    writes = "open('out/a.txt', 'w').write('{}')"
    first = code(
        "import os", "os.mkdir('out')", writes.format("old"), "open('big', 'wb').write(bytes(70_000_000))", "1 / 0"
    )
    model = replay(tmp_path, first, decision(True), code(writes.format("new")), "It is done.")
    done = in_bubblewrap("run", "Write.", "--model", model, "--save", "run", cwd=tmp_path)
    assert done.status == 0
    assert done.err == (
        "codeact: kept in run: `codeact show run` prints it, `codeact view run` opens it\n"
        "codeact: with the files out/a.txt: `codeact export run --files FOLDER` writes them\n"
        "codeact: removed with the sandbox: big. --work-dir FOLDER keeps files.\n"
    )
    shown = codeact("show", "run", cwd=tmp_path)
    assert shown.out == done.out
    assert shown.err == "codeact: with the files out/a.txt: `codeact export run --files FOLDER` writes them\n"
    assert codeact("export", "run", "--files", "out", cwd=tmp_path).err == "codeact: wrote out (1 file)\n"
    assert [(each.name, each.read_text()) for each in (tmp_path / "out" / "out").iterdir()] == [("a.txt", "new")]
    again = codeact("export", "run", "--files", "out", cwd=tmp_path)
    assert (again.status, again.err) == (2, "codeact: out is not empty: give a new folder.\n")


@pytest.mark.usefixtures("bubblewrap")
def test_a_run_that_fails_is_kept_up_to_its_error_and_without_the_key(tmp_path):
    secret = "sk-1234567890-of-the-tests"
    server = OpenAIServer([Reply(code("print(1)")), Reply(f"bad key {secret}", status=400)]).start()
    folder = tmp_path / "run"
    options = ["--model", "gpt-4o", "--base-url", server.base_url, "--save", folder]
    try:
        done = in_bubblewrap("run", "What is 1?", *options, env={"OPENAI_API_KEY": secret})
    finally:
        server.stop()
    assert done.status == 2
    shown = codeact("show", folder)
    assert (shown.status, shown.out) == (0, done.out)
    assert shown.err.startswith("codeact: The run failed. BadRequestError: ")
    assert codeact("runs", folder, "--json").objects[0]["outcome"] == "failed"
    kept = b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())
    assert b"What is 1?" in kept
    assert secret.encode() not in kept


def test_a_run_is_not_saved_over_something(tmp_path):
    (tmp_path / "file").touch()
    model = replay(tmp_path, "Hm.")
    for path, words in (
        (tmp_path, f"--save needs a new folder for each run, and {tmp_path} is not empty: give another path."),
        (tmp_path / "file", f"--save {tmp_path}/file: Not a directory. Give another folder."),
    ):
        done = codeact("run", "What?", "--model", model, "--save", path)
        assert (done.status, done.out, done.err) == (2, "", f"codeact: {words}\n")


# Reading


@pytest.fixture
def runs(tmp_path):
    """Return a folder with three runs: a whole one, one cut off with a damaged line, and one that can't be read."""
    folder = tmp_path / "runs"
    whole = whole_run()
    write_log(folder / "whole", lines(whole))
    hostile = lines([started("Bad \x1b[2Jtask\nof two lines"), *whole[1:7]])
    write_log(folder / "cut", [*hostile[:2], b"\x1b[2J\n", *hostile[3:], b'{"type": "mess'])
    write_log(folder / "broken", [b"\x1b[2J\n"])
    (folder / "empty").mkdir()
    (folder / "latest").symlink_to(folder / "whole")
    return folder


BROKEN = (
    "codeact: {}/broken can't be read: its log does not begin with the start of a run "
    "(line 1: the line is damaged: it is not JSON).\n"
)


def test_runs_are_listed_with_the_latest_first(runs):
    done = codeact("runs", runs)
    assert (done.status, done.err) == (1, BROKEN.format(runs))
    header, *rows = done.out.splitlines()
    assert header.split() == ["RUN", "OUTCOME", "STEPS", "TOKENS", "TIME", "TASK"]
    assert [re.split(r"\s{2,}", row) for row in rows] == [
        ["cut", "interrupted, 1 gap", "1", "0", "6.00 s", "Bad \\x1b[2Jtask of two lines"],
        ["whole", "completed", "1", "42", "9.00 s", "What is 6*7?"],
    ]
    one = codeact("runs", runs / "whole")
    assert (one.status, one.err, len(one.out.splitlines())) == (0, "", 2)


def test_runs_as_json_have_all_fields(runs):
    done = codeact("runs", runs, "--json")
    cut, whole, broken = done.objects
    assert [each["outcome"] for each in done.objects] == ["interrupted", "completed", "unreadable"]
    assert whole | {"started": ""} == {
        "path": str(runs / "whole"),
        "run": "r1",
        "name": "coder",
        "started": "",
        "task": "What is 6*7?",
        "outcome": "completed",
        "steps": 1,
        "tokens": 42,
        "seconds": 9.0,
        "error": None,
        "gaps": 0,
    }
    assert cut["task"] == "Bad \x1b[2Jtask\nof two lines"
    assert broken.keys() == {"outcome", "path", "reason"}


def test_runs_of_the_state_folder_are_found_by_name_and_as_the_last(tmp_path):
    env = {"XDG_STATE_HOME": str(tmp_path)}
    folder = tmp_path / "autogen-codeact" / "runs"
    done = codeact("runs", env=env)
    assert (done.status, done.out, done.err) == (
        0,
        "",
        f"codeact: no runs in {folder}: `codeact run` keeps one there\n",
    )
    write_log(folder / "20261122-100000-a-0000", lines(whole_run()))
    log = write_log(folder / "20261122-110000-b-0000", lines(whole_run()[:7])) / "events.jsonl"
    shown = codeact("show", "20261122-100000-a-0000", env=env)
    assert (shown.status, shown.err) == (0, "")
    with log.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        outcomes = {Path(each["path"]).name: each["outcome"] for each in codeact("runs", "--json", env=env).objects}
        shown = codeact("show", env=env)
    assert outcomes == {"20261122-100000-a-0000": "completed", "20261122-110000-b-0000": "running"}
    assert (shown.status, shown.err) == (0, "codeact: the run is still going on\n")
    file = tmp_path / "run.json"
    assert codeact("export", "last", "--json", file, env=env).status == 0
    assert len(json.loads(file.read_text())["events"]) == 7
    done = codeact("resume", "c", env=env)
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        f"codeact: There is no run c, neither here nor in {folder}. `codeact runs` lists those that are kept.\n"
    )


def test_a_damaged_run_is_shown_with_its_gaps_and_without_control_characters(runs):
    done = codeact("show", runs / "cut")
    assert done.status == 0
    assert done.out.startswith("== Task ==\n")
    assert "[gap in the log, line 3: the line is damaged: it is not JSON]\n" in done.out
    assert done.out.endswith("[gap in the log, line 8: the last line is incomplete]\n")
    assert done.err == (f"codeact: the run has not ended: `codeact resume {runs}/cut` continues it\n")
    terminal = on_terminal("show", runs / "cut")
    assert "\x1b[2J" not in done.out + terminal


def test_a_message_of_an_unknown_type_is_shown_as_text(tmp_path):
    message = {"type": "StructuredMessage[Price]", "source": "coder", "content": {"euros": 5}, "metadata": {}}
    event = text("")
    events = [*whole_run()[:2], event.model_copy(update={"message": message}), whole_run()[-1]]
    folder = write_log(tmp_path / "run", [*lines(events), b'{"type": "newer", "seq": 5, "schema_version": 1}\n'])
    done = codeact("show", folder)
    gap = "[gap in the log, line 5: this version does not know events of type newer]"
    assert done.out.endswith(f'== The model\'s answer ==\n{{"euros": 5}}\n\n{gap}\n')


# Export


def test_export_writes_json_a_page_and_a_trajectory(runs, tmp_path):
    written = {}
    for option, run in (("--json", "cut"), ("--html", "cut"), ("--atif", "whole")):
        with case(option):
            file = tmp_path / f"run{option}"
            done = codeact("export", runs / run, option, file)
            size = format_size(file.stat().st_size)
            assert (done.status, done.out, done.err) == (0, "", f"codeact: wrote {file} ({size})\n")
            written[option] = file.read_text()
    exported = json.loads(written["--json"])
    assert exported["schema_version"] == 1
    types = ["run_started", "message", "gap", "message", "block_started", "block_finished", "message", "gap"]
    assert [event["type"] for event in exported["events"]] == types
    assert written["--html"].startswith("<!doctype html>")
    assert '"outcome":"interrupted"' in written["--html"]
    Trajectory.model_validate_json(written["--atif"])
    assert list(tmp_path.glob(".*")) == []


def test_export_needs_a_file_that_can_be_written(runs, tmp_path):
    missing = tmp_path / "none" / "run.json"
    for options, words in (
        ([], "Say what to write: --html FILE, --ipynb FILE, --json FILE, --atif FILE or --files FOLDER."),
        (["--json", tmp_path], f"{tmp_path}: Is a directory."),
        (["--json", missing], f"{missing}: No such file or directory."),
    ):
        done = codeact("export", runs / "whole", *options)
        assert (done.status, done.out, done.err) == (2, "", f"codeact: {words}\n")


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
def test_save_none_keeps_nothing(tmp_path, state):
    done = run(state, tmp_path, PRINTS, "It is 42.", options=["--save", "none"])
    assert (done.status, messages_of(done)) == (0, "")
    assert not state.exists()


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
        r"--save FOLDER keeps it elsewhere, --save none turns this message off",
        line,
    )
