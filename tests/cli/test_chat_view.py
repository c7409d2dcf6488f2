"""`codeact chat --view`: the chat's page, and questions in the terminal and on the page at once."""

import re

import httpx
import pytest

from tests.cli.chat_terminal import Chat
from tests.cli.support import code, replay, start, wait_until

pytestmark = pytest.mark.usefixtures("bubblewrap")
BOX = ["--sandbox", "bubblewrap", "--view"]
WAIT_S = 50


def api_of(chat):
    """Read where the page is; the address of its data."""
    written = chat.until(re.compile(r"the page of this run: \S+\r?\n"))
    return re.search(r"the page of this run: (\S+)", written)[1].replace("/runs/", "/api/runs/")


def changes(api):
    """All that the page has to know."""
    return httpx.get(f"{api}/changes", params={"since": 0, "questions": ""}, timeout=WAIT_S).json()


def question_of(api):
    """The number of the first question that is open."""
    wait_until(lambda: changes(api)["questions"], "a question", WAIT_S)
    return changes(api)["questions"][0]["id"]


def test_first_answer_counts_and_a_withdrawn_question_is_not_answered_by_chance(tmp_path):
    model = replay(tmp_path, code("print(6 * 7)"), code("print(7 * 8)"), "Done.")
    with Chat("--model", model, *BOX, "--approve", state=tmp_path) as chat:
        chat.until_prompt()
        chat.send("go\r")
        api = api_of(chat)
        chat.until("or what to do instead:")
        answer = {"question": question_of(api), "approve": True}
        assert httpx.post(f"{api}/answer", json=answer, timeout=WAIT_S).status_code == 200
        written = chat.until(re.compile(r"An earlier question was answered on the page: a yes is now y \d+"))
        assert "42\n" in written
        needed = written[-5:]
        chat.until("or what to do instead:")
        chat.send("y\r")
        chat.until(f"a yes is now {needed}")
        chat.until("or what to do instead:")
        chat.send(f"{needed}\r")
        assert "56\n" in chat.until_prompt()
        chat.send("/quit\r")
        assert chat.end()[0] == 0


def test_stop_on_the_page_ends_the_turn_and_keeps_the_chat(tmp_path):
    model = replay(tmp_path, code("import time", "time.sleep(60)"), "Hello.")
    with Chat("--model", model, *BOX, state=tmp_path) as chat:
        chat.until_prompt()
        chat.send("loop\r")
        api = api_of(chat)

        def block_runs():
            summaries = changes(api)["summaries"]
            return any(each["kind"] == "block" and each["running"] for each in summaries)

        wait_until(block_runs, "the block", WAIT_S)
        assert httpx.post(f"{api}/stop", json={}, timeout=WAIT_S).status_code == 200
        assert "[turn ended; the conversation is as it was before it]" in chat.until_prompt()
        assert "Hello.\n" in chat.say("hi")

        def kinds():
            return [each["kind"] for each in changes(api)["summaries"]]

        # The page follows the log, and may be a little behind the terminal.
        wait_until(lambda: kinds() == ["task", "block", "event", "task", "message"], "the next turn", WAIT_S)
        chat.send("/quit\r")
        assert chat.end()[0] == 0


def test_view_needs_a_chat_that_is_kept(tmp_path):
    with start("chat", "--model", replay(tmp_path, "Hi."), "--view", "--save", "none") as process:
        out, err = process.communicate("", timeout=WAIT_S)
    assert (process.returncode, out) == (2, "")
    assert err == "codeact: --view and --save none can't be combined: the page shows the log.\n"
