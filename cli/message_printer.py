"""Prints the messages of a run: as text, with what is happening now, or as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autogen_agentchat.base import TaskResult
from autogen_core.code_executor import CodeExecutor

from autogen_codeact.cli.json_output import JsonPrinter
from autogen_codeact.cli.progress import Progress
from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.cli.transcript import Message, Transcript
from autogen_codeact.executors.capabilities import capabilities_of


class MessagePrinter:
    """Prints messages as they come."""

    def __init__(
        self, progress: Progress, folder: Path | None, *, as_json: bool, team: bool, files_stay: bool = False
    ) -> None:
        self._progress = progress
        self._json = JsonPrinter(folder, files_stay=files_stay) if as_json else None
        self._transcript = Transcript(Terminal(), team=team) if not as_json else None

    @contextmanager
    def watching(self, executor: CodeExecutor) -> Iterator[None]:
        """Show the activity of an executor, if it can be observed."""
        observed = capabilities_of(executor).observed
        watcher = self._progress.watcher if self._json is None else self._json.watcher
        detach = observed.attach(observers=[watcher]) if observed is not None else None
        try:
            yield
        finally:
            if detach is not None:
                detach()

    async def show(self, event: Message | TaskResult) -> None:
        """Print a message; a result is not printed."""
        self._progress.follow(event)
        if isinstance(event, TaskResult):
            return
        if self._json is not None:
            await self._json.show(event)
        elif self._transcript is not None:
            self._transcript.show(event)

    def end(self) -> None:
        """End the line that was begun, because no further message comes."""
        if self._transcript is not None:
            self._transcript.end()
