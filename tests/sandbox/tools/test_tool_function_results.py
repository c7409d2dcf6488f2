"""Python functions as host tools: threads, errors, images, iterators as results, and what can't be a tool."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from autogen_core import Image
from PIL import Image as PILImage

from autogen_codeact.executors.tools.host_tools import HostTools
from tests.cases import case
from tests.sandbox.tools.stub_host import StubHost
from tests.sandbox.tools.test_tool_functions import Item, add, host, one


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


def squares(count: int) -> Iterator[int]:
    """Make squares."""
    return (n * n for n in range(count))


def endless(*, nested: bool) -> Any:
    """Never end."""
    numbers = (n for n in itertools.count())
    return [numbers] if nested else numbers


async def later_endless() -> Any:
    """Never end, later."""
    return itertools.count()


async def test_an_iterator_becomes_a_list_and_one_that_does_not_end_is_an_error():
    box = host(squares, endless, later_endless, add)
    assert await box.run("squares(4)") == [0, 1, 4, 9]
    for call in ("endless(nested=False)", "later_endless()"):
        with pytest.raises(TypeError, match="iterator with more than 100,000 items"):
            await box.run(call)
    with pytest.raises(TypeError, match="a generator in a tool's result might never end"):
        await box.run("endless(nested=True)")
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


def test_what_cannot_be_a_tool_is_refused_with_a_reason() -> None:
    cases = [
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
    ]
    for tools, kind, words in cases:
        with case(tools):
            with pytest.raises(kind) as caught:
                HostTools(tools)
            assert words in str(caught.value)
