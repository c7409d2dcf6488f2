r"""The steps of a run, as the JSON objects that the viewer's page and the HTML export show.

Text is text, never HTML: whoever shows it has to escape it. In all text but that of displays,
terminal colours are removed, and
control and bidi characters are replaced by visible ones such as `\x1b` and `\u202e`. Long text is
shortened in its middle; a field
`…_bytes` beside it then says how long it was, and is null if all of it is there. Numbers are
finite.

A run's header:
    id, name, kind ("agent" or "team"), task, agents: [{name, kind, model or null}], started (ISO
    8601, UTC)
    outcome: running, completed, failed, cancelled, waiting; interrupted: its process has ended
    before it, as far as the log was read
    stop_reason, error ("ValueError: message"), each or null
    steps, blocks, model_calls, prompt_tokens, completion_tokens, duration_s, resumed, gaps
    cost: in US dollars; null if prices are not known
    timing: {model_s, sandbox_s, tools_s}, sums over all steps
    live: whether its log is still being written; indexed: whether it has been read to its present
    end
    revision: grows with each change of a step; `changes?since=` takes it
    controls: whether this page can answer questions, and stop the run if it goes on
A step; a field that is missing is empty or does not apply:
    number (from 1, without gaps), agent, time (ISO 8601, UTC: when it began), duration_s, running,
    usage: {prompt_tokens,
    completion_tokens} or null
    kind: task, message, model_call, block, decision, handoff, resumed, gap, event, end
    text, text_bytes; thought: what the model thought before it; notes: remarks, such as why code
    was not run; error
    target (handoff): to whom; retry (decision): whether it is tried again; stop_reason (end)
    code, code_bytes, language, spans (block): [[class, text], …] of the code, see
    `codeact_sandbox.highlight`, or null
    outcome (block): ok, error, timeout, oom, crashed, denied, interrupted, running; (end): that of
    the run
    exit_code, output, output_bytes, value, state ("kept", "restored", "lost" or null); truncated:
    bytes that the sandbox dropped
    displays: [{name, data}], data: by MIME type text (JSON types as JSON text), or {file:
    reference}. HTML and SVG are what the code
    wrote: show them in sandboxed frames only
    calls: [{name, arguments: {name: JSON text}, outcome: running, ok, error, refused, timeout or
    cancelled, result, error, duration_s, images: [reference]}]; of a message: calls that a model makes
    itself
    connections: [{host, port, allowed, sent, received, reason}]
    files: [{name, download: what a copy is called, change: "added" or "changed", size, diff: a
    unified diff or null, file: reference or
    null, note}]
A reference to a file in the run's folder: sha256 (null if its content was left out, and note says
why), size, media_type, note
A summary of a step: number, kind, agent, title (at most 120 characters, one line), outcome, state,
running
A question: id, agent, kind ("call" or "code"), tool, arguments, text
Changes of a run that goes on: header (its revision is that of the last summary), summaries,
questions: all that wait for an answer
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, TypeVar

from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.reader import load_run
from autogen_codeact.runs.view import RunView
from autogen_codeact.viewer.control import KeptQuestions, RunControl
from autogen_codeact.viewer.documents import Document, document, header, summary


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
        return len(self.view.steps)

    def changed_since(self, revision: int) -> list[tuple[int, int]]:
        """Return the revisions and numbers of the steps that have changed, the oldest change first."""
        return sorted((each.revision, each.number) for each in self.view.steps if each.revision > revision)

    def header(self) -> Document:
        return header(self.view, self.name)

    def summaries(self, first: int, last: int) -> list[Document]:
        """Return the short forms of the steps `first` to `last`, whose numbers begin with 1."""
        return [summary(self.view, each) for each in self.view.steps[max(first, 1) - 1 : max(last, 0)]]

    def steps(self, first: int, last: int, *, highlighted: bool = True) -> list[Document]:
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


POLL_S = 0.15
_ANSWER_S = 10.0
_START_S = 20.0
_MAX_AT_ONCE = 500
_FIRST_BYTES = 512 * 1024
"""What is read of a log before the first answer."""
T = TypeVar("T")


class OpenRun:
    """A run that is open in at least one page."""

    def __init__(self, path: Path, name: str, control: RunControl | None) -> None:
        self._path = path
        self._name = name
        self.control = control
        """What its buttons do, or None."""
        self.kept = KeptQuestions(path)
        """The questions in its log."""
        self.waiting = 0
        """Number of pages that wait for changes."""
        self._steps: RunSteps | None = None
        self._lock = asyncio.Lock()
        self._closing = False

    async def call(self, function: Callable[[RunSteps], T]) -> T:
        """Call a function with the run in a thread."""
        async with self._lock:
            if self._steps is None:
                self._steps = await self._opened()
                await asyncio.to_thread(self._steps.view.read, _FIRST_BYTES)
            return await asyncio.to_thread(function, self._steps)

    async def _opened(self) -> RunSteps:
        deadline = asyncio.get_running_loop().time() + (_START_S if self.control is not None else 0)
        while True:
            try:
                return await asyncio.to_thread(RunSteps, self._path, self._name)
            except RunError:
                # The page of a run can be open before its first line is written.
                if asyncio.get_running_loop().time() > deadline or self._closing:
                    raise
                await asyncio.sleep(POLL_S)

    async def header(self) -> Document:
        """Return the header of the run, as far as its log has been read."""
        header = await self.call(RunSteps.header)
        header["controls"] = self.control is not None if header["live"] else bool(await self._questions(header))
        return header

    async def _questions(self, header: Document) -> list[Document]:
        if header["live"]:
            return self.control.questions if self.control is not None else []
        return await asyncio.to_thread(self.kept.documents) if header["outcome"] == "waiting" else []

    async def read_to(self, number: int) -> None:
        """Read on in the log until a step is known, or to the present end."""
        until = asyncio.get_running_loop().time() + _ANSWER_S
        known = await self.call(lambda steps: len(steps) >= number)
        while not known and asyncio.get_running_loop().time() < until and not self._closing:
            known = await self.call(lambda steps: _read_on(steps) or len(steps) >= number)

    async def changes(self, since: int, known: Set[int]) -> Document:
        """Return what is new, as soon as something is, or after a while."""
        until = asyncio.get_running_loop().time() + _ANSWER_S
        self.waiting += 1
        try:
            while True:
                revision, summaries = await self.call(lambda steps: _changed(steps, since))
                header = await self.header()
                questions = await self._questions(header)
                ended = header["indexed"] and not header["live"] and not questions
                news = summaries or ended or {each["id"] for each in questions} != known
                if news or self._closing or asyncio.get_running_loop().time() > until:
                    header["revision"] = revision
                    return {"header": header, "summaries": summaries, "questions": questions}
                await asyncio.sleep(POLL_S)
        finally:
            self.waiting -= 1

    def close(self) -> None:
        """Have pages wait no longer."""
        self._closing = True


def _read_on(steps: RunSteps) -> bool:
    """Read a part of the log; return whether that was all of it."""
    steps.view.read()
    return steps.view.indexed


def _changed(steps: RunSteps, since: int) -> tuple[int, list[Any]]:
    """Read on; return summaries of the steps that have changed, the oldest changes first, and the last revision among them."""
    steps.view.read()
    changed = steps.changed_since(since)[:_MAX_AT_ONCE]
    revision = changed[-1][0] if changed else since
    return revision, [summary for _, number in changed for summary in steps.summaries(number, number)]
