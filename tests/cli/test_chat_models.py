"""`codeact chat` with a server that speaks OpenAI's format: streams, errors, a resume."""

import re

import pytest

from tests.cli.chat_terminal import ON, Chat
from tests.cli.support import code, codeact, wait_until
from tests.openai_server import OpenAIServer, Reply

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.timeout(180)]

KEY = "sk-of-the-chat-tests"
BOX = ["--sandbox", "bubblewrap"]


@pytest.fixture
def server():
    server = OpenAIServer([]).start()
    yield server
    server.stop()


def talk(server, *replies, state, more=()):
    server.script[:] = [reply if isinstance(reply, Reply) else Reply(reply) for reply in replies]
    arguments = ["--model", "gpt-4o", "--base-url", server.base_url, *BOX, *more]
    return Chat(*arguments, state=state, env={"OPENAI_API_KEY": KEY})


def sent(server):
    """What each request says after the system message: role and text."""
    return [[(each["role"], each["content"]) for each in request["messages"][1:]] for request in server.requests]


def test_an_error_of_the_model_ends_the_turn_only(server, tmp_path):
    refused = Reply(f"out of order, {KEY}", status=401)
    with talk(server, "One.", refused, "Two.", state=tmp_path) as chat:
        chat.until_prompt()
        chat.say("one")
        failed = chat.say("two")
        assert "The turn failed. AuthenticationError: " in failed
        assert "out of order, ***" in failed
        assert "Two.\n" in chat.say("two")
        assert KEY not in chat.written
    said = [("user", "one"), ("assistant", "One."), ("user", "two")]
    assert sent(server) == [said[:1], said, said]


def test_a_chat_that_was_killed_goes_on(server, tmp_path):
    slow = code("y = 2", "print('on', flush=True)", "import time", "time.sleep(60)")
    with talk(
        server, code("x = 1"), "One.", slow, "What now?", code("print(x, 'y' in dir())"), "End.", state=tmp_path
    ) as chat:
        chat.until_prompt()
        chat.say("one")
        chat.send("two\r")
        chat.until(ON)
        (run,) = chat.runs
        chat.process.kill()
    with Chat("--resume", "last", state=tmp_path, env={"OPENAI_API_KEY": KEY}) as again:
        greeting = again.until_prompt()
        assert "codeact: rebuilding the session: 1 block" in greeting
        assert f"Going on with {run.name}; `codeact show {run.name}` prints what was said.\n" in greeting
        assert "Its turn was interrupted, and goes on:\n" in greeting
        assert "What now?\n" in greeting
        assert "\n1 False\n" in again.say("is x there?")
        again.send("/quit\r")
        assert again.end()[0] == 0
    assert [each[-1] for each in sent(server)][-2:] == [("user", "is x there?"), ("user", "1 False\n")]
    shown = codeact("show", run)
    assert (shown.status, "== Task ==\none\n" in shown.out, "End." in shown.out) == (0, True, True)
    listed = codeact("runs", env={"XDG_STATE_HOME": str(tmp_path)})
    assert re.search(rf"{run.name} .* completed +3 .* one\n", listed.out)
    wait_until(lambda: codeact("export", run, "--json", tmp_path / "run.json").status == 0, "the export")
