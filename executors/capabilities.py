"""What an executor can do beyond AutoGen's `CodeExecutor`: agents look for these methods, not for a class."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors.result import ExecutionResult
from autogen_codeact.executors.tools.host_tools import ToolLike
from autogen_codeact.sandbox.host.chunks import OutputChunk
from autogen_codeact.sandbox.protocols import KnowsSandbox, ObservedExecutor, ReplaySandbox
from autogen_codeact.sandbox.run_context import RunContext
from autogen_codeact.sandbox.tools.approval import ApproveTool
from autogen_codeact.sandbox.tools.tool import HostTool


@runtime_checkable
class ToolExecutor(Protocol):
    """An executor whose code can call host tools, and whose output can be read while it is written.

    The methods mean what they mean for `SandboxCodeExecutor`.
    """

    @property
    def known_tools(self) -> tuple[HostTool, ...] | None:
        """The host tools; None if there are workbenches that don't run yet."""

    def add_tools(self, tools: Sequence[ToolLike], approve_tool: ApproveTool | None = None) -> None:
        """Add host tools, from the next block on."""

    def offer_tool(self, tool: HostTool) -> None:
        """Add a host tool that is not listed and needs no approval."""

    async def list_tools(self) -> tuple[HostTool, ...]:
        """List the host tools, and start the workbenches that don't run yet."""

    async def run_blocks(
        self, code_blocks: Sequence[CodeBlock], cancellation_token: CancellationToken, context: RunContext = ...
    ) -> ExecutionResult:
        """Run blocks for a caller that adds something to them."""

    def execute_stream(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken, context: RunContext = ...
    ) -> AsyncGenerator[OutputChunk | ExecutionResult, None]:
        """Run blocks, and yield their output while they write it, and the result last."""

    async def upload(self, source: Path | str, name: str | None = None) -> None:
        """Copy a file of the host into the workspace."""

    async def list_files(self) -> list[str]:
        """List the files of the workspace."""


@runtime_checkable
class SessionExecutor(ToolExecutor, Protocol):
    """A `ToolExecutor` whose code runs in one interpreter for all blocks, if its `mode` is `session`."""

    @property
    def mode(self) -> str:
        """`session`, or something else if each block runs on its own."""

    @property
    def starts(self) -> int:
        """Number of sandboxes that were started; another number means that the session is a new one."""

    @property
    def unrecorded(self) -> int:
        """Number of blocks run in this sandbox, and of rollbacks, without an agent that keeps a journal."""

    async def restart(self) -> None:
        """Start a new sandbox."""

    def replaying(self, known_marks: Iterable[str]) -> AbstractAsyncContextManager[ReplaySandbox]:
        """Let the session run blocks without effects outside it.

        Args:
            known_marks: Marks of the files that the blocks need.

        Raises:
            ExternalEffectsError: They could have an effect outside the sandbox.
        """


@dataclass(frozen=True)
class Capabilities:
    """What an executor can do.

    Args:
        tools: The executor, if it is a `ToolExecutor`, else None.
        session: The executor, if it is a `SessionExecutor` in session mode, else None.
        facts: The executor, if it `KnowsSandbox`, else None.
        observed: The executor, if it is an `ObservedExecutor`, else None.
    """

    tools: ToolExecutor | None = None
    session: SessionExecutor | None = None
    facts: KnowsSandbox | None = None
    observed: ObservedExecutor | None = None


def capabilities_of(executor: object) -> Capabilities:
    """Return what an executor can do. AutoGen's own executors can do nothing of it."""
    if isinstance(executor, type):
        return Capabilities()
    tools: Any = executor if _has(executor, ToolExecutor) else None
    session: Any = executor if tools is not None and _has(executor, SessionExecutor) else None
    if session is not None and session.mode != "session":
        session = None
    facts: Any = executor if _has(executor, KnowsSandbox) else None
    observed: Any = executor if _has(executor, ObservedExecutor) else None
    return Capabilities(tools, session, facts, observed)


def _has(executor: object, protocol: Any) -> bool:
    # `isinstance` looks at each member of the executor, and so evaluates properties that take long; its class is enough.
    kind: Any = type(executor)
    return _class_has(kind, protocol) or isinstance(executor, protocol)


@lru_cache(maxsize=256)
def _class_has(kind: type[Any], protocol: type[Any]) -> bool:
    protocols = [base for base in protocol.__mro__ if base is not Protocol and getattr(base, "_is_protocol", False)]
    return all(hasattr(kind, name) for base in protocols for name in vars(base) if not name.startswith("_"))
