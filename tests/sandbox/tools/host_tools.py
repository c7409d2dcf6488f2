"""Host tools for tests: the function runs on the host as it is, and its stub hands on what it gets."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from autogen_codeact.executors import ExecutionResult
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.types.tool import ToolAnswer, ToolArgumentError
from tests.abuse.subject import Kind


class Tool:
    """A host tool made of a function."""

    def __init__(
        self, function: Callable[..., Any], *, source: str | None = None, images: tuple[Any, ...] = ()
    ) -> None:
        self.function = function
        self.name = function.__name__
        self.signature = str(inspect.signature(function))
        self.description = function.__doc__ or ""
        self._images = images
        parameters = inspect.signature(function).parameters
        bare = ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters.values())
        given = ", ".join(f"{name!r}: {name}" for name in parameters)
        self.source = source or (
            f"def {self.name}({bare}):\n    {self.description!r}\n    return _call({self.name!r}, {{{given}}})\n"
        )

    async def run(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Run the function."""
        try:
            inspect.signature(self.function).bind(**arguments)
        except TypeError as error:
            raise ToolArgumentError(str(error)) from None
        if inspect.iscoroutinefunction(self.function):
            return ToolAnswer(await self.function(**arguments), self._images)
        return ToolAnswer(await asyncio.to_thread(self.function, **arguments), self._images)


@asynccontextmanager
async def makes(kind: Kind) -> AsyncIterator[Callable[..., Awaitable[SandboxCodeExecutor]]]:
    """Give a function that makes executors with tools, started, which are stopped at the end."""
    made: list[SandboxCodeExecutor] = []

    async def make(*tools: Any, at_start: bool = False, **options: Any) -> SandboxCodeExecutor:
        options = {"mode": kind.mode, "timeout": 30, **options}
        if at_start:
            made.append(kind.executor(tools=tools, **options))
        else:
            made.append(kind.executor(**options))
            made[-1].add_tools(tools)
        await made[-1].start()
        return made[-1]

    yield make
    for executor in made:
        await executor.stop()


class Endless:
    """A tool that begins and does not end by itself; knows how it ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended: list[str] = []

    async def endless(self) -> str:
        """Wait for ever."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        return "never"

    async def wait_until_begun(self) -> None:
        """Return when a call of the endless tool has begun."""
        await self.begun.wait()


def short_calls(result: ExecutionResult) -> list[tuple[str, dict[str, Any], str, Any]]:
    """The call log without durations."""
    return [
        (call.name, call.arguments, call.outcome, call.error.type if call.error else call.result)
        for call in result.tool_calls
    ]
