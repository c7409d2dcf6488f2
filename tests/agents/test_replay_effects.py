"""Rebuilding a session repeats no side effect, and what can't be rebuilt because of that is not there and named."""

import asyncio
import json
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from autogen_agentchat.messages import CodeExecutionEvent, CodeGenerationEvent
from autogen_core import CancellationToken

from autogen_codeact.agents import CodeActAgent, replay
from autogen_codeact.executors import (
    BubblewrapCommandLineCodeExecutor,
    DockerCommandLineCodeExecutor,
    Limits,
    SandboxCodeExecutor,
)
from autogen_codeact.sandbox.async_sandbox import AsyncSandbox
from tests.agents.codeact import me, python
from tests.agents.support import scripted, told
from tests.executors.egress.servers import Hosts, answer, hosts_in, read_request
from tests.executors.sandboxes import out, run

Make = Callable[..., Awaitable[SandboxCodeExecutor]]
ENGINES = {"docker": DockerCommandLineCodeExecutor, "bubblewrap": BubblewrapCommandLineCodeExecutor}
REBUILT = (
    "The session was rebuilt: its {} run again in a fresh sandbox, without network and on a copy of the files. Host tools "
    "were not called, and what the code had left running (threads, subprocesses) was ended."
)
SAME = f"{REBUILT} All went as before."
DIFFERENT = f"{REBUILT}\nIt differs from what it was:\n"
NOT_THERE = "\nThe session has no variables or functions from blocks that were not rebuilt."


@pytest.fixture(params=["docker", "bubblewrap"])
def engine(request: pytest.FixtureRequest) -> str:
    """What sandboxes run in."""
    name: str = request.param
    request.getfixturevalue("docker_engine" if name == "docker" else "bubblewrap")
    return name


@pytest_asyncio.fixture
async def make(engine: str, tmp_path: Path) -> AsyncIterator[Make]:
    """Makes sessions, one after the other, that share a folder of the host."""
    made: list[SandboxCodeExecutor] = []

    async def start(**options: Any) -> SandboxCodeExecutor:
        while made:
            await made.pop().stop()
        folder = {} if "bind_dir" in options else {"work_dir": tmp_path / "work"}
        executor = ENGINES[engine](mode="session", **{"timeout": 20, **folder, **options})
        await executor.start()
        made.append(executor)
        return executor

    yield start
    for executor in made:
        await executor.stop()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The folder of the host."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """Servers on loopback."""
    with hosts_in(tmp_path) as made:
        monkeypatch.setattr(AsyncSandbox, "resolve_name", staticmethod(made.resolve))
        yield made


async def turn(executor: SandboxCodeExecutor, state: Any, *code: str, **options: Any) -> tuple[Any, str, list[str]]:
    """A turn of an agent that has loaded a state.

    Returns:
        The state after it, what the model was told of the rebuilding, and what the blocks printed.
    """
    client = scripted(*map(python, code), "Done.")
    agent = CodeActAgent("actor", executor, model_client=client, **options)
    if state is not None:
        await agent.load_state(state)
    result = await agent.run(task="Go.")
    words = [m for m in result.messages if isinstance(m, CodeGenerationEvent) and "replayed" in m.metadata]
    if words and words[0].content != SAME.format("1 block was"):
        telling = told(client)[0][-1] == me(words[0].content)
        assert telling is not words[0].content.endswith("All went as before.")
    printed = [m.result.output for m in result.messages if isinstance(m, CodeExecutionEvent)]
    return json.loads(json.dumps(await agent.save_state())), words[0].content if words else "", printed


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


DOUBLE = """
rows = [int(line) for line in open("prices.csv")]
with open("prices.csv", "w") as file:
    file.writelines(f"{2 * row}\\n" for row in rows)
