"""`codeact chat --view`: the chat's page, and questions in the terminal and on the page at once."""

import re

import pytest

from tests.cli.chat_terminal import Chat
from tests.cli.support import code, replay, wait_until
from tests.cli.test_run_view import WAIT_S, Page

pytestmark = pytest.mark.usefixtures("bubblewrap")
BOX = ["--sandbox", "bubblewrap", "--view"]


def page_of(chat):
    """Read where the page is, and return it."""
    written = chat.until(re.compile(r"the page of this run: \S+\r?\n"))
    return Page(re.search(r"the page of this run: (\S+)", written)[1])


def test_first_answer_counts_and_a_withdrawn_question_is_not_answered_by_chance(tmp_path):
    model = replay(tmp_path, code("print(6 * 7)"), code("print(7 * 8)"), "Done.")
    with Chat("--model", model, *BOX, "--approve", state=tmp_path) as chat:
        page = page_of(chat)  # before the first message
        chat.until_prompt()
        chat.send("go\r")
        chat.until("or what to do instead:")
        assert page.post("answer", question=page.questions()["id"], approve=True).status_code == 200
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
        page = page_of(chat)  # before the first message
        chat.until_prompt()
        chat.send("loop\r")
        page.wait_for_block()
        assert page.post("stop").status_code == 200
        assert "[turn ended; the conversation is as it was before it]" in chat.until_prompt()
        assert "Hello.\n" in chat.say("hi")

        def kinds():
            return [each["kind"] for each in page.changes()["summaries"]]

        # The page follows the log, and may be a little behind the terminal.
        wait_until(lambda: kinds() == ["task", "block", "event", "task", "message"], "the next turn", WAIT_S)
        chat.send("/quit\r")
        assert chat.end()[0] == 0
