"""Approval of calls to host tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any


@dataclass(frozen=True)
class ToolApprovalRequest:
    """A call that waits for its approval; the tool gets a copy of the arguments, so changing these changes nothing.

    Args:
        name: The tool, as `server.tool` if it is a server's, whatever the code calls it.
        arguments: Its arguments by name, as JSON gave them; not checked yet. The content of files and of large arrays,
            tables and images is given by its SHA-256 and size.
        signature: The tool's parameters and result as Python writes them.
        description: The tool's docstring.
        code: The block that calls it.
        language: The block's language.
        origin: What the caller of the block gave as `RunContext.origin`.
    """

    name: str
    arguments: Mapping[str, Any]
    signature: str
    description: str
    code: str
    language: str
    origin: object = None


def matches(name: str, pattern: str) -> bool:
    """Return whether a pattern such as `crm.find_*` names a tool; `*` alone names all, and else never a server.

    A server chooses the names of its tools, so a pattern without a server's name is only about the program's own tools.
    """
    server, _, tool = name.rpartition(".")
    server_pattern, _, tool_pattern = pattern.rpartition(".")
    is_same_server = bool(server) == bool(server_pattern) and fnmatchcase(server, server_pattern)
    return pattern == "*" or (is_same_server and fnmatchcase(tool, tool_pattern))


@dataclass(frozen=True)
class ToolApproval:
    """The answer.

    Args:
        approved: Whether the call may be made.
        reason: Why not, in a sentence that the calling code gets; may be empty if it is approved.
    """

    approved: bool
    reason: str = ""


ApproveTool = Callable[[ToolApprovalRequest], Awaitable[ToolApproval]]
"""Called for each call, also for several at the same time, and cancelled when its caller stops waiting for the
answer any more; a call is made only if it is approved."""
