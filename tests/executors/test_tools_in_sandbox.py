"""What users pass as `tools=[…]`, called from code in a real sandbox."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Literal

import pytest
import pytest_asyncio
from pydantic import BaseModel

from autogen_codeact.executors import (
    BubblewrapCommandLineCodeExecutor,
)
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.abuse.subject import Kind
from tests.executors.test_tool_kinds import mcp
from tests.sandbox.sandboxes import out, run, short_result
from tests.sandbox.tools.host_tools import makes

pytestmark = pytest.mark.usefixtures("docker_engine", "sandbox_image")

Make = Callable[..., Awaitable[SandboxCodeExecutor]]


@pytest_asyncio.fixture(params=["docker-session", "bubblewrap-process"])
async def make(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    """Makes an executor with these tools, and stops it after the test."""
    async with makes(Kind(*request.param.split("-"))) as make:
        yield make


class Level(Enum):
    LOW = 1
    HIGH = 2


@dataclass
class Customer:
    name: str
    since: date = date(2020, 1, 1)
    level: Level = Level.LOW


class Invoice(BaseModel):
    """What a customer owes."""

    customer: Customer
    amount: Decimal
    paid: bool = False


def bill(customers: list[Customer], amount: Decimal, *, how: Literal["post", "mail"] = "mail") -> list[Invoice]:
    """Write invoices."""
    return [Invoice(customer=each, amount=amount) for each in customers]


async def double(number: int, times: int = 2) -> int:
    """Multiply."""
    return number * times


class TestFunctions:
    async def test_functions_take_objects_and_return_dicts(self, make: Make):
        code = """
            import asyncio, dataclasses, datetime, decimal, inspect

            @dataclasses.dataclass
            class Customer:
                name: str
                since: datetime.date

            customers = [{"name": "Ann", "level": 2}, Customer("Bob", datetime.date(2021, 1, 1))]
            first, second = bill(customers, decimal.Decimal("1.50"), how="post")
            print(first)
            print(second["customer"])
            print(inspect.signature(bill).parameters["how"], "|", bill.__doc__.partition("\\n")[0])
            print(double(4), double(number=3, times=3), asyncio.run(double.aio(5)))
        """
        executor = await make(bill, double)
        result = await run(executor, code)
        assert short_result(result) == (
            "ok",
            0,
            "{'customer': {'name': 'Ann', 'since': '2020-01-01', 'level': 2}, 'amount': '1.50', 'paid': False}\n"
            "{'name': 'Bob', 'since': '2021-01-01', 'level': 1}\n"
            "how: Literal['post', 'mail'] = 'mail' | Write invoices.\n"
            "8 9 10\n",
        )
        customers = [{"name": "Ann", "level": 2}, {"name": "Bob", "since": "2021-01-01"}]
        assert [(call.name, call.arguments) for call in result.tool_calls] == [
            ("bill", {"customers": customers, "amount": "1.50", "how": "post"}),
            ("double", {"number": 4}),
            ("double", {"number": 3, "times": 3}),
            ("double", {"number": 5}),
        ]


@pytest.mark.parametrize("make", ["bubblewrap-process"], indirect=True)
class TestMcpServer:
    async def test_mcp_server_is_called_survives_a_restart_of_the_sandbox_and_stops_with_it(self, make: Make):
        executor = await make(mcp())
        code = """
            print(add(1) * 2, shop_stock_take("apple"))
            receipt = place_order([{"sku": "pear", "amount": 2}], paid_by="cash")
            print(receipt["total"], receipt["lines"][0]["sku"])
            try:
                fail("out of paper")
            except RuntimeError as error:
                print(error)
        """
        printed = "6 2 left\n2.0 pear\nError executing tool fail: out of paper\n"
        assert await out(executor, code) == printed
        await executor.restart()
        assert await out(executor, "print(shop_stock_take('apple'))") == "1 left\n"
        await executor.stop()
        await executor.start()  # a new server, since the stock is whole again
        assert await out(executor, code) == printed
        await executor.stop()  # in this task, which the server's must not outlive


class TestToolsAddedLater:
    async def test_added_tools_are_there_from_the_next_block_on(self, make: Make):
        executor = await make(bill)
        assert await out(executor, "x = 1; print('add' in globals())") == "False\n"
        executor.add_tools([double, mcp()])
        assert [tool.name for tool in await executor.list_tools()][:3] == ["bill", "double", "add"]
        executor.add_tools([double])  # what is there already is left alone
        code = """
            import host_tools
            print(double(1), len(bill([], 1)), add(1), host_tools.add is add)
            print("double" in host_tools.__all__)
            add = 7
        """
        assert await out(executor, code) == "2 0 3 True\nTrue\n"
        assert await out(executor, "print(add == 7)") == f"{executor.mode == 'session'}\n"
        await executor.stop()

    async def test_added_tools_are_there_again_after_the_session_was_lost_or_rolled_back(self):
        async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
            await executor.checkpoint()
            executor.add_tools([double])
            assert await out(executor, "print(double(1))") == "2\n"
            await executor.rollback()
            assert await out(executor, "print(double(2))") == "4\n"
            await executor.restart()
            assert await out(executor, "print(double(3))") == "6\n"
