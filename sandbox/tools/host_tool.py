"""`HostTool`: a typed function as a host tool, with options."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from autogen_codeact.sandbox.tools.function import NO_LIBRARY, FunctionHostTool, LibraryTypes
from autogen_codeact.sandbox.tools.threads import OwnThread, Threads


class HostTool(FunctionHostTool):
    """A typed function as a host tool, for one that needs an option; others are passed as they are.

    Args:
        function: The function, sync or async.
        thread: Where a sync function runs. "shared" (the default): in one of a few threads, several calls at the same time.
            "own": all its calls in one thread, one after the other. What belongs to a thread, such as a connection of sqlite3,
            must be made by the function itself.
        idempotent: Whether calling it again does no harm, as with a search. A run log then does not wait for the disk before and
            after a call. Default: no.

    Raises:
        ValueError: The function can't be a tool, or `thread` is something else; the message says why.
    """

    library: ClassVar[LibraryTypes] = NO_LIBRARY

    def __init__(
        self, function: Callable[..., Any], *, thread: Literal["shared", "own"] = "shared", idempotent: bool = False
    ) -> None:
        if thread not in ("shared", "own"):
            raise ValueError(f"thread must be 'shared' or 'own', not {thread!r}")
        own = OwnThread() if thread == "own" else None
        super().__init__(function, own or Threads(), self.library)
        self.idempotent = idempotent
        if own is not None:
            weakref.finalize(self, own.end)
