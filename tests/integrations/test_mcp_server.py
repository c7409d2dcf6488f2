"""`codeact mcp` with real clients, over standard input and output, in a real sandbox."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from codeact_sandbox.backends.docker.engine import connect
from tests import processes
from tests.cli.support import COMMAND, wait_until

CLIENT = Path(__file__).with_name("mcp_client.py")

MCP_2 = Path(sys.prefix, "mcp2")
SAVE_IMAGE = """
import struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
image = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\\0\\0")) + chunk(b"IEND", b"")
open("dot.png", "wb").write(b"\\x89PNG\\r\\n\\x1a\\n" + image)
None
"""
SLOW = "import time\nfor number in range(3):\n    print(number, flush=True)\n    time.sleep(0.3)"
TOOLS = ["list_files", "read_file", "restart", "run_code", "write_file"]
RESTARTED = "The session was restarted. Variables, functions and imports are gone. The files are still there."
NOT_DEFINED = "NameError: name 'x' is not defined\nThe code failed: error, exit code 1, session state kept."


def packages(major: int) -> str:
    """The variable with which a program has that major version of `mcp`."""
    if major == 2 and not MCP_2.is_dir():
        pytest.fail(f"{MCP_2} is missing: `make .venv/mcp2` makes it")
    return f"PYTHONPATH={MCP_2 if major == 2 else ''}"


Talk = Callable[..., list[dict[str, Any]]]


@dataclass(frozen=True)
class Client:
    """A running client with its server, and the server's `--work-dir`."""

    process: subprocess.Popen[str]
    folder: Path


