"""Python functions as host tools: signature, arguments and results by type, and what can't be a tool."""

import asyncio
import functools
import inspect
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from autogen_core import CancellationToken, Image
from autogen_core.tools import FunctionTool
from PIL import Image as PILImage
from pydantic import AllowInfNan, BaseModel, Field
from typing_extensions import TypedDict

from autogen_codeact.executors.tools.host_tools import host_tools
from autogen_codeact.sandbox.tools.tool import HostTool, ToolArgumentError

from .stub_host import StubHost


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


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    name: str


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Film(TypedDict):
    title: str
    released: date


def one(*tools: Any) -> tuple[HostTool, ...]:
    resolved = host_tools(tools).tools
    assert resolved is not None
    return resolved


def host(*tools: Any) -> StubHost:
    return StubHost(one(*tools))


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


async def later(name: str, *, times: int = 1) -> str:
    """Greet, when it suits."""
    await asyncio.sleep(0)
    return name * times


def place(order: Order, by: Literal["air", "sea"] = "air", *, most: Annotated[int, "Upper limit."] = 3) -> list[Order]:
    """Place an order."""
    return [order, Order(2, [Item(sku=by, price=Decimal("2.5"))], parent=order)][:most]


async def test_a_function_is_called_by_position_and_by_keyword():
    box = host(add, later)
    assert await box.run("add(1), add(1, 5), add(b=1, a=2), later('ab', times=2)") == (3, 6, 3, "abab")
    assert box.calls == [
        ("add", {"a": 1}),
        ("add", {"a": 1, "b": 5}),
        ("add", {"a": 2, "b": 1}),
        ("later", {"name": "ab", "times": 2}),
    ]


async def test_the_stub_has_signature_defaults_annotations_and_docstring():
    def look(module: Any) -> Any:
        signature = inspect.signature(module.add)
        return (
            str(signature),
            signature.parameters["b"].default == 2,
            inspect.getdoc(module.add),
            module.add.__annotations__,
        )

    assert await host(add).run(look) == (
        "(a: int, b: int = 2) -> int",
        True,
        "Add two numbers.",
        {"a": int, "b": int, "return": int},
    )


def test_the_signature_is_as_python_writes_it():
    (tool,) = one(place)
    assert tool.name == "place"
    assert tool.signature == "(order: Order, by: Literal['air', 'sea'] = 'air', *, most: int = 3) -> list[Order]"
    assert tool.description == "Place an order.\n\nArgs:\n    most: Upper limit."


def test_classes_are_shown_as_dataclasses():
    (tool,) = one(place)
    assert [each.shown for each in tool.classes] == [  # type: ignore[attr-defined]
        "@dataclass\nclass Order:\n    number: int\n    items: list[Item] = ...\n    note: str | None = None\n"
        "    parent: Order | None = None",
        '@dataclass\nclass Item:\n    """One thing on an order."""\n    sku: str  # Stock keeping unit\n'
        "    price: Decimal = '1.00'\n    colour: Colour = Colour.RED\n    tags: list[str] = []\n    made: datetime = ...",
        'class Colour(Enum):\n    """A colour."""\n    RED = \'red\'\n    BLUE = \'blue\'',
    ]


async def test_models_and_dataclasses_travel_both_ways():
    seen = []

    def keep(order: Order) -> Order:
        seen.append(order)
        return order

    def use(module: Any) -> Any:
        order = module.Order(number=1, items=[module.Item("a", price=Decimal("1.10"), colour=module.Colour.BLUE)])
        order.parent = module.Order(7)
        back = module.keep(order)
        assert isinstance(back, module.Order)
        assert isinstance(back.items[0], module.Item)
        return back.items[0].price, back.items[0].colour is module.Colour.BLUE, back.items[0].made, back.parent.number

    assert await host(keep).run(use) == (Decimal("1.10"), True, datetime(2026, 1, 2, tzinfo=UTC), 7)
    assert seen == [Order(1, [Item(sku="a", price=Decimal("1.10"), colour=Colour.BLUE)], None, Order(7))]


async def test_a_dict_will_do_in_place_of_an_object():
    box = host(place)
    assert await box.run("[each.number for each in place({'number': 4, 'items': [{'sku': 'x'}]}, by='sea')]") == [4, 2]


async def test_dates_paths_and_other_plain_types_arrive_as_what_they_are():
    def echo(
        day: date, at: datetime, where: Path, who: UUID, price: Decimal, length: timedelta, data: bytes, some: set[int]
    ) -> tuple[date, datetime, Path, UUID, Decimal, timedelta, bytes, set[int], dict[int, date]]:
        return day, at, where, who, price, length, data, some, {1: day}

    values = (
        date(2026, 1, 2),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        Path("a/b"),
        UUID(int=5),
        Decimal("1.50"),
        timedelta(hours=1, seconds=2.5),
        b"\xff\x00",
        {1, 2},
    )
    got = await host(echo).run(lambda module: module.echo(*values))
    assert got == (*values, {1: date(2026, 1, 2)})


