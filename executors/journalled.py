"""Which code in a session somebody keeps a journal of, so that it is known whether the journal is the whole story."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

from autogen_codeact.sandbox.errors import SandboxFileError
from autogen_codeact.sandbox.files.manifest import Manifest, manifest_of
from autogen_codeact.sandbox.files.workspace import Workspace
from autogen_codeact.sandbox.host.client import RunnerClient

_JOURNALLED: contextvars.ContextVar[Watch | None] = contextvars.ContextVar("journalled", default=None)


class Watch:
    """Information for a journal about the blocks of one executor.

    Args:
        executor: The executor.
    """

    def __init__(self, executor: object) -> None:
        self.executor = executor
        self.files: Manifest | None = None
        """The files that the last block has found; None if not known."""

    async def look(self, workspace: Workspace | None, sandbox: RunnerClient) -> None:
        """Record the files before a block runs."""
        self.files = None
        if workspace is not None:
            with contextlib.suppress(SandboxFileError):
                self.files = await manifest_of(workspace, sandbox)


@contextlib.contextmanager
def journalled(executor: object) -> Iterator[Watch]:
    """Have what is run inside in one executor not count as code of others."""
    watch = Watch(executor)
    reset = _JOURNALLED.set(watch)
    try:
        yield watch
    finally:
        _JOURNALLED.reset(reset)


def watch_of(executor: object) -> Watch | None:
    """The watch of the journal that records the current block, or None."""
    watch = _JOURNALLED.get()
    return watch if watch is not None and watch.executor is executor else None
