"""The messages of a run as `--json` prints them, with the names of what code has made; docs/runs.md describes them."""

from __future__ import annotations

from typing import Any

from autogen_codeact.cli.exit import absolute
from autogen_codeact.cli.output import print_json
from autogen_codeact.cli.progress import Watcher
from autogen_codeact.cli.transcript import Message
from codeact_sandbox.types.result import Result


class JsonPrinter:
    """Prints the messages of a run, those about results of code with its files and displays.

    Args:
        files_stay: Whether the files are still there after the run.
    """

    def __init__(self, *, files_stay: bool) -> None:
        self.watcher = _Results()  # an observer for `executor.attach(observers=[…])`
        self._files_stay = files_stay

    def show(self, message: Message) -> None:
        """Print a message."""
        value = dict(message.dump())
        if value["type"] == "CodeExecutionEvent" or "exit_code" in value.get("metadata", {}):
            results, self.watcher.results = self.watcher.results, []
            if isinstance(result := getattr(message, "result", None), Result):
                results = [result]  # of a run that is continued, too
            value["artifacts"] = [
                {
                    "name": file.name,
                    "size": file.size,
                    "path": absolute(file.path) if self._files_stay else None,
                    "note": file.note,
                }
                for result in results
                for file in result.artifacts
            ]
            value["displays"] = [
                {
                    "name": display.name,
                    "types": list(display.data),
                    "path": absolute(display.path) if self._files_stay else None,
                }
                for result in results
                for display in result.displays
            ]
        print_json(value)


class _Results(Watcher):
    def __init__(self) -> None:
        self.results: list[Result] = []

    def block_finished(self, event: Any) -> None:
        if event.result is not None:
            self.results.append(event.result)