async def test_results_of_a_union_are_told_apart():
    def pets() -> list[Cat | Dog | str]:
        return [Cat(name="Tom"), Dog(name="Rex"), "none"]

    box = host(pets)
    assert await box.run("[type(each).__name__ for each in pets()]") == ["Cat", "Dog", "str"]


async def test_a_typed_dict_stays_a_dict():
    def film(like: Film | None = None) -> Film:
        return like or Film(title="Alien", released=date(1979, 5, 25))

    box = host(film)
    assert await box.run("film()") == {"title": "Alien", "released": date(1979, 5, 25)}
    assert await box.run("film(Film(title='X', released='2000-01-01'))['title']") == "X"


async def test_a_result_that_is_not_what_the_annotation_says_comes_as_it_is():
    def lie() -> int:
        return {"a": [1, 2]}  # type: ignore[return-value]

    assert await host(lie).run("lie()") == {"a": [1, 2]}


async def test_without_annotations_everything_goes():
    def free(a, b=(1, 2)):
        return {"a": a, "b": b}

    (tool,) = one(free)
    assert tool.signature == "(a, b=(1, 2))"
    assert await StubHost([tool]).run("free({'x': None}), free(1, b=[3])") == (
        {"a": {"x": None}, "b": [1, 2]},
        {"a": 1, "b": [3]},
    )


async def test_what_partial_binds_is_neither_shown_nor_settable():
    def search(query: str, key: str, most: int = 3) -> str:
        """Search."""
        return f"{query} {key} {most}"

    (tool,) = one(functools.partial(search, key="secret"))
    assert tool.signature == "(query: str, *, most: int = 3) -> str"
    assert "secret" not in repr(tool.source)
    assert await StubHost([tool]).run("search('a', most=1)") == "a secret 1"
    with pytest.raises(ToolArgumentError, match=r"^key is not known$"):
        await tool.run({"query": "a", "key": "mine"}, CancellationToken())


