"""Protocols of objects that run code in a sandbox, for callers that check methods and not a class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import Any, Protocol

from codeact_sandbox.branches import AsyncBranch
from codeact_sandbox.facts import SandboxFacts
from codeact_sandbox.replay import ReplayWorkspace
from codeact_sandbox.tools.approval import ApproveTool
from codeact_sandbox.types.observers import Observer, Recorder
from codeact_sandbox.types.tool import HostToolProtocol


class ToolSandbox(Protocol):
    """A sandbox whose code can call host tools. The methods mean what they mean for `AsyncSandbox`."""

    @property
    def known_tools(self) -> tuple[HostToolProtocol, ...] | None:
        """The host tools; None if there are sources of tools that don't run yet."""

    def add_tools(self, tools: Sequence[Any], approve_tool: ApproveTool | None = None) -> None:
        """Add host tools, from the next block on."""

    def offer_tool(self, tool: HostToolProtocol) -> None:
        """Add a host tool that is not listed and needs no approval."""

    async def list_tools(self) -> tuple[HostToolProtocol, ...]:
        """List the host tools, and start the sources that don't run yet."""

    async def write(self, name: str, data: bytes | str) -> None:
        """Write a file into the workspace; text is encoded as UTF-8."""

    async def list_files(self) -> list[str]:
        """List the files of the workspace."""


class SessionSandbox(Protocol):
    """A sandbox whose code runs in one interpreter for all blocks, if its `mode` is `session`."""

    @property
    def mode(self) -> str:
        """`session`, or something else if each block runs on its own."""

    @property
    def starts(self) -> int:
        """Number of sandboxes that were started; another number means that the session is a new one."""

    @property
    def unrecorded(self) -> int:
        """Number of blocks run in this sandbox, and of rollbacks, by callers that keep no journal."""

    async def restart(self) -> None:
        """Start a new sandbox."""

    def branch(self) -> AsyncBranch:
        """Return a branch of the session."""

    def replaying(self, known_marks: Iterable[str]) -> AbstractAsyncContextManager[ReplayWorkspace]:
        """Let the session run blocks without effects outside it."""


class HasSandboxFacts(Protocol):
    """An executor that knows facts about its sandbox."""

    @property
    def starts(self) -> int:
        """Number of sandboxes that were started."""

    @property
    def known_facts(self) -> SandboxFacts:
        """What code finds in the sandbox, as far as it follows from the options."""

    async def facts(self) -> SandboxFacts:
        """Return what code finds in the sandbox; starts it. Raises nothing that is the sandbox's fault."""


class ObservedExecutor(Protocol):
    """An executor that reports what it does."""

    def attach(self, *, recorder: Recorder | None = None, observers: Sequence[Observer] = ()) -> Callable[[], None]:
        """Attach a recorder and observers, beside those that are attached already. See `AsyncSandbox.attach`."""


def implements(thing: object, protocol: Any) -> bool:
    """Return whether an object has all members of a protocol."""
    # `isinstance` would evaluate properties that take long (Python 3.11), or not see what `__getattr__` offers (3.12).
    kind = type(thing)
    return all(hasattr(kind, name) or hasattr(thing, name) for name in _members(protocol))


@lru_cache(maxsize=32)
def _members(protocol: type[Any]) -> frozenset[str]:
    protocols = [base for base in protocol.__mro__ if base is not Protocol and getattr(base, "_is_protocol", False)]
    return frozenset(name for base in protocols for name in vars(base) if not name.startswith("_"))
