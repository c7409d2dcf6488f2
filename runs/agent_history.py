"""What the agents of a run have received so far from models, code and tools, as far as resuming the run needs it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from autogen_core.code_executor import CodeResult
from autogen_core.models import CreateResult

from autogen_codeact.agents.step_record import Kind
from autogen_codeact.runs.events import CodeText
from autogen_codeact.runs.questions import Questions
from autogen_codeact.runs.results import CallRecord
from codeact_sandbox import SandboxDied, SandboxError, SandboxProtocolError, SandboxTimeout
from codeact_sandbox.types.result import ErrorInfo

_BROKEN = {error.__name__: error for error in (SandboxDied, SandboxTimeout, SandboxProtocolError)}
_RAISED = {error.__name__: error for error in (ValueError, NotImplementedError, TimeoutError, RuntimeError, TypeError)}


class RecordedError(Exception):
    """An exception in the log whose class is not one of the common ones."""


@dataclass(frozen=True)
class ModelAnswer:
    """An answer of a model."""

    request: str
    result: CreateResult | None
    error: ErrorInfo | None = None
    note: str | None = None


@dataclass(frozen=True)
class StepResult:
    """How code ended."""

    number: int
    blocks: list[CodeText]
    result: CodeResult | None
    error: ErrorInfo | None = None
    unknown: bool = False

    @property
    def broke(self) -> SandboxError | None:
        """How the sandbox broke, or None."""
        if self.error is None or self.error.type not in _BROKEN:
            return None
        return _BROKEN[self.error.type](self.error.message)


@dataclass(frozen=True)
class ToolAnswer:
    """The result of a tool call that the model of an `AssistantAgent` made."""

    name: str
    arguments: dict[str, Any]
    record: CallRecord | None


@dataclass(frozen=True)
class Value:
    """Another value from outside the agent."""

    kind: Kind
    value: Any


@dataclass
class AgentHistory:
    """What one agent received before the run was interrupted, according to the log.

    Args:
        items: What it received since the boundary, in order.
        facts: The facts about its sandbox that it received last, as JSON; None if there are none.
        calls: Number of finished calls of its model in the whole run.
        steps: Number of steps that ran code in the whole run.
        tool_calls: Number of tool calls that its model made in the whole run.
    """

    items: deque[ModelAnswer | StepResult | ToolAnswer | Value] = field(default_factory=deque)
    facts: Any = None
    calls: int = 0
    steps: int = 0
    tool_calls: int = 0


def to_exception(error: ErrorInfo) -> Exception:
    """Return the exception of a record: of its own class if that is a common one, else a `RecordedError`."""
    return _RAISED.get(error.type, RecordedError)(error.message)


@dataclass
class RunHistory:
    """What the agents of a run received before it was interrupted, by their names in the log.

    Args:
        notes: What to tell the model of each agent about the resumed run.
        emptied: The agents whose session was not rebuilt.
        at_turn: Whether the run continues at a boundary between two turns of a team.
        questions: What `Later` asks; None in a conversation, where nothing waits.
    """

    agents: dict[str, AgentHistory] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    emptied: set[str] = field(default_factory=set)
    at_turn: bool = False
    questions: Questions | None = None