async def test_methods_wrapped_functions_and_odd_kinds_of_parameters():
    class Shop:
        def price(self, sku: str, /, amount: int = 1, *, currency: str = "EUR") -> str:
            return f"{sku} {amount} {currency}"

    def traced(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def around(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return around

    price, added = one(Shop().price, traced(add))
    assert price.signature == "(sku: str, /, amount: int = 1, *, currency: str = 'EUR') -> str"
    assert added.signature == "(a: int, b: int = 2) -> int"
    box = StubHost([price, added])
    assert await box.run("price('a', currency='CHF'), add(1)") == ("a 1 CHF", 3)


async def test_a_parameter_for_the_cancellation_token_is_filled_on_the_host():
    async def wait(seconds: int, token: CancellationToken) -> bool:
        return token.is_cancelled()

    (tool,) = one(wait)
    assert tool.signature == "(seconds: int) -> bool"
    assert await StubHost([tool]).run("wait(1)") is False


async def test_arguments_that_do_not_fit_are_named():
    (tool,) = one(place)
    with pytest.raises(ToolArgumentError) as caught:
        await tool.run({"order": {"number": "q"}, "by": "rail", "speed": 1}, CancellationToken())
    assert str(caught.value) == (
        "order.number: Input should be a valid integer, unable to parse string as an integer, not 'q'; "
        "by: Input should be 'air' or 'sea', not 'rail'; speed is not known"
    )
    with pytest.raises(ToolArgumentError, match=r"^order is missing$"):
        await tool.run({}, CancellationToken())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_a_float_is_finite_unless_the_annotation_says_otherwise(value: float):
    def half(number: float, numbers: list[float] | None = None) -> float:
        return number / 2

    def any_half(number: Annotated[float, AllowInfNan(True)]) -> float:
        return number / 2

    refused = f"number: Input should be a finite number, not {value}"
    plain, wrapped, any_one, free = one(half, FunctionTool(half, "", name="again"), any_half, untyped)
    for tool in (plain, wrapped):
        assert (await tool.run({"number": 3.0}, CancellationToken())).value == 1.5
        with pytest.raises(ToolArgumentError) as caught:
            await tool.run({"number": value}, CancellationToken())
        assert str(caught.value) == refused
    with pytest.raises(ToolArgumentError, match=r"numbers\[1\]: Input should be a finite number"):
        await plain.run({"number": 1.0, "numbers": [1.0, value]}, CancellationToken())
    for tool in (any_one, free):
        assert not math.isfinite((await tool.run({"number": value}, CancellationToken())).value)


async def test_of_many_invalid_values_the_first_are_reported():
    def count(numbers: dict[str, int]) -> int:
        return len(numbers)

    (tool,) = one(count)
    with pytest.raises(ToolArgumentError) as caught:
        await tool.run({"numbers": {f"k{number}": "x" for number in range(1000)}}, CancellationToken())
    assert str(caught.value).startswith("numbers.k0: Input should be a valid integer")
    assert str(caught.value).endswith("; and 5 more; in all 1,000 values don't fit")
    late = {**{f"k{number}": 1 for number in range(20)}, **{f"l{number}": "x" for number in range(1000)}}
    with pytest.raises(ToolArgumentError, match=r"^1,000 values do not fit the tool's annotations$"):
        await tool.run({"numbers": late}, CancellationToken())


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
    answers = await asyncio.gather(*(tool.run({"number": number}, CancellationToken()) for number in range(40)))
    assert [answer.value for answer in answers] == list(range(40))
    assert most == 16


async def test_exceptions_come_through_and_what_would_end_the_program_does_not():
    def fails() -> None:
        raise LookupError("no such thing")

    def leaves() -> None:
        raise SystemExit(3)

    async def leaves_later() -> None:
        raise KeyboardInterrupt

    async def cancels() -> None:
        raise asyncio.CancelledError

    expected = [
        (fails, LookupError, "^no such thing$"),
        (leaves, RuntimeError, "^SystemExit: 3$"),
        (leaves_later, RuntimeError, "^KeyboardInterrupt$"),
        (cancels, RuntimeError, "^the tool was cancelled on the host$"),
    ]
    for function, kind, words in expected:
        (tool,) = one(function)
        with pytest.raises(kind, match=words):
            await tool.run({}, CancellationToken())


async def test_pictures_are_set_apart():
    picture = PILImage.new("RGB", (4, 3))

    def plot() -> Image:
        """Plot."""
        return Image.from_pil(picture)

    def both() -> dict[str, Any]:
        return {"text": "see", "pictures": [Image.from_pil(picture), picture]}

    tools = one(plot, both)
    assert tools[0].signature == "() -> str"
    box = StubHost(tools)
    assert await box.run("plot()") == "[image 1: 4×3 pixels]"
    assert await box.run("both()") == {"text": "see", "pictures": ["[image 1: 4×3 pixels]", "[image 2: 4×3 pixels]"]}
    assert [[each.image.size for each in answer.images] for answer in box.answers] == [[(4, 3)], [(4, 3), (4, 3)]]


async def test_a_result_that_cannot_travel_is_an_error_that_says_so():
    def handle() -> object:
        return threading.Lock()

    (tool,) = one(handle)
    with pytest.raises(TypeError, match=r"^`handle` returned something that can't travel into the sandbox: .*a lock"):
        await tool.run({}, CancellationToken())


def test_two_classes_of_one_name_get_two_names():
    def first() -> None:
        class Thing(BaseModel):
            a: int

        def make(thing: Thing) -> None: ...

        make.__annotations__ = {"thing": Thing}
        return make  # type: ignore[return-value]

    def second() -> None:
        class Thing(BaseModel):
            b: str

        def break_it(thing: Thing) -> None: ...

        break_it.__annotations__ = {"thing": Thing}
        return break_it  # type: ignore[return-value]

    assert [tool.signature for tool in one(first(), second())] == ["(thing: Thing)", "(thing: BreakItThing)"]


def untyped(number):
    return number


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
        (
            [spread],
            ValueError,
            "The tool `spread` takes `*values`, which tells nobody what to give; name its parameters",
        ),
        ([options], ValueError, "The tool `options` takes `**values`, which tells nobody what to give"),
        ([lambda a: a], ValueError, "A `<lambda>` has no name to call it by; give a function made with `def`."),
        ([Nameless()], ValueError, "has no name to call it by; give a function made with `def`."),
        ([Item], ValueError, "The class `Item` can't be a tool; give a function or a method of an object."),
        ([locked], ValueError, "The parameter `lock` of the tool `locked` is of a type that can't be checked ("),
        ([lost], ValueError, "The annotations of `lost` can't be read: name 'Nowhere' is not defined."),
        ([_private], ValueError, "A tool can't be called `_private`: names that begin with an underscore are private"),
        ([print], ValueError, "A tool can't be called `print`: in the sandbox that is a keyword or builtin of Python"),
        (
            [add, add],
            ValueError,
            "Two tools, or a tool and a class, would be called `add` in the sandbox; the second is",
        ),
        ([3], TypeError, "3 is no tool: give a function, an AutoGen tool, a Workbench, or an object with name"),
        ("add", TypeError, "tools must be a list of tools, not a str."),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_a_reason(tools, kind, words):
    with pytest.raises(kind) as caught:
        host_tools(tools)
    assert words in str(caught.value)
