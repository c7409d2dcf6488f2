"""`codeact chat` in a real terminal."""

import re

import pytest

from tests.cli.chat_terminal import ALT_ENTER, CTRL_C, CTRL_D, ON, Chat
from tests.cli.support import code, replay

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.timeout(180)]

BOX = ["--sandbox", "bubblewrap"]
TIMES = re.compile(r"[\d.]+ m?s\b")


def timeless(text):
    """Return a text without durations and rules."""
    return re.sub(r"^── (.+?) ─+$", r"== \1 ==", TIMES.sub("0 s", text), flags=re.MULTILINE)


def test_turns_share_one_session(tmp_path):
    model = replay(tmp_path, f"I set it.\n{code('x = 41', 'print(x)')}\n", "Done.", code("x + 1"), "It is 42.")
    with Chat("--model", model, *BOX, state=tmp_path) as chat:
        assert chat.until_prompt().endswith(
            "codeact chat: recorded answers, bubblewrap sandbox, temporary folder. /help lists the commands.\n"
        )
        assert timeless(chat.say("set x")) == (
            "set x\nThe model says:\nI set it.\n```python\nx = 41\nprint(x)\n```\n\n"
            "== Step 1 in the sandbox ==\n41\nok, 0 s\n\nThe model says:\nDone.\n\n[1 block, 10 tokens, 0 s]\n"
        )
        assert timeless(chat.say("add one")) == (
            "add one\nThe model says:\n```python\nx + 1\n```\n\n"
            "== Step 1 in the sandbox ==\n42\nok, 0 s\n\nThe model says:\nIt is 42.\n\n[1 block, 8 tokens, 0 s]\n"
        )
        chat.send("/quit\r")
        status, written = chat.end()
    (run,) = chat.runs
    assert status == 0
    assert written == (
        f"/quit\ncodeact: saved: `codeact chat --resume {run.name}` goes on with it, `codeact show {run.name}` prints it\n"
    )
    assert re.fullmatch(r"\d{8}-\d{6}-set-x-[0-9a-f]{4}", run.name)


@pytest.mark.parametrize("block", [code("x = 2", "print('on', flush=True)", "import time", "time.sleep(60)")])
def test_ctrl_c_stops_the_block_then_the_turn_then_leaves(tmp_path, block):
    answers = [code("x = 1"), "One.", block, block, code("print(x)"), "Still one.", block, block]
    with Chat("--model", replay(tmp_path, *answers), *BOX, state=tmp_path) as chat:
        chat.until_prompt()
        chat.say("one")
        chat.send("loop\r")
        chat.until(ON)
        chat.send(CTRL_C)
        assert "[stopping the code; Ctrl-C again ends the turn]" in chat.until("stopped, ")
        chat.until(ON)
        chat.send(CTRL_C)
        assert "[turn ended; the conversation is as it was before it]" in chat.until_prompt()
        assert "\n1\nok, " in chat.say("what is x?")
        chat.send("loop\r")
        for what in ("stopped, ", "[turn ended"):
            chat.until(ON)
            chat.send(CTRL_C)
            chat.until(what)
        chat.until_prompt()
        chat.send(CTRL_C)
        assert chat.end()[0] == 130


def test_ctrl_c_on_an_empty_line_asks_once(tmp_path):
    with Chat("--model", replay(tmp_path, "Hi."), *BOX, state=tmp_path) as chat:
        chat.until_prompt()
        chat.send(CTRL_C)
        assert chat.until_prompt() == "\ncodeact: Ctrl-C again leaves the chat; so do /quit and Ctrl-D\n"
        chat.send(CTRL_C)
        assert chat.end() == (130, "\n")
    assert chat.runs == []


def test_message_of_several_lines(tmp_path):
    model = replay(tmp_path, "One.", "Two.")
    with Chat("--model", model, *BOX, state=tmp_path) as chat:
        chat.until_prompt()
        chat.send(f"a{ALT_ENTER}b\r")
        chat.until_prompt()
        chat.send("\x1b[200~c\nd\n\x1b[201~")
        chat.send("\r")
        chat.until_prompt()
        chat.send(CTRL_D)
        assert chat.end()[0] == 0
    log = (chat.runs[0] / "events.jsonl").read_text()
    assert '"content":"a\\nb"' in log
    assert '"content":"c\\nd"' in log


def test_an_unknown_command_names_the_help(tmp_path):
    with Chat("--model", replay(tmp_path, "Hi."), *BOX, state=tmp_path) as chat:
        chat.until_prompt()
        assert chat.say("/reste") == (
            "/reste\nThere is no command /reste; /help lists them. To send it as a message, begin it with two slashes.\n"
        )
        shown = chat.say("/help")
        assert max(map(len, shown.splitlines())) <= 100
        assert "begins a new line. A paste of several lines is one message." in " ".join(shown.split())


@pytest.mark.parametrize(("answer", "shown"), [("y", "\n7\n"), ("n", "not approved"), ("a", "\n7\n")])
def test_code_is_approved(tmp_path, answer, shown):
    model = replay(tmp_path, code("open('a.txt', 'w').write('b\\nc\\n')", "print(7)"), "Done.")
    with Chat("--model", model, *BOX, "--approve", state=tmp_path) as chat:
        chat.until_prompt()
        chat.send("go\r")
        chat.until("or what to do instead:")
        chat.send(f"{answer}\r")
        written = chat.until_prompt()
        assert shown in written


def test_ctrl_c_at_the_question_denies_and_the_turn_goes_on(tmp_path):
    model = replay(tmp_path, code("print(7)"), "Then not.", "Yes?")
    with Chat("--model", model, *BOX, "--approve", state=tmp_path) as chat:
        chat.until_prompt()
        chat.send("go\r")
        chat.until("or what to do instead:")
        chat.send(CTRL_C)
        written = chat.until_prompt()
        assert "Reason: the person stopped it\n" in written
        assert "Then not.\n" in written
        assert "Yes?\n" in chat.say("still there?")
