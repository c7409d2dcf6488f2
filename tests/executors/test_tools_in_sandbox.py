"""AutoGen's MCP workbench, and tools that are added later, called from code in a real sandbox."""

import pytest

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from tests.executors.test_tool_kinds import mcp
from tests.sandbox.sandboxes import out

pytestmark = pytest.mark.usefixtures("bubblewrap")

ORDERS = """
    print(add(1) * 2, shop_stock_take("apple"))
    receipt = place_order([{"sku": "pear", "amount": 2}], paid_by="cash")
    print(receipt["total"], receipt["lines"][0]["sku"])
    try:
        fail("out of paper")
    except RuntimeError as error:
        print(error)
"""
PRINTED = "6 2 left\n2.0 pear\nError executing tool fail: out of paper\n"


async def double(number: int) -> int:
    """Double."""
    return number * 2


async def test_mcp_server_survives_a_restart_of_the_sandbox_and_stops_with_it() -> None:
    executor = BubblewrapCommandLineCodeExecutor(tools=[mcp()])
    assert await out(executor, ORDERS) == PRINTED
    await executor.restart()
    assert await out(executor, "print(shop_stock_take('apple'))") == "1 left\n"
    await executor.stop()
    await executor.start()  # a new server, since the stock is whole again
    assert await out(executor, ORDERS) == PRINTED
    await executor.stop()  # in this task, which the server's must not outlive


@pytest.mark.parametrize("mode", ["session", "process"])
async def test_added_tools_are_there_from_the_next_block_on(mode: str) -> None:
    async with BubblewrapCommandLineCodeExecutor(mode=mode, tools=[double]) as executor:
        assert await out(executor, "x = 1; print('add' in globals())") == "False\n"
        executor.add_tools([double, mcp()])  # what is there already is left alone
        assert [tool.name for tool in await executor.list_tools()][:2] == ["double", "add"]
        code = "import host_tools\nprint(double(1), add(1), host_tools.add is add)\nadd = 7"
        assert await out(executor, code) == "2 3 True\n"
        assert await out(executor, "print(add == 7)") == f"{mode == 'session'}\n"
        await executor.stop()


async def test_added_tools_are_there_again_after_a_lost_session_or_a_rollback() -> None:
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        await executor.checkpoint()
        executor.add_tools([double])
        assert await out(executor, "print(double(1))") == "2\n"
        await executor.rollback()
        assert await out(executor, "print(double(2))") == "4\n"
        await executor.restart()
        assert await out(executor, "print(double(3))") == "6\n"
