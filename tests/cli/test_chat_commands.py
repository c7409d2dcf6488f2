"""The commands of `codeact chat`, typed through a pipe."""

import json
import re

import pytest

from tests.cli.support import code, codeact, replay

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.timeout(180)]

BOX = ["--sandbox", "bubblewrap"]
TIMES = re.compile(r"[\d.]+ m?s\b")


def chat(folder, answers, *lines, more=()):
    """Have a conversation, and return what was printed after each line."""
    model = replay(folder, *answers)
    text = "".join(f"{line}\n" for line in lines)
    env = {"XDG_STATE_HOME": str(folder / "state")}
    done = codeact("chat", "--model", model, *BOX, *more, stdin=text, env=env, cwd=folder)
    assert done.status == 0
    _, *parts = TIMES.sub("0 s", done.out).split("\n> ")
    assert [part.partition("\n")[0] for part in parts] == [*lines, ""]
    return [part.partition("\n")[2] for part in parts[:-1]]


def runs(folder):
    return sorted((folder / "state" / "autogen-codeact" / "runs").iterdir())


def test_commands_before_the_first_message(tmp_path):
    shown = chat(tmp_path, ["Hi."], "/reset", "/export x.json", "/export", "//etc")
    assert shown == [
        "The conversation starts again, with an empty session. Files stay as they are.",
        "There is nothing to export: nothing was said yet, or --save none keeps no log.",
        "There is nothing to export: nothing was said yet, or --save none keeps no log.",
        "The model says:\nHi.\n\n[1 token, 0 s]",
    ]


def test_words_that_leave_are_no_messages(tmp_path):
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    for word in ("exit", "quit", "/quit"):
        model = replay(tmp_path, "Hi.")
        done = codeact("chat", "--model", model, *BOX, stdin=f"{word}\nnever\n", env=env, cwd=tmp_path)
        assert (done.status, done.out.endswith(f"\n> {word}\n")) == (0, True), word


def test_reset_begins_with_an_empty_session(tmp_path):
    answers = [code("x = 41"), "One.", code("print('x' in dir())"), "Two."]
    shown = chat(tmp_path, answers, "set", "/reset", "is it there?")
    assert "\nFalse\nok, " in shown[2]
    events = [json.loads(line) for line in (runs(tmp_path)[0] / "events.jsonl").read_text().splitlines()]
    assert [each["type"] for each in events].count("conversation_reset") == 1


def test_files_and_exports(tmp_path):
    answers = [code("open('a.txt', 'w').write('hi')"), "Written."]
    exports = [
        "/export out.txt",
        "/export out.ipynb",
        "/export out.json",
        "/export out.html",
        "/export made",
        "/export made",
    ]
    shown = chat(tmp_path, answers, "write", "/files", *exports)
    assert re.fullmatch(r"a\.txt \(2 bytes\)\nOn this machine: /\S+", shown[1])
    assert shown[2] == "An export ends in .html, .ipynb or .json; a folder for the files has no ending."
    assert shown[-1] == "made is not empty: give a new folder."
    assert (tmp_path / "made" / "a.txt").read_text() == "hi"
    assert json.loads((tmp_path / "out.ipynb").read_text())["nbformat"] == 4
    assert json.loads((tmp_path / "out.json").read_text())["events"][0]["type"] == "run_started"
    assert "<html" in (tmp_path / "out.html").read_text()


def test_no_log_with_no_save(tmp_path):
    shown = chat(tmp_path, ["One."], "one", "/export x.html", more=["--save", "none"])
    assert shown[1] == "There is nothing to export: nothing was said yet, or --save none keeps no log."
    assert not (tmp_path / "state").exists()


def test_displays_are_named_with_their_file(tmp_path):
    svg = "'<svg xmlns=\"http://www.w3.org/2000/svg\"/>'"
    block = code("class Figure:", "    def _repr_svg_(self):", f"        return {svg}", "Figure()")
    work = tmp_path / "work"
    work.mkdir()
    (shown,) = chat(tmp_path, [block, "There."], "show", more=["--work-dir", work])
    name = re.search(r"\nFile: (\S+) \(\d+ bytes\)\n", shown)[1]
    assert (work / name).read_text().startswith("<svg")
