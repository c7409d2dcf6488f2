"""The interface of a record of an agent's steps, from which a resumed run is answered."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Literal, Protocol, TypeVar

from autogen_core.code_executor import CodeBlock, CodeResult

from autogen_codeact.agents.journal import Journal
from autogen_codeact.agents.run_events import RunEvent
from autogen_codeact.sandbox import SandboxError

T = TypeVar("T")
Kind = Literal["facts", "rebuild", "file"]
"""What an agent asks beside its model and its code: what is in the sandbox, the session's rebuilding, a file for a long text."""


class RunsCode(Protocol):
    """The part of an agent that runs its code: its `CodeRunner`."""

    in_session: bool

    def journal(self) -> Journal | None:
        """Return the journal of its session; None without a session."""
        ...

    def repeat(self, result: CodeResult, error: SandboxError | None = None) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of a run that has ended before, from its result."""
        ...


class StepRecord(Protocol):
    """Records what an agent receives from outside. In a resumed run, it answers with what was recorded."""

    def run(
        self, runner: RunsCode, blocks: list[CodeBlock], live: Callable[[], AsyncGenerator[RunEvent, None]]
    ) -> AsyncGenerator[RunEvent, None]:
        """Run the code of a step, or repeat the events of its result.

        Args:
            runner: Whose code it is.
            blocks: The code.
            live: Runs it.
        """
        ...

    async def value(self, kind: Kind, get: Callable[[], Awaitable[T]], form: Any) -> T:
        """Return a value from outside.

        Args:
            kind: What it is.
            get: Gets it.
            form: Its type, for pydantic.
        """
        ...
