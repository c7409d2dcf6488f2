"""The commands of `codeact chat`: its files, shell commands, exports, Tab, and a conversation that goes on."""

import json
import re
import urllib.error
import urllib.request

import pytest

from tests.cli.chat_terminal import Chat
from tests.cli.support import code, codeact, replay

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.timeout(180)]

BOX = ["--sandbox", "bubblewrap"]
TIMES = re.compile(r"[\d.]+ m?s\b")


def talk(folder, answers, *lines, more=()):
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
    shown = talk(tmp_path, ["Hi."], "/reset", "/export x.json", "/export", "//etc")
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
    shown = talk(tmp_path, answers, "set", "/reset", "is it there?")
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
    shown = talk(tmp_path, answers, "write", "/files", *exports)
    assert re.fullmatch(r"a\.txt \(2 bytes\)\nOn this machine: /\S+", shown[1])
    assert shown[2] == "An export ends in .html, .ipynb or .json; a folder for the files has no ending."
    assert shown[-1] == "made is not empty: give a new folder."
    assert (tmp_path / "made" / "a.txt").read_text() == "hi"
    assert json.loads((tmp_path / "out.ipynb").read_text())["nbformat"] == 4
    assert json.loads((tmp_path / "out.json").read_text())["events"][0]["type"] == "run_started"
    assert "<html" in (tmp_path / "out.html").read_text()


def test_tab_completes_commands_and_names_of_files(tmp_path):
    (tmp_path / "sales.csv").write_text("a,b\n")
    (tmp_path / "hid\u202eden.csv").touch()
    with Chat("--model", replay(tmp_path, "Seen."), *BOX, state=tmp_path, cwd=tmp_path) as chat:
        chat.until_prompt()
        chat.send("/ad\tsal\t")
        chat.until("sales.csv")
        assert "Added sales.csv (4 bytes). Your next message tells the model.\n" in chat.say("")
        assert "Seen.\n" in chat.say("look at sales.csv")
        chat.send("/add hid\t\x15/e\t")
        chat.until("/export")
        assert "\u202e" not in chat.written
    (log,) = chat.runs
    sent = [json.loads(line) for line in (log / "events.jsonl").read_text().splitlines()]
    (task,) = [each["task"][0]["content"] for each in sent if each["type"] == "turn_started"]
    assert task == "look at sales.csv\n\n(I have put into the working folder: sales.csv)"


def test_files_are_added_and_shell_commands_run_in_the_sandbox(tmp_path):
    (tmp_path / "sales.csv").write_text("a,b\n")
    answers = [code("print(open('sales.csv').read())"), "Read."]
    lines = [
        "/add sales.csv",
        "/add none.csv",
        "/add .",
        "/add",
        "!cat sales.csv; echo $HOME",
        "!exit 3",
        "read it",
        "!!x",
    ]
    shown = talk(tmp_path, [*answers, "Well."], *lines)
    assert shown[:4] == [
        "Added sales.csv (4 bytes). Your next message tells the model.",
        "none.csv is not there: give the path of a file.",
        ". is not a file: give the path of a file.",
        "Which file? /add sales.csv copies it into the workspace.",
    ]
    assert shown[4].startswith("a,b\n/")
    assert str(tmp_path) not in shown[4]
    assert shown[5] == "[exit code 3]"
    assert "\na,b\n" in shown[6]
    assert shown[7].startswith("The model says:\nWell.\n")


def test_a_server_in_the_sandbox_is_opened_for_this_machine(tmp_path):
    serve = code(
        "import http.server, threading",
        "class Page(http.server.BaseHTTPRequestHandler):",
        "    def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b'from the sandbox')",
        "    def log_message(self, *words): pass",
        "server = http.server.HTTPServer(('127.0.0.1', 8000), Page)",
        "threading.Thread(target=server.serve_forever, daemon=True).start()",
    )
    with Chat("--model", replay(tmp_path, serve, "It runs."), *BOX, state=tmp_path) as chat:
        chat.until_prompt()
        assert "It runs." in chat.say("serve a page")
        assert "Which port? /open 8000 prints" in chat.say("/open")
        assert "70000 is not a port" in chat.say("/open 70000")
        shown = chat.say("/open 8000")
        name, port = re.search(r"http://(\S+\.localhost):(\d+)/", shown).groups()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"Host": f"{name}:{port}"})
        assert urllib.request.urlopen(request, timeout=20).read() == b"from the sandbox"
        chat.send("/quit\n")
        assert chat.end()[0] == 0
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(request, timeout=20)


def test_a_chat_that_goes_on_names_the_command_that_prints_it(tmp_path):
    talk(tmp_path, [code("x = 1"), "One."], "one")
    model, env = replay(tmp_path, code("print(x)"), "Then."), {"XDG_STATE_HOME": str(tmp_path / "state")}
    done = codeact("chat", "--model", model, "--resume", "last", stdin="two\n", env=env, cwd=tmp_path)
    assert re.search(r"Going on with (\S+); `codeact show \1` prints what was said\.\n> two\n", done.out)
    assert "\n1\nok, " in done.out


def test_plain_lines_for_screen_readers(tmp_path):
    model = replay(tmp_path, code("x = 1"), "It is **1**.")
    with Chat("--model", model, *BOX, state=tmp_path, env={"CODEACT_PLAIN": "1"}, prompt="\r\n> ") as chat:
        chat.until_prompt()
        chat.send("go\n")
        assert "It is **1**.\n" in chat.until_prompt()
        chat.send("/quit\n")
        assert chat.end()[0] == 0
        assert not re.search("[\x1b\u2500\u2800-\u28ff]", chat.written)
