"""What an executor can do beyond AutoGen's `CodeExecutor`: agents look for these methods, not for a class."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors.result import ExecutionResult
from autogen_codeact.executors.tools.host_tools import ToolLike
from autogen_codeact.sandbox.facts import SandboxFacts
from autogen_codeact.sandbox.files.manifest import Manifest
from autogen_codeact.sandbox.host.chunks import OutputChunk
from autogen_codeact.sandbox.observers import Observer, Recorder
from autogen_codeact.sandbox.result import Result
from autogen_codeact.sandbox.run_context import RecordedAnswers, RunContext
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
class KnowsSandbox(Protocol):
    """An executor that knows what code finds in its sandbox."""

    @property
    def starts(self) -> int:
        """Number of sandboxes that were started."""

    @property
    def known_facts(self) -> SandboxFacts:
        """What code finds in the sandbox, as far as it follows from the options."""

    async def facts(self) -> SandboxFacts:
        """Return what code finds in the sandbox; starts it. Raises nothing that is the sandbox's fault."""


@runtime_checkable
class ObservedExecutor(Protocol):
    """An executor that reports what it does."""

    def attach(self, *, recorder: Recorder | None = None, observers: Sequence[Observer] = ()) -> Callable[[], None]:
        """Attach a recorder and observers, beside those that are attached already.

        It works before the sandbox starts, while it runs, and across restarts; a block that runs is not reported to them.

        Args:
            recorder: Keeps a record of the calls to host tools. Several are awaited in the order in which they were attached.
            observers: Notified of starts, stops, blocks and calls.

        Returns:
            Detaches them.
        """


class ReplaySandbox(Protocol):
    """A sandbox in which blocks of an earlier session run again without effects outside it."""

    @property
    def changed(self) -> list[str]:
        """Files of the last manifest whose recorded content is not available."""

    async def arrange(self, manifest: Manifest) -> bool:
        """Make the workspace contain the files of a manifest, and return whether that was possible."""

    async def run(self, block: CodeBlock, answers: RecordedAnswers | None = None) -> Result:
        """Run a block, and answer its calls to host tools from a record."""

    async def used(self) -> list[str]:
        """List the files in `changed` that were used since they were arranged."""

    async def checkpoint(self) -> str | None:
        """Save the session's memory, and return why that is impossible, or None."""

    async def rollback(self) -> None:
        """Go back to the last checkpoint."""


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
    protocols = [base for base in protocol.__mro__ if base.__module__ == __name__]
    return all(hasattr(kind, name) for base in protocols for name in vars(base) if not name.startswith("_"))
