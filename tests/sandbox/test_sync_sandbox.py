"""`Sandbox`: the same, waiting."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from autogen_codeact import Sandbox
from autogen_codeact.sandbox import OutputChunk, Result

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


def test_runs_code_and_leaves_no_thread(tmp_path: Path) -> None:
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
        box.checkpoint()
        box.run("x = 0")
        box.rollback()
        assert box.run("x").output == "41\n"
        box.restart()
        assert box.run("'x' in globals()").output == "False\n"
        assert box.work_dir == tmp_path
    box.stop()
    until = time.monotonic() + 5
    while threads() - before and time.monotonic() < until:
        time.sleep(0.05)
    assert threads() - before == set()


def test_can_be_started_again_after_stop() -> None:
    box = Sandbox("bubblewrap")
    for _ in range(2):
        with box:
            assert box.run("1 + 1").output == "2\n"


async def test_works_while_an_event_loop_is_running() -> None:
    with Sandbox("bubblewrap") as box:
        assert box.run("1 + 1").output == "2\n"


def test_works_from_several_threads() -> None:
    with Sandbox("bubblewrap") as box:
        found: list[str] = []
        workers = [threading.Thread(target=lambda n=n: found.append(box.run(f"{n}").output)) for n in range(5)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert sorted(found) == [f"{n}\n" for n in range(5)]


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
        box.run("import time; time.sleep(50)")
    except KeyboardInterrupt:
        print("interrupted", box.run("x + 1").output.strip(), time.monotonic() - began < 30, flush=True)
"""


def test_an_interrupt_kills_the_block_and_keeps_the_session() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=45)
    assert output == "interrupted 42 True\n", errors


def test_a_host_tool_in_the_sandboxs_thread_can_not_wait_for_it() -> None:
    async def nested() -> str:
        """Use the sandbox."""
        return box.run("1").output

    with Sandbox("bubblewrap", tools=[nested]) as box:
        result = box.run("nested()")
        assert result.error is not None
        assert "can't use the Sandbox that calls it" in result.error.message
