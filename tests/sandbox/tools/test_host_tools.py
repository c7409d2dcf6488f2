"""Code in a sandbox calls functions of this process: what it can do with them, and what comes back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from autogen_codeact.executors import HostTool
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.types.result import ToolCall
from tests.abuse.subject import Kind
from tests.sandbox.sandboxes import out, run, short_result
from tests.sandbox.tools.host_tools import Tool, makes, short_calls

pytestmark = pytest.mark.usefixtures("docker_engine", "sandbox_image")

Make = Callable[..., Awaitable[SandboxCodeExecutor]]
# Each engine and each mode once; for what the host does, the one whose sandbox takes other tools without a new start.
KINDS = ["docker-session", "bubblewrap-process"]
on_one_kind = pytest.mark.parametrize("make", ["docker-session"], indirect=True)


@pytest_asyncio.fixture(params=KINDS)
async def make(request: pytest.FixtureRequest, sandbox_image: str) -> AsyncIterator[Make]:
    """Makes an executor with these tools, which its sandbox knows from the start or from each block, and stops it."""
    async with makes(Kind(*request.param.split("-"))) as make:

        def make_tools(*functions: Any, **options: Any) -> Awaitable[SandboxCodeExecutor]:
            tools = [each if isinstance(each, Tool | HostTool) else Tool(each) for each in functions]
            return make(*tools, **{"timeout": 20, **options})

        yield make_tools


async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


class TestFunctions:
    async def test_tools_are_functions_in_main_and_in_a_module(self, make: Make) -> None:
        executor = await make(add, at_start=True)
        code = """
            from host_tools import add as plus
            import host_tools, inspect
            print(add(1, 2), plus(a=1), host_tools.add(b=5, a=5), add is plus)
            print(host_tools.__all__, add.__doc__, inspect.signature(add), inspect.signature(add.aio))
        """
        result = await run(executor, code)
        assert short_result(result) == (
            "ok",
            0,
            "3 2 10 True\n['ToolError', 'ToolRefused', 'add'] Add two numbers. (a, b=1) (a, b=1)\n",
        )
        assert short_calls(result) == [
            ("add", {"a": 1, "b": 2}, "ok", 3),
            ("add", {"a": 1, "b": 1}, "ok", 2),
            ("add", {"a": 5, "b": 5}, "ok", 10),
        ]
        assert all(0 < call.duration_s < 10 for call in result.tool_calls)

    async def test_tools_take_and_return_whatever_json_holds(self, make: Make) -> None:
        seen: list[Any] = []

        def echo(thing: Any) -> Any:
            seen.append(thing)
            return thing

        executor = await make(echo, at_start=True)
        things = [None, True, -(10**30), 0.1, "ü\n\0😀 \\ud800", [], [[1, [2]]], {}, {"a": {"": None}}, "x" * 300_000]
        result = await run(executor, f"things = {things!r}\nprint([echo(thing) for thing in things] == things)")
        assert short_result(result) == ("ok", 0, "True\n")
        assert seen == things
        assert [call.result for call in result.tool_calls] == things
        code = "import math\nprint(echo((1, 2)), echo({1: 2}), math.isnan(echo(math.nan)), echo(-math.inf))"
        assert await out(executor, code) == "[1, 2] {'1': 2} True -inf\n"

    async def test_traceback_ends_in_the_code(self, make: Make) -> None:
        async def fail() -> None:
            raise ValueError("no such city")

        executor = await make(fail)
        result = await run(executor, "def f():\n    fail()\ntry:\n    f()\nexcept ValueError:\n    f()")
        assert (result.outcome, result.error.type if result.error else None) == ("error", "ValueError")
        assert (result.error.message, result.error.line) == ("no such city", 2)
        # Python 3.13 marks the call with a line of its own.
        assert result.output.replace("    ~~~~^^\n", "").endswith("    fail()\nValueError: no such city\n")
        assert result.output.count("ValueError: no such city") == 2
        assert "codeact" not in result.output.replace("autogen_codeact", "")
        assert "host_tools" not in result.output
        assert "test_host_tools" not in result.output
        assert short_calls(result) == [("fail", {}, "error", "ValueError")] * 2


class TestConcurrentCalls:
    async def test_calls_run_at_the_same_time(self, make: Make) -> None:
        barrier = asyncio.Barrier(5)

        async def meet(who: int) -> int:
            async with asyncio.timeout(30):
                return await barrier.wait() * 0 + who

        executor = await make(meet)
        threads = (
            "from concurrent.futures import ThreadPoolExecutor\nprint(list(ThreadPoolExecutor(5).map(meet, range(5))))"
        )
        assert await out(executor, threads) == "[0, 1, 2, 3, 4]\n"
        tasks = """
            import asyncio
            async def main():
                return await asyncio.gather(*(meet.aio(who) for who in range(5)))
            print(asyncio.run(main()))
        """
        assert await out(executor, tasks) == "[0, 1, 2, 3, 4]\n"

    async def test_calls_of_two_blocks_at_the_same_time_stay_apart(self, make: Make) -> None:
        executor = await make(add)
        codes = [f"print([add(n, {k}) for n in range(50)])" for k in (0, 1000)]
        results = await asyncio.gather(*(run(executor, code) for code in codes))
        for result, start in zip(results, (0, 1000), strict=True):
            assert result.output == f"{list(range(start, start + 50))}\n"
            assert [call.result for call in result.tool_calls] == list(range(start, start + 50))


@on_one_kind
class TestResults:
    async def test_a_failing_tool_raises_its_builtin_or_a_tool_error(self, make: Make) -> None:
        class OutOfStock(LookupError):
            pass

        class Strange(Exception):
            def __str__(self) -> str:
                raise ZeroDivisionError

        kinds: dict[str, BaseException] = {
            "value": ValueError("bad value"),
            "key": KeyError("city"),
            "time": TimeoutError("too late"),
            "own": OutOfStock("no pears"),
            "plain": Exception("plain"),
            "silent": RuntimeError(),
            "strange": Strange(),
            "unicode": UnicodeDecodeError("ascii", b"\xff", 0, 1, "ordinal not in range"),
            "half": ValueError("half \ud800"),
            "long": ValueError("x" * 100_000),
        }

        async def fail(kind: str) -> None:
            raise kinds[kind]

        executor = await make(fail)
        code = """
            from host_tools import ToolError
            def attempt(kind):
                try:
                    fail(kind)
                except ToolError as error:
                    kinds = ValueError, LookupError, KeyError, TimeoutError, OSError
                    known = [kind.__name__ for kind in kinds if isinstance(error, kind)]
                    print(type(error).__name__, error.type, str(error)[:60], *known)
            for kind in %r:
                attempt(kind)
        """
        assert (await out(executor, code % list(kinds))).splitlines() == [
            "ValueError ValueError bad value ValueError",
            "KeyError KeyError city LookupError KeyError",
            "TimeoutError TimeoutError too late TimeoutError OSError",
            "ToolError OutOfStock OutOfStock: no pears LookupError",
            "ToolError Exception Exception: plain",
            "RuntimeError RuntimeError ",
            "ToolError Strange Strange: its message could not be shown",
            "ToolError UnicodeDecodeError UnicodeDecodeError: 'ascii' codec can't decode byte 0xff in  ValueError",
            "ValueError ValueError half ? ValueError",
            f"ValueError ValueError {'x' * 60} ValueError",
        ]

    async def test_wrong_arguments_are_a_type_error(self, make: Make) -> None:
        executor = await make(add)
        code = """
            from host_tools import _call
            def attempt(call):
                try:
                    call()
                except TypeError as error:
                    print(error)
            attempt(lambda: add())
            attempt(lambda: _call("add", {"z": 1}))
            attempt(lambda: add(1, object()))
            attempt(lambda: add(b"bytes"))
            attempt(lambda: add({1, 2}))
            attempt(lambda: add("half \\ud800"))
            loop = []
            loop.append(loop)
            attempt(lambda: add(loop))
        """
        lines = (await out(executor, code)).splitlines()
        assert lines[0].endswith("missing 1 required positional argument: 'a'")
        assert lines[1:5] == [
            "missing a required argument: 'a'",
            "the argument 'b' of add can't be sent to the host: object can't be written as JSON",
            "the argument 'a' of add can't be sent to the host: bytes can't be written as JSON",
            "the argument 'a' of add can't be sent to the host: set can't be written as JSON",
        ]
        assert lines[5].startswith("the argument 'a' of add can't be sent to the host: 'utf-8' codec can't encode")
        assert lines[6] == "the argument 'a' of add can't be sent to the host: Circular reference detected"


@on_one_kind
class TestToolCallLog:
    async def test_tool_calls_hold_copies_of_arguments_and_results(self, make: Make) -> None:
        kept: list[Any] = []

        async def keep(things: list[int]) -> list[int]:
            things.append(2)
            kept[:] = [things]
            return things

        executor = await make(keep)
        result = await run(executor, "print(keep([1]))")
        kept[0].append(3)
        assert result.output == "[1, 2]\n"
        assert [
            ToolCall("keep", {"things": [1]}, "ok", [1, 2], duration_s=call.duration_s) for call in result.tool_calls
        ] == list(result.tool_calls)
