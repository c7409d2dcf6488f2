"""Python functions as host tools: signature, arguments and results by type, and what can't be a tool."""

import asyncio
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from autogen_core import CancellationToken
from pydantic import BaseModel, Field

from autogen_codeact.executors.tools.host_tools import HostTools
from codeact_sandbox import HostTool
from codeact_sandbox.types.tool import HostToolProtocol, ToolArgumentError
from tests.sandbox.tools.stub_host import StubHost


class Colour(Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    """One thing on an order."""

    sku: str = Field(description="Stock keeping unit")
    price: Decimal = Decimal("1.00")
    colour: Colour = Colour.RED
    tags: list[str] = []
    made: datetime = Field(default_factory=lambda: datetime(2026, 1, 2, tzinfo=UTC))


@dataclass
class Order:
    number: int
    items: list[Item] = field(default_factory=list)
    note: str | None = None
    parent: "Order | None" = None


def one(*tools: Any) -> tuple[HostToolProtocol, ...]:
    resolved = HostTools(tools).known
    assert resolved is not None
    return resolved


def host(*tools: Any) -> StubHost:
    return StubHost(one(*tools))


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def place(order: Order, by: Literal["air", "sea"] = "air", *, most: Annotated[int, "Upper limit."] = 3) -> list[Order]:
    """Place an order."""
    return [order, Order(2, [Item(sku=by, price=Decimal("2.5"))], parent=order)][:most]


def test_the_signature_is_as_python_writes_it():
    (tool,) = one(place)
    assert tool.name == "place"
    assert tool.signature == "(order: Order, by: Literal['air', 'sea'] = 'air', *, most: int = 3) -> list[Order]"
    assert tool.description.startswith("Place an order.\n\nArgs:\n    most: Upper limit.\n\nOrder, a dict:\n")


async def test_the_host_gets_objects_and_the_code_gets_dicts():
    seen = []

    def keep(order: Order) -> Order:
        seen.append(order)
        return order

    order = {"number": 1, "items": [{"sku": "a", "price": "1.10", "colour": "blue"}], "parent": {"number": 7}}
    back = await host(keep).run(lambda module: module.keep(order))
    assert back == {
        "number": 1,
        "items": [{"sku": "a", "price": "1.10", "colour": "blue", "tags": [], "made": "2026-01-02T00:00:00Z"}],
        "note": None,
        "parent": {"number": 7, "items": [], "note": None, "parent": None},
    }
    assert seen == [Order(1, [Item(sku="a", price=Decimal("1.10"), colour=Colour.BLUE)], None, Order(7))]


async def test_dates_and_other_types_arrive_on_the_host_as_what_they_are():
    seen: list[Any] = []

    def echo(
        day: date,
        at: datetime,
        who: UUID,
        price: Decimal,
        length: timedelta,
        data: bytes,
        some: set[int],
    ) -> tuple[date, datetime, UUID, Decimal, timedelta, bytes, set[int], dict[int, date]]:
        seen.extend([day, at, who, price, length, data, some])
        return day, at, who, price, length, data, some, {1: day}

    values = (
        date(2026, 1, 2),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        UUID(int=5),
        Decimal("1.50"),
        timedelta(hours=1, seconds=2.5),
        b"\xff\x00",
        {1, 2},
    )
    (tool,) = one(echo)
    got = await StubHost([tool]).run(lambda module: module.echo(*values))
    assert tuple(seen) == values
    assert got == [
        "2026-01-02",
        "2026-01-02T03:04:05Z",
        "00000000-0000-0000-0000-000000000005",
        "1.50",
        "PT1H2.5S",
        "_wA=",
        [1, 2],
        {"1": "2026-01-02"},
    ]
    assert tool.signature == (
        "(day: str, at: str, who: str, price: float | str, length: str, data: bytes, some: list[int]) -> "
        "tuple[str, str, str, str, str, str, list[int], dict[str, str]]"
    )
    assert "day: format: date\n    at: format: date-time\n" in tool.description


async def test_the_token_of_a_function_in_a_thread_is_cancelled_with_the_call():
    started, ended = threading.Event(), threading.Event()

    def wait(token: CancellationToken) -> None:
        started.set()
        while not token.is_cancelled():
            time.sleep(0.01)
        ended.set()

    (tool,) = one(wait)
    running = asyncio.ensure_future(tool.run({}))
    assert await asyncio.to_thread(started.wait, 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(ended.wait, 10)


async def test_arguments_that_do_not_fit_are_named():
    (tool,) = one(place)
    with pytest.raises(ToolArgumentError) as caught:
        await tool.run({"order": {"number": "q"}, "by": "rail", "speed": 1})
    assert str(caught.value) == (
        "order.number: Input should be a valid integer, unable to parse string as an integer, not 'q'; "
        "by: Input should be 'air' or 'sea', not 'rail'; speed is not known"
    )
    with pytest.raises(ToolArgumentError, match=r"^order is missing$"):
        await tool.run({})


@pytest.mark.parametrize("raised", [StopIteration("end"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
async def test_exception_that_no_future_holds_is_a_runtime_error(raised) -> None:
    def fails() -> None:
        """Fail."""
        raise raised

    with pytest.raises(RuntimeError, match=rf"^{type(raised).__name__}(: |$)") as caught:
        await asyncio.wait_for(HostTool(fails).run({}), 20)
    assert caught.value.__cause__ is raised
