"""Rebuilding has no effect outside the sandbox: network, host tools, processes, and folders of the host."""

import asyncio
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.agents import CodeActAgent
from tests.agents.replay.support import DIFFERENT, DOUBLE, NOT_THERE, Make, contents, run_turn
from tests.agents.support import scripted
from tests.sandbox.network.packages.conftest import configure, make_index, served
from tests.sandbox.network.servers import Hosts, answer, read_request
from tests.sandbox.sandboxes import out

pytestmark = pytest.mark.slow

POST = """
import urllib.request
request = urllib.request.Request("http://shop.example:{port}/order", data=b"one", method="POST")
number = urllib.request.urlopen(request, timeout=10).read()
"""
LATER = """
import subprocess, sys, threading, time
def order():
    time.sleep(1.5)
    with open("late.txt", "w") as file:
        file.write("late")
    {call}
threading.Thread(target=order).start()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1.5)\\n" + {source!r}])
"""


def allowed(port: int) -> dict[str, Any]:
    return {"allow_domains": [f"shop.example:{port} in 127.0.0.0/8"]}


async def test_a_post_to_an_allowed_host_is_made_once(make: Make, hosts: Hosts) -> None:
    orders: list[bytes] = []

    def take(sock: socket.socket) -> None:
        orders.append(read_request(sock))
        sock.sendall(answer(b"17"))

    server = hosts.serve(take, "shop.example")
    post = POST.format(port=server.port)
    silent = "try:\n" + "".join(f"    {line}\n" for line in post.splitlines()) + "except Exception:\n    lost = True"
    state, _, printed = await run_turn(await make(**allowed(server.port)), None, "x = 1", post, silent, "print(number)")
    assert (len(orders), printed[-1]) == (2, "b'17'\n")

    look = "print(x, 'number' in globals(), 'lost' in globals())"
    state, words, printed = await run_turn(await make(**allowed(server.port)), state, look)
    assert len(orders) == 2
    assert words == DIFFERENT.format("4 blocks were") + (
        f"- block 2 was not rebuilt: it used the network: shop.example:{server.port}\n"
        f"- block 3 was not rebuilt: it used the network: shop.example:{server.port}\n"
        "- block 4 was not rebuilt: it ended with `error` (NameError: name 'number' is not defined) instead of `ok`"
        + NOT_THERE
    )
    assert printed == ["1 False False\n"]
    # Network access works again.
    _, _, printed = await run_turn(await make(**allowed(server.port)), state, post, "print(number)")
    assert (len(orders), printed[-1]) == (3, "b'17'\n")


async def test_processes_of_a_block_end_with_the_rebuilding(make: Make, hosts: Hosts, work: Path) -> None:
    orders: list[bytes] = []

    def take(sock: socket.socket) -> None:
        orders.append(read_request(sock))
        sock.sendall(answer(b"17"))

    server = hosts.serve(take, "shop.example")
    post = POST.format(port=server.port)
    later = LATER.format(call="exec(" + repr(post) + ")", source=post)
    state, _, _ = await run_turn(await make(**allowed(server.port)), None, later)
    async with asyncio.timeout(20):
        while len(orders) < 2:  # noqa: ASYNC110 (another thread counts)
            await asyncio.sleep(0.05)

    executor = await make(**allowed(server.port))
    before = contents(work)  # the end of the first sandbox has brought its last files
    agent = CodeActAgent("actor", executor, model_client=scripted())
    await agent.load_state(state)
    assert await agent.rebuild_session() is not None
    await asyncio.sleep(2.5)
    ended = "import threading\n[each.join() for each in threading.enumerate()[1:]]\nprint(order.__name__, child.wait())"
    assert await out(executor, ended) == "order 0\n"
    assert len(orders) == 2
    assert contents(work) == before


def open_folder(request: pytest.FixtureRequest) -> Path:
    """A folder that the sandbox's user can reach; pytest's own are closed to it."""
    folder = Path(tempfile.mkdtemp())
    request.addfinalizer(lambda: shutil.rmtree(folder))
    folder.chmod(0o777)
    return folder


async def test_with_bind_dir_nothing_is_run_again(make: Make, request: pytest.FixtureRequest) -> None:
    folder = open_folder(request)
    (folder / "prices.csv").write_text("100\n")
    (folder / "prices.csv").chmod(0o666)
    code = "unit = 'euro'"
    state, _, _ = await run_turn(await make(bind_dir=folder), None, code, DOUBLE)
    assert (folder / "prices.csv").read_text() == "200\n"
    _, words, printed = await run_turn(
        await make(bind_dir=folder), state, "print('unit' in globals(), start)", setup="start = 1"
    )
    assert words == (
        "The session could not be rebuilt and is empty: its workspace is a folder of the host (bind_dir), which its 2 blocks "
        "could change if they were run again; give the agent an executor with work_dir instead to have it rebuilt. Variables "
        "and functions of its earlier code are lost."
    )
    assert printed == ["False 1\n"]
    assert (folder / "prices.csv").read_text() == "200\n"


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
async def test_with_mounted_folders_that_code_can_write_to_nothing_is_run_again(
    make: Make, request: pytest.FixtureRequest
) -> None:
    folder = open_folder(request)
    options = {"extra_volumes": {str(folder): {"bind": "/data", "mode": "rw"}}}
    state, _, _ = await run_turn(await make(**options), None, "open('/data/runs', 'a').write('run ')")
    _, words, _ = await run_turn(await make(**options), state, "1")
    assert (folder / "runs").read_text() == "run "
    assert "is empty: folders of the host are mounted in its sandbox (extra_volumes)" in words


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
async def test_with_a_network_of_the_engine_nothing_is_run_again(make: Make) -> None:
    """It was, and a request was sent again: nothing on this side can close such a network."""
    state, _, _ = await run_turn(await make(network="bridge"), None, "x = 1")
    _, words, printed = await run_turn(await make(network="bridge"), state, "print('x' in globals())")
    assert "is empty: its sandbox has a network (network='bridge'), which its 1 block could use" in words
    assert printed == ["False\n"]


@pytest.mark.more
async def test_the_package_index_is_not_reached(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_index(tmp_path)
    with served(tmp_path) as url:
        configure(monkeypatch, PIP_INDEX_URL=url)
        await check_the_index(make)


async def check_the_index(make: Make) -> None:
    use = "import otherwheel\nvalue = otherwheel.value"
    blocks = ("x = 1", "%pip install -q otherwheel", use, "print(value)")
    state, _, printed = await run_turn(await make(allow_pip=True, timeout=60), None, *blocks)
    assert printed == ["", "", "", "2\n"]
    _, words, printed = await run_turn(await make(allow_pip=True, timeout=60), state, "print(x, 'value' in globals())")
    assert words == DIFFERENT.format("4 blocks were") + (
        "- block 2 printed something else than before: ERROR: Could not find a version that satisfies the requirement otherwheel "
        "(from versions: none) ERROR: No matching distribution found for otherwheel the command ended with exit status 1\n"
        "- block 3 was not rebuilt: it ended with `error` (ModuleNotFoundError: No module named 'otherwheel') instead of `ok`\n"
        "- block 4 was not rebuilt: it ended with `error` (NameError: name 'value' is not defined) instead of `ok`"
        + NOT_THERE
    )
    assert printed == ["1 False\n"]
