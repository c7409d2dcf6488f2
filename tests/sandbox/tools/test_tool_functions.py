"""Python functions as host tools: signatures, arguments and results by type, threads, errors, and what can't be a tool."""

import asyncio
import itertools
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from autogen_core import CancellationToken, Image
from PIL import Image as PILImage
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


async def test_sync_functions_run_in_threads_and_no_more_than_sixteen_at_once():
    running, most, lock = 0, 0, threading.Lock()
    gate = threading.Barrier(16, timeout=30)

    def busy(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if number < 16:
            gate.wait()
        with lock:
            running -= 1
        return number

    (tool,) = one(busy)
    answers = await asyncio.gather(*(tool.run({"number": number}) for number in range(40)))
    assert [answer.value for answer in answers] == list(range(40))
    assert most == 16


async def test_images_are_set_apart():
    image = PILImage.new("RGB", (4, 3))

    def plot() -> Image:
        """Plot."""
        return Image.from_pil(image)

    def both() -> dict[str, Any]:
        return {"text": "see", "images": [Image.from_pil(image), image]}

    tools = one(plot, both)
    assert tools[0].signature == "() -> str"
    box = StubHost(tools)
    assert await box.run("plot()") == "[image 1: 4×3 pixels]"
    assert await box.run("both()") == {"text": "see", "images": ["[image 1: 4×3 pixels]", "[image 2: 4×3 pixels]"]}
    assert [[each.size for each in answer.images] for answer in box.answers] == [[(4, 3)], [(4, 3), (4, 3)]]


async def test_a_result_that_cannot_travel_is_an_error_that_says_so():
    def handle() -> object:
        return threading.Lock()

    (tool,) = one(handle)
    with pytest.raises(TypeError, match=r"^`handle` returned something that can't travel into the sandbox: .*a lock"):
        await tool.run({})


def endless(*, nested: bool) -> Any:
    """Never end."""
    numbers = (n for n in itertools.count())
    return [numbers] if nested else numbers


async def later_endless() -> Any:
    """Never end, later."""
    return itertools.count()


async def test_an_iterator_is_refused_because_it_might_never_end():
    box = host(endless, later_endless, add)
    for call in ("endless(nested=False)", "later_endless()", "endless(nested=True)"):
        with pytest.raises(TypeError, match="an iterator in a tool's result might never end: return a list"):
            await box.run(call)
    assert await box.run("add(1)") == 3


class Nameless:
    def __call__(self, a: int) -> int:
        return a


def spread(*values: int) -> int:
    return sum(values)


def options(**values: int) -> int:
    return sum(values.values())


def locked(lock: threading.Lock) -> None: ...


def lost(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def _private() -> None: ...


def print() -> None: ...  # noqa: A001


@pytest.mark.parametrize(
    ("tools", "kind", "words"),
    [
        ([spread], ValueError, "The tool `spread` takes `*values`, which does not say what to pass; name its"),
        ([options], ValueError, "The tool `options` takes `**values`, which does not say what to pass"),
        ([lambda a: a], ValueError, "A `<lambda>` has no name to call it by; give a function made with `def`."),
        ([Nameless()], ValueError, "has no name to call it by; give a function made with `def`."),
        ([Item], ValueError, "The class `Item` can't be a tool; give a function or a method of an object."),
        ([locked], ValueError, "The parameter `lock` of the tool `locked` is of a type that can't be checked ("),
        ([lost], ValueError, "The annotations of `lost` can't be read: name 'Nowhere' is not defined."),
        ([_private], ValueError, "A tool can't be called `_private`: names that begin with an underscore are private"),
        ([print], ValueError, "A tool can't be called `print`: in the sandbox that is a keyword or builtin of Python"),
        ([3], TypeError, "3 is not a tool: give a function, an AutoGen tool, a Workbench, or an object with name"),
        ("add", TypeError, "tools must be a list of tools, not a str."),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_a_reason(tools: Any, kind: Any, words: Any) -> None:
    with pytest.raises(kind) as caught:
        HostTools(tools)
    assert words in str(caught.value)
