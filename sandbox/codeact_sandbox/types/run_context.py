"""The code of a caller, and its own settings for running it in a shared sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from codeact_sandbox.types.result import ToolCall
from codeact_sandbox.types.tool import HostToolProtocol, ToolAnswer

RecordedAnswers = Callable[[str, Mapping[str, Any]], Awaitable[ToolAnswer]]
"""Returns the recorded answer to a call of a host tool, by its name and arguments, or raises `NotAllowed`."""


class Block(NamedTuple):
    """Code to run.

    Args:
        code: The code.
        language: Its language.
    """

    code: str
    language: str = "python"


class CodeAndLanguage(Protocol):
    """Anything with `code` and `language`, such as a `Block`."""

    @property
    def code(self) -> str:
        """The code."""

    @property
    def language(self) -> str:
        """Its language."""


@dataclass(frozen=True)
class RunContext:
    """The settings of one caller for blocks that it runs in a shared sandbox.

    Args:
        journalled: Whether the caller keeps a journal of the session. Then the result has `files_before`, and the block does not
            count as unrecorded.
        on_call: Called with each call of a host tool when it has ended, also if the block's result is never delivered. None
            for no one.
        answers: Answers the calls of host tools from a record: no tool runs, and no approval is asked for. None to run the
            tools.
        branch: Whether it is a block of a branch, which may only call host tools that are `branch_safe`.
        tools: Host tools of this caller by name. Each replaces the sandbox's tool of the same name.
        origin: For whom the block runs: passed on to approval policies and recorders, which know what it is.
    """

    journalled: bool = False
    on_call: Callable[[ToolCall], None] | None = None
    answers: RecordedAnswers | None = None
    branch: bool = False
    tools: Mapping[str, HostToolProtocol] = field(default_factory=dict)
    origin: object = None


NO_CONTEXT = RunContext()
