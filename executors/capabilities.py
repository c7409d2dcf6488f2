"""What an executor can do beyond AutoGen's `CodeExecutor`: agents look for these methods, not for a class."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors.result import ExecutionResult
from codeact_sandbox.host.chunks import OutputChunk
from codeact_sandbox.protocols import HasSandboxFacts, ObservedExecutor, SessionSandbox, ToolSandbox, implements
from codeact_sandbox.types.run_context import RunContext


class ToolExecutor(ToolSandbox, Protocol):
    """An executor whose code can call host tools, and whose output can be read while it is written.

    The methods mean what they mean for `SandboxCodeExecutor`.
    """

    async def run_blocks(self, blocks: Sequence[CodeBlock], context: RunContext = ...) -> ExecutionResult:
        """Run blocks for a caller that adds something to them; cancelling the task kills the running one."""

    def execute_stream(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken, context: RunContext = ...
    ) -> AsyncGenerator[OutputChunk | ExecutionResult, None]:
        """Run blocks, and yield their output while they write it, and the result last."""


class SessionExecutor(ToolExecutor, SessionSandbox, Protocol):
    """A `ToolExecutor` whose code runs in one interpreter for all blocks, if its `mode` is `session`."""


@dataclass(frozen=True)
class Capabilities:
    """What an executor can do: itself, where it can do that, else None."""

    tools: ToolExecutor | None = None
    session: SessionExecutor | None = None
    facts: HasSandboxFacts | None = None
    observed: ObservedExecutor | None = None


def capabilities_of(executor: object) -> Capabilities:
    """Return what an executor can do. AutoGen's own executors can do nothing of it."""
    if isinstance(executor, type):
        return Capabilities()

    def provided(protocol: Any) -> Any:
        return executor if implements(executor, protocol) else None

    session = provided(SessionExecutor)
    if session is not None and session.mode != "session":
        session = None
    return Capabilities(provided(ToolExecutor), session, provided(HasSandboxFacts), provided(ObservedExecutor))
