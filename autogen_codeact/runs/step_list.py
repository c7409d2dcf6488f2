"""The steps of a run, in order; all but those that have changed last are compressed."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any

from autogen_codeact.runs import events
from autogen_codeact.runs.step_parts import Content
from autogen_codeact.runs.summary import RunTotals
from autogen_codeact.runs.text import step_title

STEP_BYTES = 1_500
_OPEN_STEPS = 8
"""Steps that are not compressed."""


@dataclass(slots=True)
class Step:
    """A step of a run.

    Args:
        kind: task, message, model_call, block, decision, handoff, resumed, gap, event or end; it can change later.
        agent: Its agent's name in the log, or its sender's.
        time: When it began.
        process: How often the run had been resumed before.
        revision: Number of its last change among all changes of the run.
        content: What it has; None if that is compressed.
    """

    number: int
    kind: str
    agent: str | None
    time: str
    process: int
    is_open: bool
    content: Content | None
    packed: bytes = b""
    took_s: float = 0.0
    title: str = ""
    outcome: str | None = None
    state: str | None = None
    revision: int = 0


class StepList:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        """The steps that are known by now."""
        self.totals = RunTotals()
        self.revision = 0
        """Number of changes of steps."""
        self._held = 0
        self._open: dict[int, Step] = {}

    def content(self, step: Step) -> Content:
        """Return what a step has; do not change it."""
        if step.content is not None:
            return step.content
        content: Content = json.loads(zlib.decompress(step.packed))
        return content

    def _new(self, kind: str, agent: str | None, event: Any, *, is_open: bool = False, **content: Any) -> Step:
        last = self.steps[-1].time if self.steps else ""
        time = event.time.isoformat() if isinstance(event, events.Event) else last
        name = agent[:200] if agent is not None else None
        step = Step(len(self.steps) + 1, kind, name, time, self.totals.resumed, is_open, {})
        self.steps.append(step)
        self._held += STEP_BYTES
        return self._change(step, **content)

    def _change(self, step: Step, **content: Any) -> Step:
        """Note that a step has changed, and what it has now."""
        known = self._unpacked(step)
        known |= content
        step.title = step_title(known, step.outcome or step.kind.replace("_", " "))
        self.revision += 1
        step.revision = self.revision
        return step

    def _unpacked(self, step: Step) -> Content:
        if step.content is None:
            step.content, step.packed = self.content(step), b""
        self._open.pop(step.number, None)
        self._open[step.number] = step
        return step.content

    def _pack_unchanged(self) -> None:
        while len(self._open) > _OPEN_STEPS:
            self._pack(self._open.pop(next(iter(self._open))))

    def _pack(self, step: Step) -> None:
        try:
            text = json.dumps(step.content)
        except (ValueError, RecursionError):
            text = json.dumps({"text": "This step can't be shown: a value in it is nested too deeply."})
        step.content, step.packed = None, zlib.compress(text.encode(), 1)
        self._held += len(step.packed)
