"""How code of an agent runs and ends, and the record of what an agent receives from outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeResult

from autogen_codeact.agents.answer import Answer, Transfer
from autogen_codeact.agents.journal import Journal
from autogen_codeact.agents.replay import Replay
from codeact_sandbox import SandboxError
from codeact_sandbox.tools.approval import ToolApprovalRequest


@dataclass(frozen=True)
class RunEnded:
    """How code of an agent ended: also how its sandbox broke, and the answer that it gave, or the handoff that it called."""

    result: CodeResult
    error: SandboxError | None = None
    answer: Answer | Transfer | None = None


class Step(Protocol):
    """A step in which code runs, as the log keeps it."""

    token: CancellationToken
    """Cancels the step: with that of the turn, and when the run ends to wait for an answer."""

    def output(self, text: str) -> None:
        """Write what the code has printed, if it goes on for a moment."""

    async def about_code(self, code: str) -> tuple[bool, str]:
        """Return whether the code of the step may run, and why not, or end the run."""

    async def about_call(self, request: ToolApprovalRequest) -> tuple[bool, str]:
        """Return whether a call may be made, and why not, or end the run."""


class StepRecord(Protocol):
    """Records what an agent receives from outside. In a resumed run, it answers with what was recorded."""

    def recorded(self, blocks: list[CodeBlock], *, in_session: bool) -> tuple[CodeResult, SandboxError | None] | None:
        """Return how the code of a step ended before, or None if it has to be run."""

    async def run(
        self,
        blocks: list[CodeBlock],
        token: CancellationToken,
        approve: Callable[[Step], Awaitable[RunEnded | None]] | None,
        execute: Callable[[Step], Awaitable[RunEnded]],
        journal: Callable[[], Journal | None],
    ) -> RunEnded:
        """Have code approved, which may refuse it, and run; write both, and how the journal has changed."""

    async def rebuilt(self, rebuild: Callable[[], Awaitable[Replay | None]]) -> Replay | None:
        """Return how the session was rebuilt, or rebuild it."""
