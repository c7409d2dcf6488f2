"""The index entries of the steps of a run, kept in memory: the summary of each step, and the places of its events in the log."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from autogen_codeact.viewer.schema import Document
from autogen_codeact.viewer.text import title, visible

_MARKS = re.compile(r"\*\*|`|^#{1,6} ", re.MULTILINE)
_FENCE = re.compile(r"^```.*$", re.MULTILINE)
_LIVE_CHARS = 256 * 1024


class Place(NamedTuple):
    """Where a line of the log is."""

    number: int
    start: int
    size: int


@dataclass
class LiveText:
    """Text that is being written, of which the last part is kept."""

    pieces: list[str] = field(default_factory=list)
    chars: int = 0
    dropped: int = 0

    def add(self, text: str) -> None:
        """Append text; the oldest pieces are dropped when there are too many."""
        self.pieces.append(text)
        self.chars += len(text)
        if self.chars > 2 * _LIVE_CHARS or len(self.pieces) > 10_000:
            tail = "".join(self.pieces)[-_LIVE_CHARS:]
            self.dropped += self.chars - len(tail)
            self.pieces, self.chars = [tail], len(tail)

    def __str__(self) -> str:
        note = f"[… {self.dropped:,} characters dropped …]\n" if self.dropped else ""
        return note + "".join(self.pieces)


@dataclass(slots=True)
class StepEntry:
    """One step."""

    number: int
    kind: str  # it can change as long as the step goes on
    agent: str | None  # its agent's key in the log, or its sender's name
    time: str
    process: int = 0  # how often the run had been resumed before
    is_open: bool = False
    places: list[Place] = field(default_factory=list)
    took_s: float = 0.0
    usage: Document | None = None
    title: str = ""
    outcome: str | None = None
    state: Any = None
    live: LiveText | None = None  # what it has written by now, until the events that have all of it are there
    gap_lines: int = 0
    known_files: dict[str, Any] = field(
        default_factory=dict
    )  # earlier copies of its changed files, as the log has them
    answer: str | None = None  # of a decision: the model's answer, to see whether a message repeats it
    revision: int = 0  # number of its last change among all changes of the run

    def set_title(self, text: object, *, markdown: bool = False) -> None:
        """Take the first words of a text as the title, without their marks, unless it is empty."""
        if isinstance(text, str) and text.strip():
            text = _FENCE.sub("", text).lstrip()
            self.title = title(_MARKS.sub("", text[:1000]) if markdown else text)

    def summary(self, *, running: bool) -> Document:
        """Return its short form."""
        outcome = self.outcome
        if self.kind == "block" and self.is_open:
            outcome = "running" if running else "interrupted"
        return {
            "number": self.number,
            "kind": self.kind,
            "agent": visible(self.agent[:200]) if self.agent is not None else None,
            "title": self.title or self.kind.replace("_", " "),
            "outcome": visible(outcome[:40]) if outcome is not None else None,
            "state": self.state,
            "running": running,
        }
