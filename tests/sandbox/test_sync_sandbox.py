"""`AsyncSandbox` and `Sandbox`: strings in, results out, without AutoGen."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from autogen_codeact import Sandbox
from codeact_sandbox import (
    AsyncSandbox,
    BubblewrapOptions,
    Limits,
    OutputChunk,
    Result,
)
from codeact_sandbox.session.sandbox_pool import SandboxPool
from tests import processes

pytestmark = pytest.mark.usefixtures("bubblewrap")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    await asyncio.sleep(0)
    return a * b


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("codeact")}


def test_sandbox_runs_code_and_leaves_no_thread(tmp_path: Path) -> None:
    before = threads()
    with Sandbox("bubblewrap", tools=[add, multiply], work_dir=tmp_path) as box:
        box.run("x = 41")
        assert box.run("x + 1").output == "42\n"
        assert box.run("add(2, 3), multiply(2, 3)").output == "(5, 6)\n"
        *chunks, result = box.stream("print(1); print(2)")
        assert isinstance(result, Result)
        assert "".join(chunk.text for chunk in chunks if isinstance(chunk, OutputChunk)) == "1\n2\n"
        box.write("a.txt", "text")
        assert (box.read("a.txt"), box.list_files()) == (b"text", ["a.txt"])
        assert box.facts().files.shown == (("a.txt", 4),)
        box.checkpoint()
        box.run("x = 0")
        box.rollback()
        assert box.run("x").output == "41\n"
        box.restart()
        assert box.run("'x' in globals()").output == "False\n"
        assert box.work_dir == tmp_path
    box.stop()
    until = time.monotonic() + 30
    while threads() - before and time.monotonic() < until:
        time.sleep(0.05)
    assert threads() - before == set()


def test_leaving_a_stream_kills_the_block() -> None:
    with Sandbox("bubblewrap") as box:
        items = box.stream("import time\nx = 1\nprint('begun', flush=True)\ntime.sleep(60)")
        assert isinstance(next(items), OutputChunk)
        items.close()
        assert box.run("'x' in globals()").output == "False\n"


PROGRAM = """
import sys, time
from autogen_codeact import Sandbox
with Sandbox("bubblewrap") as box:
    box.run("x = 41")
    print("ready", flush=True)
    began = time.monotonic()
    try:
        box.run("import time\\nfor n in range(3): print(n, end=' ')\\ntime.sleep(50)")
    except KeyboardInterrupt as interrupt:
        print("interrupted", box.run("x + 1").output.strip(), time.monotonic() - began < 30, flush=True)
        print(repr(interrupt.result.output), interrupt.result.state, interrupt.__notes__, flush=True)
"""


def test_an_interrupt_kills_the_block_and_keeps_the_session() -> None:
    with processes.start(["-c", PROGRAM], env=os.environ) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=45)
    assert output == "interrupted 42 True\n'0 1 2 ' restored ['Output until then:\\n0 1 2 ']\n", errors


def test_a_forked_child_gets_an_error() -> None:
    with Sandbox("bubblewrap") as box:
        box.run("x = 1")
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            status = 1
            try:
                box.run("x")
            except RuntimeError as error:
                box.stop()
                status = 0 if "has forked" in str(error) else 2
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert box.run("x").output == "1\n"


@pytest_asyncio.fixture
async def box() -> AsyncIterator[AsyncSandbox]:
    async with AsyncSandbox("bubblewrap", timeout=20) as started:
        yield started


ELSEWHERE = "is not for sandbox='bubblewrap': leave it out, or choose another sandbox"


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (("firejail",), {}, ValueError, "backend must be 'auto', 'docker' or 'bubblewrap', not 'firejail'"),
        (("bubblewrap",), {"image": "x"}, ValueError, f"image= {ELSEWHERE}"),
        (
            (BubblewrapOptions(),),
            {"timeout": 3},
            TypeError,
            "timeout: options are given either as BubblewrapOptions or by name",
        ),
        ((), {"tools": [3]}, TypeError, "3 is not a tool: give a typed function"),
    ],
)
def test_wrong_options_are_refused(arguments: Any, options: Any, error: Any, words: Any) -> None:
    with pytest.raises(error) as caught:
        AsyncSandbox(*arguments, **options)
    assert str(caught.value) == words


async def test_sandbox_can_be_taken_from_a_pool() -> None:
    async with SandboxPool(1, backend="bubblewrap", limits=Limits(memory="300m")) as pool:
        async with AsyncSandbox(pool=pool) as box:
            assert box.options.backend == "bubblewrap"
            await box.run("x = 1")
            assert pool.leased == 1
        async with AsyncSandbox(pool=pool, timeout=5) as box:
            assert (await box.run("'x' in globals()")).output == "False\n"
            assert box.timeout == 5
        with pytest.raises(ValueError, match="the options of the pool differ in mode"):
            AsyncSandbox(pool=pool, mode="process")


class TestNotebookView:
    async def test_notebook_view_has_text_and_html(self, box: AsyncSandbox) -> None:
        result = await box.run("open('a.txt', 'w').write('<x>'); print('<b>'); 1 < 2")
        bundle = result._repr_mimebundle_()
        assert bundle["text/plain"] == "<b>\nTrue\nFiles: a.txt"
        assert "&lt;b&gt;\nTrue</pre>" in bundle["text/html"]
        assert "<b>" not in bundle["text/html"]