"""
LOOK = "print(unit, globals().get('rows'), globals().get('after'), open('prices.csv').read().split())"


async def test_a_column_is_doubled_once_however_often_the_state_is_loaded(make: Make, work: Path) -> None:
    (work / "prices.csv").write_text("100\n150\n")
    blocks = ["unit = 'euro'", DOUBLE, "after = [int(line) for line in open('prices.csv')]"]
    state, _, printed = await turn(await make(), None, *blocks, LOOK)
    assert printed[-1] == "euro [100, 150] [200, 300] ['200', '300']\n"
    before = contents(work)

    for cycle in range(3):
        state, words, printed = await turn(await make(), state, LOOK)
        count = 4 + cycle
        assert words == DIFFERENT.format(f"{count} blocks were") + (
            "- block 2 was not rebuilt: it used files that have changed since: prices.csv\n"
            "- block 4 printed something else than before: euro None [200, 300] ['200', '300']" + NOT_THERE
        )
        assert printed == ["euro None [200, 300] ['200', '300']\n"]
        assert contents(work) == before


async def test_blocks_find_the_same_files_as_the_first_time(make: Make, work: Path) -> None:
    """Files that blocks have made are made again in the copy, later ones are not there yet, and all are in the end."""
    (work / "given.txt").write_text("given")
    blocks = [
        "import os\nfirst = sorted(os.listdir())",
        "open('one.txt', 'w').write('1' * 100_000)\nNone",
        "one = len(open('one.txt').read())\nopen('one.txt', 'a').write('2')\nos.remove('given.txt')\nNone",
        "third = (sorted(os.listdir()), os.path.getsize('one.txt'), os.path.exists('given.txt'))",
    ]
    state, _, _ = await turn(await make(), None, *blocks)
    before = contents(work)
    (work / "later.txt").write_text("later")
    look = "print(first, one, third, sorted(os.listdir()), os.path.getsize('one.txt'))"
    _, words, printed = await turn(await make(), state, look)
    assert words == SAME.format("4 blocks were")
    assert printed == [
        "['given.txt'] 100000 (['one.txt'], 100001, False) ['given.txt', 'later.txt', 'one.txt'] 100001\n"
    ]
    assert contents(work) == {**before, "later.txt": b"later"}


async def test_it_is_told_that_files_too_deep_to_be_listed_may_be_others(make: Make, work: Path) -> None:
    deep = work / "/".join("d" * 40)
    deep.mkdir(parents=True)
    (deep / "data.txt").write_text("old")
    state, _, _ = await turn(await make(), None, f"x = open('{'d/' * 40}data.txt').read()")
    (deep / "data.txt").write_text("new")
    _, words, printed = await turn(await make(), state, "print(x)")
    assert words == DIFFERENT.format("1 block was") + replay.FILES_UNKNOWN.format(blocks="block 1")
    assert printed == ["new\n"]


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    x = open('data.txt').read()\nexcept Exception:\n    x = None",
        "import subprocess\nx = subprocess.run(['cat', 'data.txt'], capture_output=True).stdout",
        "import mmap\nwith open('data.txt') as file:\n    x = bytes(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))",
        "import os\nx = 1\nos.remove('data.txt')",
        "import os, shutil\nshutil.copy('data.txt', '/tmp/c')\nwith open('new', 'w') as file:\n    file.write('!')\n"
        "os.replace('new', 'data.txt')\nx = open('/tmp/c').read()",
    ],
)
async def test_a_block_that_reads_what_has_changed_is_not_rebuilt_whatever_it_catches(
    make: Make, work: Path, code: str
) -> None:
    (work / "data.txt").write_text("old")
    state, _, _ = await turn(await make(), None, code)
    (work / "data.txt").write_text("new")
    before = contents(work)
    look = "import os\nprint('x' in globals(), open('data.txt').read(), os.listdir('/tmp'))"
    _, words, printed = await turn(await make(), state, look)
    assert words == DIFFERENT.format("1 block was") + (
        "- block 1 was not rebuilt: it used files that have changed since: data.txt" + NOT_THERE
    )
    assert printed == ["False new ['home']\n"]
    assert contents(work) == before


async def test_a_block_that_only_writes_or_lists_what_has_changed_is_rebuilt(make: Make, work: Path) -> None:
    (work / "data.txt").write_text("old")
    code = (
        "import os\nsize = os.path.getsize('data.txt'); names = os.listdir()\nopen('data.txt', 'w').write('mine')\nNone"
    )
    state, _, _ = await turn(await make(), None, code, "own = open('data.txt').read()")
    (work / "data.txt").write_text("another")
    _, words, printed = await turn(await make(), state, "print(size, names, own, open('data.txt').read())")
    assert words == SAME.format("2 blocks were")
    assert printed == ["3 ['data.txt'] mine another\n"]


async def test_folders_are_the_same_as_the_first_time(make: Make, work: Path) -> None:
    blocks = [
        "import os\nos.mkdir('out')\nos.makedirs('deep/er')\nopen('out/a.txt', 'w').write('a')\nNone",
        "open('deep/er/b.txt', 'w').write('b')\nfound = sorted(os.listdir()), os.listdir('out')\nNone",
    ]
    state, _, _ = await turn(await make(), None, *blocks)
    _, words, printed = await turn(await make(), state, "print(found, os.listdir('out'), os.listdir('deep/er'))")
    assert words == SAME.format("2 blocks were")
    assert printed == ["(['deep', 'out'], ['a.txt']) ['a.txt'] ['b.txt']\n"]


async def test_modules_that_blocks_have_written_are_the_same_as_the_first_time(make: Make) -> None:
    """Replayed blocks follow each other within the second by which Python tells a changed module."""
    blocks = [
        "open('mod.py', 'w').write('X = 1')\nimport mod\none = mod.X",
        "import importlib, time\ntime.sleep(max(0, 1.2 - time.time() % 1))",
        "open('mod.py', 'w').write('X = 2')\nimportlib.reload(mod)\ntwo = mod.X",
    ]
    state, _, _ = await turn(await make(), None, *blocks)
    assert len(state["journal"]["entries"]) == 3
    state["journal"]["entries"][1]["code"] = "import importlib"  # the model's time to think
    _, words, printed = await turn(await make(), state, "print(one, two)")
    assert words == SAME.format("3 blocks were")
    assert printed == ["1 2\n"]


def seven() -> int:
    """A function for the code."""
    return 7


async def test_files_that_the_start_of_a_sandbox_makes_exist(make: Make, work: Path) -> None:
    options: dict[str, Any] = {"functions": [seven], "init_command": "echo begun > /workspace/begun.txt"}
    blocks = [
        "from functions import seven\nx = seven(), open('begun.txt').read(), open('functions.py').read()",
        "y = open('begun.txt').read()",
    ]
    state, _, _ = await turn(await make(**options), None, *blocks)
    before = contents(work)
    look = "import subprocess, sys\nprint(x[:2], y, subprocess.getoutput(sys.executable + ' -c \"import functions\"'))"
    _, words, printed = await turn(await make(**options), state, look)
    assert words == SAME.format("2 blocks were")
    assert printed == ["(7, 'begun\\n') begun\n \n"]
    assert contents(work) == before


async def test_blocks_that_depend_on_one_that_was_not_rebuilt_are_named(make: Make, work: Path) -> None:
    (work / "data.txt").write_text("old")
    blocks = ["text = open('data.txt').read()", "length = len(text)", "other = 7"]
    state, _, _ = await turn(await make(), None, *blocks)
    (work / "data.txt").unlink()
    _, words, printed = await turn(await make(), state, "print(sorted({'text', 'length', 'other'} & {*globals()}))")
    assert words == DIFFERENT.format("3 blocks were") + (
        "- block 1 was not rebuilt: it used files that have changed since: data.txt\n"
        "- block 2 was not rebuilt: it ended with `error` (NameError: name 'text' is not defined) instead of `ok`"
        + NOT_THERE
    )
    assert printed == ["['other']\n"]


async def test_temporary_files_of_a_block_that_was_not_rebuilt_are_removed(make: Make, work: Path) -> None:
    (work / "data.txt").write_text("old")
    blocks = [
        "with open('/tmp/copy.txt', 'w') as copy, open('data.txt') as file:\n    copy.write(file.read())",
        "text = open('/tmp/copy.txt').read()",
    ]
    state, _, _ = await turn(await make(), None, *blocks)
    (work / "data.txt").write_text("new")
    _, words, printed = await turn(
        await make(), state, "import os\nprint('text' in globals(), os.path.exists('/tmp/copy.txt'))"
    )
    assert "block 2 was not rebuilt: it ended with `error` (FileNotFoundError: " in words
    assert printed == ["False False\n"]


async def test_what_a_block_that_is_not_rebuilt_has_put_among_packages_is_gone(make: Make, work: Path) -> None:
    """A later one would import it: a module of zeros, or half of one."""
    (work / "data.txt").write_text("VALUE = 1\n")
    site = "import os, site\nfolder = site.getusersitepackages()\nos.makedirs(folder, exist_ok=True)\n"
    blocks = [
        site + "with open(folder + '/copied.py', 'w') as copy, open('data.txt') as file:\n    copy.write('VALUE = 2')",
        "import copied\nvalue = copied.VALUE",
    ]
    state, _, _ = await turn(
        await make(), None, blocks[0].replace("    copy.write", "    file.read(), copy.write"), blocks[1]
    )
    (work / "data.txt").write_text("VALUE = 3\n")
    _, words, printed = await turn(await make(), state, "print('value' in globals())")
    assert "- block 1 was not rebuilt: it used files that have changed since: data.txt" in words
    assert printed == ["False\n"]


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
    state, _, printed = await turn(await make(**allowed(server.port)), None, "x = 1", post, silent, "print(number)")
    assert (len(orders), printed[-1]) == (2, "b'17'\n")

    look = "print(x, 'number' in globals(), 'lost' in globals())"
    state, words, printed = await turn(await make(**allowed(server.port)), state, look)
    assert len(orders) == 2
    assert words == DIFFERENT.format("4 blocks were") + (
        f"- block 2 was not rebuilt: it used the network: shop.example:{server.port}\n"
        f"- block 3 was not rebuilt: it used the network: shop.example:{server.port}\n"
        "- block 4 was not rebuilt: it ended with `error` (NameError: name 'number' is not defined) instead of `ok`"
        + NOT_THERE
    )
    assert printed == ["1 False False\n"]
    # Network access works again.
    _, _, printed = await turn(await make(**allowed(server.port)), state, post, "print(number)")
    assert (len(orders), printed[-1]) == (3, "b'17'\n")


async def test_a_connection_refused_both_times_is_no_difference(make: Make, hosts: Hosts) -> None:
    server = hosts.serve(lambda sock: None, "shop.example")
    code = "try:\n" + "".join(f"    {line}\n" for line in POST.format(port=server.port + 1).splitlines())
    code += "except OSError as error:\n    refused = True"
    state, _, _ = await turn(await make(**allowed(server.port)), None, code)
    _, words, printed = await turn(await make(**allowed(server.port)), state, "print(refused)")
    assert (words, printed) == (SAME.format("1 block was"), ["True\n"])


async def test_processes_of_a_block_end_with_the_rebuilding(make: Make, hosts: Hosts, work: Path) -> None:
    orders: list[bytes] = []

    def take(sock: socket.socket) -> None:
        orders.append(read_request(sock))
        sock.sendall(answer(b"17"))

    server = hosts.serve(take, "shop.example")
    post = POST.format(port=server.port)
    later = LATER.format(call="exec(" + repr(post) + ")", source=post)
    state, _, _ = await turn(await make(**allowed(server.port)), None, later)
    async with asyncio.timeout(20):
        while len(orders) < 2:  # noqa: ASYNC110 (another thread counts)
            await asyncio.sleep(0.05)
    before = contents(work)

    executor = await make(**allowed(server.port))
    agent = CodeActAgent("actor", executor, model_client=scripted())
    await agent.load_state(state)
    assert await agent.rebuild_session() is not None
    await asyncio.sleep(2.5)
    assert await out(executor, "import threading\nprint(threading.active_count(), order.__name__)") == "1 order\n"
    assert len(orders) == 2
    assert contents(work) == before


async def test_a_host_tool_is_called_once(make: Make) -> None:
    calls = []

    def pay(euros: int) -> str:
        """Pay."""
        calls.append(euros)
        return f"receipt {len(calls)}"

    state, _, _ = await turn(await make(), None, "receipt = pay(5)", tools=[pay])
    for _ in range(2):
        state, _, printed = await turn(await make(), state, "print(receipt)", tools=[pay])
        assert printed == ["receipt 1\n"]
    assert calls == [5]


async def test_a_journal_without_manifests_is_run_on_a_copy_with_a_note(make: Make, work: Path) -> None:
    (work / "prices.csv").write_text("100\n")
    state, _, _ = await turn(await make(), None, "unit = 'euro'", DOUBLE)
    for entry in state["journal"]["entries"]:
        del entry["files"], entry["connections"]
    _, words, printed = await turn(await make(), state, "print(unit, rows, open('prices.csv').read())")
    assert words == DIFFERENT.format("2 blocks were") + (
        "- It is not on record which files blocks 1-2 found. They found those of now: where these are others, what they "
        "defined is, too."
    )
    assert printed == ["euro [200] 200\n\n"]
    assert (work / "prices.csv").read_text() == "200\n"


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
    state, _, _ = await turn(await make(bind_dir=folder), None, code, DOUBLE)
    assert (folder / "prices.csv").read_text() == "200\n"
    _, words, printed = await turn(
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
    code = "open('/data/runs', 'a').write('run ')"
    for mode in ("rw", "ro"):
        options = {"extra_volumes": {str(folder): {"bind": "/data", "mode": mode}}}
        state, _, _ = await turn(await make(**options), None, code if mode == "rw" else "x = open('/data/runs').read()")
        _, words, _ = await turn(await make(**options), state, "1")
        assert (folder / "runs").read_text() == "run "
        assert ("is empty: folders of the host are mounted in its sandbox (extra_volumes)" in words) is (mode == "rw")
    assert words == SAME.format("1 block was")


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
async def test_with_a_network_of_the_engine_nothing_is_run_again(make: Make) -> None:
    """It was, and a request was sent again: nothing on this side can close such a network."""
    state, _, _ = await turn(await make(network="bridge"), None, "x = 1")
    _, words, printed = await turn(await make(network="bridge"), state, "print('x' in globals())")
    assert "is empty: its sandbox has a network (network='bridge'), which its 1 block could use" in words
    assert printed == ["False\n"]


async def test_a_session_too_large_for_a_checkpoint_is_rebuilt_up_to_there(make: Make) -> None:
    limits = Limits(memory="256m")
    blocks = ["x = 1", "heap = bytearray(150 << 20)", "y = 2"]
    state, _, _ = await turn(await make(limits=limits), None, *blocks)
    _, words, printed = await turn(await make(limits=limits), state, "print(x, 'heap' in globals(), y)")
    assert "- block 2 was not rebuilt: no checkpoint could be taken (" in words
    assert printed == ["1 False 2\n"]


async def test_rebuilding_ends_in_time(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_SECONDS", 2.0)
    state, _, _ = await turn(await make(timeout=1), None, "x = 1")
    slow = {**state["journal"]["entries"][0], "code": "while True: pass"}
    state["journal"]["entries"] += [slow] * 50
    _, words, printed = await asyncio.wait_for(turn(await make(timeout=1), state, "print(x)"), 20)
    assert "- block 2 was not rebuilt: it ended with `timeout` instead of `ok`\n" in words
    assert "-51 were not rebuilt: rebuilding had taken 2 s by then\n" in words
    assert printed == ["1\n"]


async def test_a_cancelled_rebuilding_leaves_no_half_made_session(make: Make, work: Path) -> None:
    state, _, _ = await turn(
        await make(), None, "x = 1\nimport time\ntime.sleep(0.5)", "open('y.txt', 'w').write('y')\nNone"
    )
    (work / "y.txt").unlink()
    executor = await make()
    agent = CodeActAgent("actor", executor, model_client=scripted(python("print(x)"), "Done."))
    await agent.load_state(state)
    token = CancellationToken()
    rebuilding = asyncio.ensure_future(agent.rebuild_session(token))
    await asyncio.sleep(0.4)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rebuilding
    # Who uses the executor itself has a sandbox of his own, with the host's files and no others.
    assert (await run(executor, "import os\nprint(os.listdir(), 'x' in globals())")).output == "[] False\n"
    replayed = await agent.rebuild_session()
    assert replayed is not None
    assert replayed.same
    assert await out(executor, "print(x, os.path.exists('y.txt')) if 'os' in globals() else print(x)") == "1\n"
    assert contents(work) == {}


async def test_a_block_that_breaks_the_sandbox_leaves_an_empty_session_and_its_setup(make: Make) -> None:
    state, _, _ = await turn(await make(), None, "x = 1", "import time\ntime.sleep(2)")
    executor = await make()
    client = scripted(python("print('x' in globals(), z)"), "Done.")
    agent = CodeActAgent("actor", executor, model_client=client, setup="z = 3")
    await agent.load_state(state)
    rebuilding = asyncio.ensure_future(agent.rebuild_session())
    while executor.starts < 2:  # noqa: ASYNC110 (it restarts)
        await asyncio.sleep(0.02)
    await asyncio.sleep(1)
    assert executor.sandbox.client is not None
    await executor.sandbox.client.stop()
    replayed = await rebuilding
    assert replayed is not None
    assert replayed.describe().startswith(
        "The session could not be rebuilt and is empty: its sandbox broke at block 2 (SandboxDied: "
    )
    result = await agent.run(task="Go.")
    assert [m.result.output for m in result.messages if isinstance(m, CodeExecutionEvent)] == ["False 3\n"]
    assert len((await agent.save_state())["journal"]["entries"]) == 3
