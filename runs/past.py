"""What the agents of a run have got from outside so far, as far as it is needed to continue the run."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from autogen_core.code_executor import CodeResult
from autogen_core.models import CreateResult

from autogen_codeact.agents.steps import Kind
from autogen_codeact.runs.events import CodeText
from autogen_codeact.runs.results import CallRecord, ErrorRecord
from autogen_codeact.sandbox import SandboxDied, SandboxError, SandboxProtocolError, SandboxTimeout

_BROKEN = {error.__name__: error for error in (SandboxDied, SandboxTimeout, SandboxProtocolError)}
_RAISED = {error.__name__: error for error in (ValueError, NotImplementedError, TimeoutError, RuntimeError, TypeError)}


class RecordedError(Exception):
    """A call that failed before, and whose exception has no class that is known here."""


@dataclass(frozen=True)
class ModelAnswer:
    """An answer of a model.

    Args:
        number: Number of the call.
        request: Hash of the last message of the request, without the note.
        result: The answer, or None.
        error: Why there is none.
        note: What the model was told then about the continuation of the run, or None.
    """

    number: int
    request: str
    result: CreateResult | None
    error: ErrorRecord | None = None
    note: str | None = None


@dataclass(frozen=True)
class StepResult:
    """How code ended.

    Args:
        number: Number of the step.
        blocks: The code.
        result: Its result; None if it raised an exception.
        error: The exception that it raised, or how its sandbox broke.
        unknown: Whether the process ended while it ran.
    """

    number: int
    blocks: list[CodeText]
    result: CodeResult | None
    error: ErrorRecord | None = None
    unknown: bool = False

    @property
    def broke(self) -> SandboxError | None:
        """How the sandbox broke, or None."""
        if self.error is None or self.error.type not in _BROKEN:
            return None
        return _BROKEN[self.error.type](self.error.message)


@dataclass(frozen=True)
class ToolAnswer:
    """How a call ended that a model made itself, to a tool of AutoGen's `AssistantAgent`.

    Args:
        name: The tool.
        arguments: Its arguments by name.
        record: How it ended; None if the process ended while it was under way.
    """

    name: str
    arguments: dict[str, Any]
    record: CallRecord | None


@dataclass(frozen=True)
class Value:
    """Something else.

    Args:
        kind: What it is.
        value: Itself, as JSON.
    """

    kind: Kind
    value: Any


@dataclass
class Past:
    """What one agent received before the run was interrupted, according to the log.

    Args:
        items: What it received since the boundary, in order.
        facts: What it last knew about its sandbox, as JSON; None for nothing.
        calls: Number of calls of its model that have ended, in the whole run.
        steps: Number of steps that have run code, in the whole run.
        tool_calls: Number of calls that its model has made itself, in the whole run.
    """

    items: deque[ModelAnswer | StepResult | ToolAnswer | Value] = field(default_factory=deque)
    facts: Any = None
    calls: int = 0
    steps: int = 0
    tool_calls: int = 0


def raised(error: ErrorRecord) -> Exception:
    """Make an exception of its record, of the same class if that is a common one."""
    return _RAISED.get(error.type, RecordedError)(error.message)


@dataclass
class RunPast:
    """What the agents of a run received before it was interrupted, by their names in the log.

    Args:
        agents: What each received.
        notes: What the model of each agent is to be told about the continuation.
        emptied: The agents whose session was not rebuilt.
        at_turn: Whether the run continues at a boundary between two turns of a team.
    """

    agents: dict[str, Past] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    emptied: set[str] = field(default_factory=set)
    at_turn: bool = False
