"""Protocols of objects that run code in a sandbox, for callers that check methods and not a class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from autogen_codeact.sandbox.facts import SandboxFacts
from autogen_codeact.sandbox.files.manifest import Manifest
from autogen_codeact.sandbox.observers import Observer, Recorder
from autogen_codeact.sandbox.result import Result
from autogen_codeact.sandbox.run_context import CodeAndLanguage, RecordedAnswers


@runtime_checkable
class KnowsSandbox(Protocol):
    """An executor that knows facts about its sandbox."""

    @property
    def starts(self) -> int:
        """Number of sandboxes that were started."""

    @property
    def known_facts(self) -> SandboxFacts:
        """What code finds in the sandbox, as far as it follows from the options."""

    async def facts(self) -> SandboxFacts:
        """Return what code finds in the sandbox; starts it. Raises nothing that is the sandbox's fault."""


@runtime_checkable
class ObservedExecutor(Protocol):
    """An executor that reports what it does."""

    def attach(self, *, recorder: Recorder | None = None, observers: Sequence[Observer] = ()) -> Callable[[], None]:
        """Attach a recorder and observers, beside those that are attached already. See `AsyncSandbox.attach`."""


class ReplaySandbox(Protocol):
    """A sandbox in which blocks of an earlier session run again without effects outside it."""

    @property
    def changed(self) -> list[str]:
        """Files of the last manifest whose recorded content is not available."""

    async def arrange(self, manifest: Manifest) -> bool:
        """Make the workspace contain the files of a manifest, and return whether that was possible."""

    async def run(self, block: CodeAndLanguage, answers: RecordedAnswers | None = None) -> Result:
        """Run a block, and answer its calls to host tools from a record."""

    async def used(self) -> list[str]:
        """List the files in `changed` that were used since they were arranged."""

    async def checkpoint(self) -> str | None:
        """Save the session's memory, and return why that is impossible, or None."""

    async def rollback(self) -> None:
        """Go back to the last checkpoint."""
