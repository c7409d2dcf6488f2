"""How code of an agent runs and ends, and the record of what an agent receives from outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeResult

from autogen_codeact.agents.answer import Answer, Transfer
from autogen_codeact.agents.journal import Journal
from autogen_codeact.executors.tools.later import AsksLater
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


class Step(AsksLater, Protocol):
    """A step in which code runs, as the log keeps it."""

    token: CancellationToken
    """Cancels the step: with that of the turn, and when the run ends to wait for an answer."""

    async def begin(self, blocks: list[CodeBlock]) -> None:
        """Write the code, before it runs."""

    def failure_logged(self) -> AbstractContextManager[None]:
        """Write that the step ended with an exception, if the body raises one."""

    def end(self, ended: RunEnded, journal: Journal | None) -> None:
        """Write how the code ended."""


class StepRecord(Protocol):
    """Records what an agent receives from outside. In a resumed run, it answers with what was recorded."""

    def recorded(self, blocks: list[CodeBlock], *, in_session: bool) -> tuple[CodeResult, SandboxError | None] | None:
        """Return how the code of a step ended before, or None if it has to be run."""

    def step(self, token: CancellationToken) -> AbstractAsyncContextManager[Step]:
        """Return a step in which code is about to run."""

    async def value(self, kind: Kind, get: Callable[[], Awaitable[T]], form: Any) -> T:
        """Return a value from outside."""
