"""Events of running an agent's code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autogen_core.code_executor import CodeResult

from autogen_codeact.agents.answer import Answer
from autogen_codeact.agents.handoffs import Transfer
from autogen_codeact.sandbox import SandboxError, ToolCall


@dataclass(frozen=True)
class OutputWritten:
    """Code has written `text` since the last event of this kind."""

    text: str


@dataclass(frozen=True)
class CallEnded:
    """A call to a host tool has ended."""

    call: ToolCall


@dataclass(frozen=True)
class AnswerGiven:
    """Code has called `final_answer`, or a block that has called a handoff has ended."""

    answer: Answer | Transfer


@dataclass(frozen=True)
class RunEnded:
    """The run is over, with the executor's own result, or that of a refused run or a sandbox that broke with `error`."""

    result: CodeResult
    error: SandboxError | None = None


RunEvent = OutputWritten | CallEnded | AnswerGiven | RunEnded
Emit = Callable[[RunEvent], None]