@pytest.fixture(scope="module")
def clients(bubblewrap, tmp_path_factory):
    """Starts a client with a server, by the major version of `mcp` of both; it lives as long as the module."""
    with ExitStack() as running:

        @cache
        def start(client: int, server: int) -> Client:
            folder = tmp_path_factory.mktemp("served")
            options = ["mcp", "--sandbox", "bubblewrap", "--work-dir", str(folder)]
            command = ["env", packages(server), str(COMMAND), *options]
            process = subprocess.Popen(
                ["env", packages(client), sys.executable, CLIENT, json.dumps(command)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            return Client(running.enter_context(process), folder)

        yield start


@pytest.fixture
def talk(clients: Callable[[int, int], Client]) -> Talk:
    """Has a client make calls in a new session without files, and returns what it got: the tools, then the results.

    What was printed before the end of a call is only in it with `progress`: it depends on how fast the machine is.
    """

    def make_calls(*calls, client=1, server=1, progress=False):
        running = clients(client, server)
        for path in running.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        _, restarted, files = ask(running.process, ("restart", {}), ("list_files", {}))
        assert (text(restarted), text(files)) == (RESTARTED, "There are no files.")
        answers = ask(running.process, *calls)
        return [answer for answer in answers if progress or "progress" not in answer]

    return make_calls


def ask(process: subprocess.Popen[str], *calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Have a running client make calls."""
    assert process.stdin is not None
    assert process.stdout is not None
    timed = [[name, arguments, 30] for name, arguments in calls]
    process.stdin.write(json.dumps(timed) + "\n")
    process.stdin.flush()
    lines = map(json.loads, process.stdout)
    return list(iter(partial(next, lines), None))


def text(answer: dict[str, Any]) -> str:
    """The one text of an answer."""
    ((kind, words),) = answer["content"]
    assert kind == "text"
    return str(words)


@pytest.mark.parametrize("server", [1, 2], ids=["server 1", "server 2"])
@pytest.mark.parametrize("client", [1, 2], ids=["client 1", "client 2"])
def test_client_and_server_of_either_major_version(talk: Talk, client: int, server: int) -> None:
    listed, first, second = talk(
        ("run_code", {"code": "x = 41"}), ("run_code", {"code": "x + 1"}), client=client, server=server
    )
    assert listed == {"tools": TOOLS}
    assert first == {"error": False, "content": [["text", "The code printed nothing."]]}
    assert second == {"error": False, "content": [["text", "42"]]}


def test_tools_and_their_errors(talk: Talk) -> None:
    calls = (
        ("run_code", {"code": "x = 1/0"}),
        ("run_code", {"code": SAVE_IMAGE}),
        ("write_file", {"name": "data/notes.txt", "content": "grün"}),
        ("list_files", {}),
        ("read_file", {"name": "data/notes.txt"}),
        ("read_file", {"name": "dot.png"}),
        ("read_file", {"name": "../notes.txt"}),
        ("read_file", {"name": "missing.txt"}),
        (
            "run_code",
            {"code": "open('large.txt', 'w').write('x' * 300_000); open('binary', 'wb').write(b'\\xff\\xfe') and None"},
        ),
        ("read_file", {"name": "large.txt"}),
        ("read_file", {"name": "binary"}),
        ("run_code", {"code": "echo $((6 * 7))", "language": "sh"}),
        ("run_code", {"code": "print 1", "language": "cobol"}),
        ("run_code", {"code": "while True: pass", "timeout": 0.5}),
        ("run_code", {"code": "x = 5"}),
        ("restart", {}),
        ("run_code", {"code": "x"}),
    )
    answers = talk(*calls)[1:]
    failed = {0, 6, 7, 9, 10, 12, 13, 16}
    assert {number for number, answer in enumerate(answers) if answer["error"]} == failed
    assert "ZeroDivisionError: division by zero" in text(answers[0])
    assert answers[1]["content"] == [["text", "Changed files:\ndot.png"], ["image", "image/png"]]
    assert text(answers[2]) == "Wrote 5 bytes to data/notes.txt."
    assert text(answers[3]).splitlines() == ["data/notes.txt", "dot.png"]
    assert text(answers[4]) == "grün"
    assert answers[5]["content"] == [["image", "image/png"]]
    assert "which could leave the workspace" in text(answers[6])
    assert "missing.txt" in text(answers[7])
    assert "large.txt is too large (300,000 bytes)" in text(answers[9])
    assert "binary is not a text file (2 bytes)" in text(answers[10])
    assert text(answers[11]) == "42"
    assert "The language 'cobol' can't be run here" in text(answers[12])
    assert "timeout, exit code 124, session state restored" in text(answers[13])
    assert text(answers[16]).endswith(NOT_DEFINED)


def test_output_is_sent_as_progress_while_the_code_runs(talk: Talk) -> None:
    _, *progress, answer = talk(("run_code", {"code": SLOW}), client=2, server=2, progress=True)
    assert len(progress) >= 2
    assert "0\n1\n2\n".startswith("".join(each["progress"] for each in progress))
    assert text(answer) == "0\n1\n2"


class Raw:
    """A client that writes the protocol's messages itself."""

    def __init__(self, *arguments: str) -> None:
        self.process = processes.start([str(COMMAND), "mcp", *arguments], env=os.environ)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        self.send(id=1, method="initialize", params=hello)
        assert self.receive()["result"]["serverInfo"]["name"] == "codeact"
        self.send(method="notifications/initialized")

    def send(self, **message: Any) -> None:
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def run(self, number: int, code: str) -> None:
        self.send(id=number, method="tools/call", params={"name": "run_code", "arguments": {"code": code}})

    def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message


@pytest.fixture
def raw() -> Iterator[Callable[..., Raw]]:
    made: list[Raw] = []

    def make(*arguments: str) -> Raw:
        made.append(Raw(*arguments))
        return made[-1]

    yield make
    for each in made:
        with each.process:
            each.process.kill()


@pytest.mark.usefixtures("bubblewrap")
def test_a_cancelled_call_kills_the_code_and_keeps_the_session(raw: Callable[..., Raw]) -> None:
    client = raw("--sandbox", "bubblewrap")
    client.run(2, "x = 41; import os; open('started', 'w').close()")
    client.receive()
    client.run(3, "import time; open('alive', 'w').close(); time.sleep(60)")
    time.sleep(1)
    client.send(method="notifications/cancelled", params={"requestId": 3, "reason": "enough"})
    assert client.receive()["id"] == 3
    client.run(4, "x + 1")
    answer = client.receive()
    assert (answer["id"], answer["result"]["isError"]) == (4, False)
    assert answer["result"]["content"][0]["text"].startswith("42")


def owned_by(pid: int) -> list[str]:
    """Containers of a process."""
    with closing(connect()) as client:
        found = client.containers(all=True, filters={"label": "org.autogen-codeact.kind=sandbox"})
    return [each["Id"] for each in found if each["Labels"]["org.autogen-codeact.owner"].endswith(f":{pid}")]


@pytest.mark.usefixtures("docker_engine")
@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGKILL], ids=["closed", "terminated", "killed"])
def test_the_end_of_the_client_or_server_leaves_no_container(raw: Callable[..., Raw], number: int | None) -> None:
    client = raw("--sandbox", "docker")
    client.run(2, "6 * 7")
    assert client.receive()["result"]["content"][0]["text"] == "42"
    pid = client.process.pid
    assert len(owned_by(pid)) == 1
    if number is None:
        client.process.stdin.close()
    else:
        client.process.send_signal(number)
    client.process.wait(40)
    wait_until(lambda: not owned_by(pid), "the end of the container")


def test_without_the_package_the_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise ModuleNotFoundError('No module named mcp', name='mcp')")
    command = str(COMMAND)
    finished = subprocess.run(
        [command, "mcp"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr == ("codeact: The Python package `mcp` is missing. Install it: pip install 'mcp<3'\n")


@pytest.mark.parametrize("major", [1, 2], ids=["mcp 1", "mcp 2"])
def test_displayed_image_is_sent_as_an_image(talk: Talk, major: int) -> None:
    show = (
        SAVE_IMAGE
        + """
import os
class Shown:
    data = open("dot.png", "rb").read()
    def _repr_png_(self): return self.data
    def __repr__(self): return "<Shown>"
os.remove("dot.png")
Shown()
"""
    )
    failing = "display(Shown()); display(Shown()); 1 / 0"
    many = "for _ in range(10): display(Shown())"
    calls = (
        ("run_code", {"code": show}),
        ("read_file", {"name": "figure-1.png"}),
        ("run_code", {"code": failing}),
        ("read_file", {"name": "figure-3.png"}),
        ("run_code", {"code": many}),
    )
    shown, read, failed, after, more = talk(*calls, client=major, server=major)[1:]
    assert shown["content"] == [["text", "<Shown: figure-1.png>\nChanged files:\nfigure-1.png"], ["image", "image/png"]]
    assert read["content"] == [["image", "image/png"]]
    assert failed["error"]
    assert text(failed).endswith("Changed files:\nfigure-2.png\nfigure-3.png")
    assert after["content"] == [["image", "image/png"]]
    assert [kind for kind, _ in more["content"]] == ["text", *["image"] * 8]
