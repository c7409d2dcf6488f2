"""The interface of a record of an agent's steps, from which a resumed run is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from autogen_core.code_executor import CodeBlock, CodeResult

from autogen_codeact.agents.answer import Answer
from autogen_codeact.agents.handoffs import Transfer
from autogen_codeact.agents.journal import Journal
from codeact_sandbox import SandboxError

T = TypeVar("T")
Kind = Literal["facts", "rebuild", "file"]
"""What an agent asks beside its model and its code: what is in the sandbox, the session's rebuilding, a file for a long text."""


@dataclass(frozen=True)
class RunEnded:
    """How code of an agent ended.

    Args:
        result: The executor's own result, or that of a refused run or a sandbox that broke.
        error: How the sandbox broke, or None.
        answer: The answer that the code gave, or the handoff that it called, or None.
    """

    result: CodeResult
    error: SandboxError | None = None
    answer: Answer | Transfer | None = None


class RunsCode(Protocol):
    """The part of an agent that runs its code: its `CodeRunner`."""

    in_session: bool

    def journal(self) -> Journal | None:
        """Return the journal of its session; None without a session."""
        ...

    async def repeat(self, result: CodeResult, error: SandboxError | None = None) -> RunEnded:
        """Return how a run ended before, from its result."""
        ...


class StepRecord(Protocol):
    """Records what an agent receives from outside. In a resumed run, it answers with what was recorded."""

    async def run(self, runner: RunsCode, blocks: list[CodeBlock], live: Callable[[], Awaitable[RunEnded]]) -> RunEnded:
        """Run the code of a step, or return how it ended before."""
        ...

    async def value(self, kind: Kind, get: Callable[[], Awaitable[T]], form: Any) -> T:
        """Return a value from outside."""
        ...
