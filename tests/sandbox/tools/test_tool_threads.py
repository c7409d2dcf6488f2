"""`HostTool(function, thread="own")`: a tool whose calls all run in one thread."""

import asyncio
import functools
import gc
import sqlite3
import threading
from typing import Any

import pytest
from autogen_core import CancellationToken

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, ToolLimits
from codeact_sandbox import HostTool
from codeact_sandbox.types.tool import ToolStuckError
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


async def test_the_complaint_of_sqlite3_names_the_option() -> None:
    connection = sqlite3.connect(":memory:")

    def query(sql: str) -> int:
        """Query."""
        return len(connection.execute(sql).fetchall())

    with pytest.raises(sqlite3.ProgrammingError) as caught:
        await called(HostTool(query), sql="select 1")
    assert str(caught.value).endswith(
        "Give the tool a thread of its own, HostTool(query, thread='own'), and open the connection in the function when it is "
        "first called."
    )
    connection.close()


async def test_a_call_that_nobody_waits_for_makes_the_next_ones_fail_until_it_returns() -> None:
    running, release = threading.Event(), threading.Event()

    def wait(seconds: float = 0) -> str:
        """Wait."""
        running.set()
        release.wait(30)
        return "done"

    tool = HostTool(wait, thread="own")
    first = asyncio.ensure_future(called(tool))
    await asyncio.to_thread(running.wait, 10)
    second = asyncio.ensure_future(called(tool))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first})
    with pytest.raises(ToolStuckError) as caught:
        await called(tool)
    assert str(caught.value) == STUCK
    release.set()
    assert await second == "done"
    assert await called(tool) == "done"


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


def test_another_thread_is_refused_at_construction() -> None:
    with pytest.raises(ValueError, match="thread must be 'shared' or 'own', not 'mine'"):
        HostTool(where, thread="mine")  # type: ignore[arg-type]


def test_a_result_that_can_never_be_sent_is_refused_at_construction() -> None:
    def connect() -> sqlite3.Connection:
        """Return a connection."""
        raise NotImplementedError

    def connections() -> dict[str, sqlite3.Connection]:
        """Return connections."""
        raise NotImplementedError

    for function in (connect, connections):
        with pytest.raises(
            ValueError, match=f"The tool `{function.__name__}` returns a sqlite3.Connection, which can't be sent"
        ):
            HostTool(function)


async def test_a_tool_takes_a_token_of_autogen() -> None:
    def cancelled(token: CancellationToken) -> bool:
        """Return whether it was cancelled."""
        return token.is_cancelled()

    assert await called(HostTool(cancelled, thread="own")) is False


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
