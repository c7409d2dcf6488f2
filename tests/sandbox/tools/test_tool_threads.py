"""`HostTool(function, thread="own")`: a tool whose calls all run in one thread."""

import asyncio
import functools
import gc
import sqlite3
import threading
from typing import Any

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, ToolLimits
from codeact_sandbox import HostTool
from tests.sandbox.sandboxes import out

STUCK = (
    "the thread of this tool is still busy with an earlier call, which took too long or whose block has ended: no call can be "
    "made until that one returns"
)


def where() -> int:
    """Return the thread."""
    return threading.get_ident()


async def called(tool: Any, **arguments: Any) -> Any:
    return (await tool.run(arguments)).value


async def test_all_calls_run_in_one_thread() -> None:
    own, shared = HostTool(where, thread="own"), HostTool(where)
    found = await asyncio.gather(*(called(own) for _ in range(20)))
    assert len(set(found)) == 1
    assert threading.get_ident() not in (found[0], await called(shared))


async def test_a_connection_of_sqlite3_can_be_kept(tmp_path):
    @functools.cache
    def connection() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "shop.db")

    def query(sql: str) -> list[list[Any]]:
        """Query the shop."""
        if sql == "close":
            connection().close()
            return []
        with connection() as open_connection:
            return [list(row) for row in open_connection.execute(sql)]

    tool = HostTool(query, thread="own")
    await called(tool, sql="create table fruit (name text)")
    await asyncio.gather(*(called(tool, sql=f"insert into fruit values ('{n}')") for n in range(10)))
    assert await called(tool, sql="select count(*) from fruit") == [[10]]
    await called(tool, sql="close")


async def test_the_thread_ends_with_the_tool() -> None:
    def thread() -> None:
        """Keep the thread."""
        found.append(threading.current_thread())

    found: list[threading.Thread] = []
    tool = HostTool(thread, thread="own")
    await called(tool)
    del tool
    gc.collect()
    await asyncio.to_thread(found[0].join, 10)
    assert not found[0].is_alive()


async def test_a_stuck_tool_is_a_timeout_error_in_the_code(bubblewrap: None) -> None:
    release = threading.Event()

    def wait() -> None:
        """Wait."""
        release.wait(30)

    code = """
        for _ in range(2):
            try:
                wait()
            except TimeoutError as error:
                print(error)
    """
    tool = HostTool(wait, thread="own")
    async with BubblewrapCommandLineCodeExecutor(tools=[tool], tool_limits=ToolLimits(seconds=0.2)) as executor:
        assert await out(executor, code) == f"the host tool wait did not answer within 0.2 s\nToolStuckError: {STUCK}\n"
        release.set()
