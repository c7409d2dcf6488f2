"""How code of an agent runs and ends, and the record of what an agent receives from outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from autogen_core.code_executor import CodeBlock, CodeResult

from autogen_codeact.agents.answer import Answer, Transfer
from autogen_codeact.agents.journal import Journal
from codeact_sandbox import SandboxError

T = TypeVar("T")
Kind = Literal["facts", "rebuild", "file"]
"""What an agent asks beside its model and its code: what is in the sandbox, the session's rebuilding, a file for a long text."""


@dataclass(frozen=True)
class RunEnded:
    """How code of an agent ended: also how its sandbox broke, and the answer that it gave, or the handoff that it called."""

    result: CodeResult
    error: SandboxError | None = None
    answer: Answer | Transfer | None = None


class RunsCode(Protocol):
    """The part of an agent that runs its code: its `CodeRunner`."""

    in_session: bool

    def journal(self) -> Journal | None:
        """Return the journal of its session; None without a session."""

    async def repeat(self, result: CodeResult, error: SandboxError | None = None) -> RunEnded:
        """Return how a run ended before, from its result."""


class StepRecord(Protocol):
    """Records what an agent receives from outside. In a resumed run, it answers with what was recorded."""

    async def run(
        self,
        runner: RunsCode,
        blocks: list[CodeBlock],
        live: Callable[[], Awaitable[RunEnded]],
        ask: Callable[[], Awaitable[RunEnded | None]] | None = None,
    ) -> RunEnded:
        """Run the code of a step, unless `ask` says how it ended; or return how it ended before."""

    async def value(self, kind: Kind, get: Callable[[], Awaitable[T]], form: Any) -> T:
        """Return a value from outside."""
