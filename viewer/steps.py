"""The steps of a run, as documents: see `schema`. A log that is being written is followed as it grows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from autogen_codeact.agents.budget import prices_of
from autogen_codeact.runs.errors import RunError, RunFolderError
from autogen_codeact.runs.folder import Line, MemoryLimit, json_cost
from autogen_codeact.runs.reader import Gap, LogReader, Run, load_run, read_line
from autogen_codeact.runs.store import is_being_written
from autogen_codeact.runs.summary import task_text
from autogen_codeact.viewer.documents import Event, document, whole_output
from autogen_codeact.viewer.entries import Place, StepEntry
from autogen_codeact.viewer.indexing import StepIndex
from autogen_codeact.viewer.schema import Document
from autogen_codeact.viewer.text import bounded, model_name, shortened

_TASK_CHARS = 20_000
_RECENT = 1_000
"""Steps at the end among which those are that go on."""
_MAX_EVENTS = 1_000
"""Events of a step that are read: its first and its last ones. Those between are calls, of which a document has few."""


class RunSteps:
    """The steps of one run. It reads files: call it in a thread, in one at a time.

    Raises:
        RunError: There is no log, or it can't be read; each method raises it, too, if the log can't be read any more.
    """

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.run: Run = load_run(path)
        """The run."""
        self.name = name if name is not None else Path(path).name
        self.live = is_being_written(self.run.folder.path)
        """Whether a process is writing the log, as far as known at the last reading."""
        self.error: str | None = None
        """Why the log could not be read any further, or None."""
        self._tail = LogReader(self.run.folder)
        self._steps = StepIndex()
        self._partial_told = False

    @property
    def indexed(self) -> bool:
        """Whether the log has been read to the end that it had at the last reading."""
        return self._tail.at_end or self._steps.is_full or self.error is not None

    def __len__(self) -> int:
        """Return the number of steps that are known by now."""
        return len(self._steps.entries)

    def read(self, limit: int = 1024 * 1024) -> bool:
        """Read on in the log.

        Args:
            limit: Bytes to read, up to the end of a line.

        Returns:
            Whether there was something new.
        """
        if self._steps.is_full or self.error is not None:
            return False
        was_live = self.live
        try:
            # First, so that the last lines of a writer that ends now are not missed.
            self.live = is_being_written(self.run.folder.path)
            lines = list(self._tail.read(limit, follow=True))
        except RunError as error:
            self.error = str(error)
            self.live = False
            return True
        for line in lines:
            self._steps.add(line)
        if was_live and not self.live:
            self._end_open_steps()
        if self._tail.cut_off and not self.live and not self._partial_told:
            self._partial_told = True
            self._steps.add(Gap(0, "the last line is incomplete", cut_off=True))
        return bool(lines) or was_live != self.live

    def read_all(self) -> None:
        """Read the log to its present end."""
        self.read()
        while not self.indexed:
            self.read()

    @property
    def revision(self) -> int:
        """Number of changes of steps by now."""
        return self._steps.revision

    def changed_since(self, revision: int) -> list[tuple[int, int]]:
        """Return the revisions and numbers of the steps that have changed, the oldest change first."""
        return sorted((each.revision, each.number) for each in self._steps.entries if each.revision > revision)

    def header(self) -> Document:
        """Return what is known of the run by now."""
        started, steps = self.run.started, self._steps
        finished = steps.finished or {}
        error = finished.get("error")
        reason = finished.get("stop_reason")
        prices = prices_of(each.model for each in started.agents)
        return {
            "id": self.name,
            "name": bounded(started.name, 200),
            "kind": started.kind,
            "task": shortened(task_text(started.task or ()), _TASK_CHARS)[0],
            "agents": [
                {
                    "name": bounded(each.name, 200),
                    "kind": bounded(each.kind.lstrip("_"), 200),
                    "model": model_name(each.model) if each.model is not None else None,
                }
                for each in started.agents[:100]
            ],
            "started": started.time.isoformat(),
            "outcome": self._outcome(),
            "stop_reason": bounded(str(reason)) if reason is not None else None,
            "error": bounded(f"{error.get('type')}: {error.get('message')}") if isinstance(error, dict) else self.error,
            "steps": len(steps.entries),
            "blocks": steps.blocks,
            "model_calls": steps.model_calls,
            "prompt_tokens": steps.prompt_tokens,
            "completion_tokens": steps.completion_tokens,
            "cost": prices.cost(steps.prompt_tokens, steps.completion_tokens) if prices is not None else None,
            "duration_s": round(steps.clock.seconds, 6),
            "timing": steps.timing,
            "resumed": steps.resumed,
            "gaps": steps.gaps,
            "live": self.live,
            "indexed": self.indexed,
            "revision": steps.revision,
            "controls": False,
        }

    def summaries(self, first: int, last: int) -> list[Document]:
        """Return the short forms of the steps `first` to `last`, whose numbers begin with 1."""
        return [each.summary(running=self._is_running(each)) for each in self._range(first, last)]

    def steps(self, first: int, last: int, *, highlighted: bool = True) -> list[Document]:
        """Return the documents of the steps `first` to `last`."""
        return [
            document(self.run, each, self._events(each), running=self._is_running(each), highlighted=highlighted)
            for each in self._range(first, last)
        ]

    def output(self, number: int) -> str | None:
        """Return the whole output of a block, or the whole text of another step; None if there is no such step."""
        entry = next(iter(self._range(number, number)), None)
        return whole_output(entry, self._events(entry)) if entry is not None else None

    def search(self, text: str, numbers: range) -> list[int]:
        """Return which of some steps have a text in them, in upper or lower case."""
        needle = text.casefold()
        documents = (each for number in numbers for each in self.steps(number, number, highlighted=False))
        return [each["number"] for each in documents if needle in _all_text(each)]

    def _range(self, first: int, last: int) -> list[StepEntry]:
        return self._steps.entries[max(first, 1) - 1 : max(last, 0)]

    def _is_running(self, entry: StepEntry) -> bool:
        return self.live and self._steps.is_running(entry)

    def _outcome(self) -> str:
        outcome = (self._steps.finished or {}).get("outcome")
        if outcome in ("completed", "failed", "cancelled", "waiting"):
            return outcome  # type: ignore[no-any-return]
        return "running" if self.live else "interrupted"

    def _end_open_steps(self) -> None:
        for entry in self._steps.entries[-_RECENT:]:
            if entry.is_open:
                self._steps.touch(entry)

    def _events(self, entry: StepEntry) -> list[Event]:
        places = entry.places
        if len(places) > _MAX_EVENTS:
            places = [*places[: _MAX_EVENTS // 2], *places[-_MAX_EVENTS // 2 :]]
        return list(self._read_events(places)) if places else []

    def _read_events(self, places: Iterable[Place]) -> Iterable[Event]:
        budget = MemoryLimit()
        with self.run.folder.open_log() as file:
            for place in places:
                try:
                    file.seek(place.start)
                    data = file.read(place.size)
                except OSError as error:
                    raise RunFolderError(f"The log can't be read: {error.strerror}.") from error
                line = read_line(Line(place.number, data, place.start + place.size + 1))
                if isinstance(line, Gap):
                    yield line
                    continue
                left = budget.left
                event = self.run.parse(replace(line, budget=budget))
                # The line, too: a step can have a thousand of them.
                budget.left = max(0, budget.left - json_cost(data, left))
                yield event if budget.left else Gap(place.number, "the step would take too much memory")


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
