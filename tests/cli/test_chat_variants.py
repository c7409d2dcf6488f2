"""`codeact chat` with other agents, sandboxes and terminals, and what it leaves behind."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from tests.cli.chat_terminal import CTRL_C, ON, PROMPT, Chat
from tests.cli.support import code, codeact, replay, wait_until

pytestmark = pytest.mark.timeout(180)

BOX = ["--sandbox", "bubblewrap"]
BLOCK = code("print('on', flush=True)", "import time", "time.sleep(60)")
TIMES = re.compile(r"[\d.]+ m?s\b")


def work_folders(folder):
    return sorted(path.name for path in Path(folder).iterdir() if path.name.startswith("codeact-"))


@pytest.mark.usefixtures("bubblewrap")
def test_a_pipe_gets_plain_lines(tmp_path):
    model = replay(tmp_path, f"Look:\n{code('print(6 * 7)')}", "**42**", "Two lines.")
    done = codeact("chat", "--model", model, *BOX, stdin="go\nsecond\n/mod\n", env={"XDG_STATE_HOME": str(tmp_path)})
    assert (done.status, TIMES.sub("0 s", done.out)) == (
        0,
        "codeact chat: recorded answers, bubblewrap sandbox, temporary folder. /help lists the commands.\n"
        "> go\nThe model says:\nLook:\n```python\nprint(6 * 7)\n```\n\n"
        "== Step 1 in the sandbox ==\n42\nok, 0 s\n\nThe model says:\n**42**\n\n[1 block, 7 tokens, 0 s]\n"
        "> second\nThe model says:\nTwo lines.\n\n[2 tokens, 0 s]\n"
        "> /mod\nThere is no command /mod; /help lists them. To send it as a message, begin it with two slashes.\n"
        "> \n",
    )
    (run,) = (tmp_path / "autogen-codeact" / "runs").iterdir()
    assert '"content":"second"' in (run / "events.jsonl").read_text()


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize(
    ("env", "size", "prompt"),
    [({"TERM": "dumb"}, (24, 80), "\r\n> "), ({}, None, PROMPT), ({"TERM": ""}, None, "\r\n> ")],
)
def test_simple_terminals_get_plain_lines(tmp_path, env, size, prompt):
    model = replay(tmp_path, code("x = 1"), "One.", BLOCK, "Stopped.")
    with Chat("--model", model, *BOX, state=tmp_path, env=env, size=size, prompt=prompt) as chat:
        chat.until_prompt()
        chat.send("one\n")
        assert "One.\n" in chat.until_prompt()
        chat.send("loop\n")
        chat.until(ON)
        chat.send(CTRL_C)
        assert "Stopped.\n" in chat.until_prompt()
        chat.send("/quit\n")
        assert chat.end()[0] == 0
        assert ("\x1b" in chat.written) == ("TERM" not in env)


@pytest.mark.usefixtures("docker_engine")
@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_behind(tmp_path, number):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with Chat("--model", replay(tmp_path, BLOCK, BLOCK), state=tmp_path, env={"TMPDIR": str(temporary)}) as chat:
        chat.until_prompt()
        chat.send("loop\r")
        chat.until(ON)
        if number is None:
            for what in ("[stopping the code", "[turn ended"):
                chat.send(CTRL_C)
                chat.until(what)
            chat.until_prompt()
            chat.send(CTRL_C)
        else:
            chat.process.send_signal(number)
        status, written = chat.end()
        assert status == 128 + (number or signal.SIGINT)
        wait_until(lambda: not chat.containers(), "the end of the container")
        assert f"codeact chat --resume {chat.runs[0].name}" in written
    assert work_folders(temporary) == []


@pytest.mark.usefixtures("docker_engine")
def test_a_sandbox_that_dies_is_named(tmp_path):
    model = replay(
        tmp_path, code("table = [1]", "def total(): pass"), "Made.", code("'table' in dir()"), "Gone.", "Fine."
    )
    with Chat("--model", model, state=tmp_path) as chat:
        chat.until_prompt()
        chat.say("make a table")
        (container,) = chat.containers()
        subprocess.run(["docker", "rm", "-f", container], check=True, capture_output=True)
        written = chat.say("is it there?")
        assert "False\n" in written
        assert "The sandbox had died, and a new one was started, without the variables of this session. " in written


@pytest.mark.usefixtures("bubblewrap")
def test_chat_with_a_team(tmp_path):
    model = replay(tmp_path, code("print(6 * 7)"), "It is 42. TERMINATE", code("print('again')"), "Again. TERMINATE")
    with Chat("--model", model, "--team", *BOX, state=tmp_path) as chat:
        chat.until_prompt()
        written = chat.say("what is 6 * 7?")
        assert "coder says:\n```python\nprint(6 * 7)\n```\n" in written
        assert re.search(r"── executor ─+\n42\n", written)
        assert "coder says:\nIt is 42. TERMINATE\n" in written
        assert "\nagain\n" in chat.say("again")


@pytest.mark.usefixtures("bubblewrap")
def test_chat_with_a_component(tmp_path):
    client = ReplayChatCompletionClient(["```python\nprint('mine')\n```", "Yours."])
    agent = CodeActAgent("mine", BubblewrapCommandLineCodeExecutor(mode="session"), model_client=client)
    file = tmp_path / "agent.json"
    file.write_text(json.dumps(agent.dump_component().model_dump(), default=str))
    with Chat("--agent", file, state=tmp_path) as chat:
        chat.until_prompt()
        written = chat.say("go")
        assert "\nmine\n" in written
        assert "Yours.\n" in written
        chat.send("/quit\r")
        assert chat.end()[0] == 0
