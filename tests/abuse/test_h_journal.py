"""H. What the host does with files, results and questions, 17: a saved state from somebody else is loaded."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.agents.journal import digest
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.sandbox.network.servers import answer, read_request
from tests.sandbox.sandboxes import out, run

from ..agents.support import scripted
from .subject import Kind

pytestmark = pytest.mark.parametrize(
    "kind", [Kind("docker", "session"), Kind("bubblewrap", "session")], indirect=True, ids=str
)

EFFECTS = """
import os, subprocess, sys, threading, time, urllib.request

def effects():
    for name in ("prices.csv", "new.txt", "folder/new.txt"):
        os.makedirs(os.path.dirname("/workspace/" + name), exist_ok=True)
        try:
            os.remove("/workspace/" + name)
        except OSError:
            pass
        with open("/workspace/" + name, "w") as file:
            file.write("hostile")
    try:
        urllib.request.urlopen("http://shop.example:{port}/order", data=b"one", timeout=10).read()
    except OSError:
        pass

def again():
    for _ in range(200):
        effects()
        time.sleep(0.05)

effects()
threading.Thread(target=again).start()
import atexit, signal
atexit.register(effects)
signal.signal(signal.SIGALRM, lambda *_: effects())
signal.setitimer(signal.ITIMER_REAL, 0.5, 0.5)
os.register_at_fork(after_in_child=effects)
if os.fork() == 0:
    os.setsid()
    again()
    os._exit(0)
for _ in range(20):
    sock = __import__("socket").create_connection(("127.0.0.1", int(os.environ["HTTP_PROXY"].rpartition(":")[2])))
    sock.sendall(b"POST http://shop.example:{port}/order HTTP/1.1\\r\\nHost: shop.example:{port}\\r\\n")
    sock.sendall(b"Content-Length: 3\\r\\n\\r\\none")
    globals().setdefault("held", []).append(sock)
try:
    pay(5)
except Exception as error:
    print(error)
"""


def entry(code: str, **more: Any) -> dict[str, Any]:
    return {"language": "python", "code": code, "outcome": "ok", "output": digest(""), **more}


def state(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "CodeActAgentState", "journal": {"entries": list(entries), **more}}


def actor(executor: SandboxCodeExecutor, *answers: str, **options: Any) -> CodeActAgent:
    return CodeActAgent("actor", executor, model_client=scripted(*answers, "Done."), **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Case H17.
@pytest.mark.parametrize("recorded", ["with files", "with other files", "without"])
async def test_a_loaded_journal_changes_nothing_outside_the_sandbox(subject, hosts, recorded):
    orders: list[bytes] = []
    paid: list[int] = []

    def take(sock: socket.socket) -> None:
        orders.append(read_request(sock))
        sock.sendall(answer(b"17"))

    def pay(euros: int) -> str:
        """Pay."""
        paid.append(euros)
        return "paid"

    server = hosts.serve(take, "shop.example")
    executor = await subject.start({"allow_domains": [f"shop.example:{server.port} in 127.0.0.0/8"]}, pids=128)
    (subject.work_dir / "prices.csv").write_text("100\n")
    before = contents(subject.work_dir)
    mark = f"4:{'a' * 32}" if recorded == "with other files" else "4:10a143d3b4d72778151a32ccf5d103de"
    known: dict[str, Any] = {} if recorded == "without" else {"files": {"prices.csv": mark}, "connections": 0}
    effects = entry(EFFECTS.replace("{port}", str(server.port)), **known)
    agent = actor(executor, tools=[pay])
    await agent.load_state(state(entry("x = 1", **known), effects, effects, entry("y = 2", **known)))

    replayed = await asyncio.wait_for(agent.rebuild_session(), 50)

    assert replayed is not None
    await asyncio.sleep(1.5)  # whatever has stayed would act by now
    assert orders == []
    assert paid == []
    assert contents(subject.work_dir) == before
    if recorded != "without":
        # It claims that the code made these attempts then, and was refused: it is part of the session.
        assert replayed.not_rebuilt == ()
        assert ("prices.csv" in str(replayed.differences)) is (recorded == "with other files")
    else:
        assert replayed.not_rebuilt == (2, 3)
        # Nor does it act in the next block: the workspace is what the host has, and nothing runs.
        look = "import glob\nprint(sorted(glob.glob('*')), open('prices.csv').read())"
        assert (await out(executor, look)).endswith(" 100\n\n")
        assert orders == []
        assert contents(subject.work_dir) == before
    # Outside of a journal the same code does all of it.
    await run(executor, effects["code"])
    assert orders
    assert paid == [5]
    assert contents(subject.work_dir) != before
    subject._lost = True
