"""The steps of a run, as documents: see `schema`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from autogen_codeact.runs.reader import load_run
from autogen_codeact.runs.view import RunView
from autogen_codeact.viewer.documents import document, header, summary
from autogen_codeact.viewer.schema import Document


class RunSteps:
    """The steps of one run. It reads files: call it in a thread, in one at a time.

    Raises:
        RunError: There is no log, or it can't be read; each method raises it, too, if a file can't be read any more.
    """

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.view = RunView(load_run(path))
        """What has been read of the run."""
        self.name = name if name is not None else Path(path).name

    def __len__(self) -> int:
        """Return the number of steps that are known by now."""
        return len(self.view.steps)

    def changed_since(self, revision: int) -> list[tuple[int, int]]:
        """Return the revisions and numbers of the steps that have changed, the oldest change first."""
        return sorted((each.revision, each.number) for each in self.view.steps if each.revision > revision)

    def header(self) -> Document:
        """Return what is known of the run by now."""
        return header(self.view, self.name)

    def summaries(self, first: int, last: int) -> list[Document]:
        """Return the short forms of the steps `first` to `last`, whose numbers begin with 1."""
        return [summary(self.view, each) for each in self.view.steps[max(first, 1) - 1 : max(last, 0)]]

    def steps(self, first: int, last: int, *, highlighted: bool = True) -> list[Document]:
        """Return the documents of the steps `first` to `last`."""
        steps = self.view.steps[max(first, 1) - 1 : max(last, 0)]
        return [document(self.view, each, highlighted=highlighted) for each in steps]

    def output(self, number: int) -> str | None:
        """Return the whole output of a block, or the whole text of another step; None if there is no such step."""
        for step in self.view.steps[max(number, 1) - 1 : number]:
            found = document(self.view, step, highlighted=False, whole=True)
            return str(found.get("output" if step.kind == "block" else "text", ""))
        return None

    def search(self, text: str, numbers: range) -> list[int]:
        """Return which of some steps have a text in them, in upper or lower case."""
        needle = text.casefold()
        found = self.steps(numbers.start, numbers.stop - 1, highlighted=False)
        return [each["number"] for each in found if needle in _all_text(each)]


def _all_text(value: Any) -> str:
    """Return all text in a document, in one case."""
    match value:
        case str():
            return value.casefold()
        case dict():
            return "\n".join(map(_all_text, value.values()))
        case list():
            return "\n".join(map(_all_text, value))
    return ""
