"""Reads from the log of a run how to resume it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autogen_core.models import CreateResult
from pydantic import ValidationError

from autogen_codeact.agents.code_runner import OUTPUT_CHUNK
from autogen_codeact.agents.journal import JournalEntry
from autogen_codeact.agents.observation import interrupted
from autogen_codeact.runs import events
from autogen_codeact.runs.answers import MAX_OPEN, Question, digest, read_answers, write_answers
from autogen_codeact.runs.chain import Chain, user_chain
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.folder import MAX_EVENT, MAX_HELD, MemoryLimit, json_cost
from autogen_codeact.runs.reader import Gap, RawEvent, Run, first_problem, load_run
from autogen_codeact.runs.steps import AgentHistory, Item, ModelAnswer, StepResult, ToolAnswer
from autogen_codeact.runs.store import EVENTS, run_name
from autogen_codeact.runs.summary import RunTotals
from codeact_sandbox.types.result import ToolCall

MAX_OUTPUT = 1_000_000  # characters of what interrupted code has printed
EVENT_BYTES = 2_000  # bytes of memory of an event, beside its values
MAX_AGENTS = 1_000


class RunNotResumableError(RunError):
    """The run can't be continued; the message says why, and what to do."""


class RunIsFinishedError(RunNotResumableError):
    """The run has ended with a result, so there is nothing to continue."""


@dataclass
class Plan:
    """How to resume a run.

    Args:
        size: Bytes up to the end of its line.
        found: Bytes of the log before it was read.
        chain: The codes of the log up to there, if this user has written all of it on this machine; else None.
        messages: How many messages each source has since the boundary.
        seconds_since: Seconds that the run went on after the boundary, as far as the log says.
        turn: The message of the turn of a conversation that was under way, as AutoGen dumps it; None between two turns.
    """

    run: Run
    boundary: events.Boundary = field(default_factory=lambda: events.Boundary(at="start"))
    histories: dict[str, AgentHistory] = field(default_factory=dict)
    changes: list[events.JournalChange] = field(default_factory=list)
    messages: Counter[str] = field(default_factory=Counter)
    last: int = 0
    size: int = 0
    found: int = 0
    chain: Chain | None = None
    seconds_since: float = 0.0
    finished: events.RunFinished | None = None
    turn: list[dict[str, Any]] | None = None
    questions: list[Question] = field(default_factory=list)

    @property
    def open_questions(self) -> list[Question]:
        return [each for each in self.questions if each.answer is None]

    @property
    def is_waiting(self) -> bool:
        """Whether the run has ended to wait for answers, and there is none yet."""
        waits = self.finished is not None and self.finished.outcome == "waiting"
        return waits and all(each.answer is None or each.used for each in self.questions)

    @property
    def started(self) -> events.RunStarted:
        """The event that the log begins with."""
        return self.run.started


def make_plan(path: str | os.PathLike[str]) -> Plan:
    """Read what is needed to continue a run.

    Raises:
        RunIsFinishedError: There is nothing to continue.
        RunNotResumableError: The log is damaged or incomplete, or has something that this version doesn't know.
        RunError: There is no log, or a newer version has written it.
    """
    run = load_run(path)
    reader = _Reader(run)
    found = (run.folder.path / EVENTS).stat().st_size
    chain = user_chain()
    for raw in run.raw_events(chain):
        if isinstance(raw, Gap):
            if raw.cut_off and raw.lines == 1:
                continue
            raise _damaged(run, raw)
        reader.clock.see(raw)
        reader.plan.size, reader.plan.last = raw.end, raw.data["seq"]
        if raw.name == "chunk":
            event = run.parse(raw) if raw.data.get("stored") else None
            reader.printed(event.message if isinstance(event, events.ChunkLogged) else raw.data.get("message"))
            continue
        if raw.name == "message":
            reader.plan.messages[_source(run, raw)] += 1
            reader.hold(EVENT_BYTES)
            continue
        budget = MemoryLimit()
        event = run.parse(raw, budget)
        if isinstance(event, Gap):
            raise _damaged(run, event)
        reader.hold(EVENT_BYTES + json_cost(raw.text, MAX_EVENT) + MAX_EVENT - budget.left)
        if isinstance(event, events.RunStarted):
            run.started = event  # it is what the chain has checked
        try:
            reader.take(event)
        except ValidationError as error:
            raise _damaged(run, Gap(raw.line, first_problem(error))) from None
    reader.finish()
    for each in reader.plan.questions:
        if each.used and (chain is None or chain.broken):
            each.asked.sha256 = ""  # who has written the log can have approved nothing here
    return replace(reader.plan, found=found, chain=chain if chain is not None and not chain.broken else None)


def answered(plan: Plan, decisions: Mapping[str, bool | str]) -> Plan:
    """Answer questions of a run, and return how it is resumed with the answers."""
    for each in plan.questions:
        # In a log that this user has not written, the text may be another one than what will be approved.
        if plan.chain is None and each.answer is None and digest(each.asked.tool, each.asked.text) != each.asked.sha256:
            raise RunNotResumableError(
                f"{plan.run.folder.path} can't be continued: its question {each.asked.question} was changed."
            )
    write_answers(plan.run.folder.path, plan.questions, decisions)
    return make_plan(plan.run.folder.path)


def _damaged(run: Run, gap: Gap) -> RunNotResumableError:
    return RunNotResumableError(
        f"{run.folder.path} can't be continued: its log is damaged in line {gap.line} ({gap.reason})."
    )


def _source(run: Run, raw: RawEvent) -> str:
    """Return the source of a message; of one that can't be read any more, "None"."""
    event = run.parse(raw) if raw.data.get("stored") else None
    message = event.message if isinstance(event, events.MessageLogged) else raw.data.get("message")
    return str(message.get("source")) if isinstance(message, dict) else "None"


class _Reader:
    """Collects the state of a run from its events."""

    def __init__(self, run: Run) -> None:
        self.plan = Plan(run)  # what is known so far
        self.clock = RunTotals()
        self._no_state: str | None = None
        self._requests: dict[tuple[str, int], events.ModelCallStarted] = {}
        self._steps: dict[tuple[str, int], StepResult] = {}
        self._tool_calls: dict[tuple[str, int], ToolAnswer] = {}
        self._stopped: events.LogStopped | None = None
        self._held = self._last_cost = 0
        self._output = ""  # what the last code has printed while it ran

    def hold(self, cost: int) -> None:
        """Note that an event takes memory until the next boundary."""
        self._last_cost = cost
        self._held += cost
        if self._held > MAX_HELD or len(self.plan.histories) > MAX_AGENTS:
            raise RunNotResumableError(
                f"{self.plan.run.folder.path} can't be continued: what its log has since the last completed step would "
                f"take more than {MAX_HELD:,} bytes of memory."
            )

    def take(self, event: events.RunEvent) -> None:
        match event:
            case events.Boundary():
                self._at_boundary(event)
            case events.TurnStarted():
                self.plan.turn = event.task
            case events.ModelCallStarted():
                self._history(event.agent).calls = event.number
                self._requests[event.agent, event.number] = event
            case events.ModelCallFinished():
                self._answered(event)
            case events.BlockStarted():
                self._history(event.agent).steps = event.number
                self._output = ""
                step = self._steps[event.agent, event.number] = StepResult(event.number, event.blocks)
                self._history(event.agent).items.append(step)
            case events.BlockFinished():
                self._block_finished(event)
            case events.HostCallStarted() | events.HostCallFinished():
                self._host_call(event)
            case events.QuestionAsked() | events.QuestionAnswered():
                self._question(event)
            case events.SessionRebuilt():
                self._history(event.agent).rebuilt.append(event.outcome)
            case _:
                self._ended_or_not(event)

    def printed(self, message: object) -> None:
        """Take a piece of a model's answer or of what running code has printed."""
        if isinstance(message, dict) and message.get("metadata") == OUTPUT_CHUNK and len(self._output) < MAX_OUTPUT:
            self._output += str(message.get("content"))[: MAX_OUTPUT - len(self._output)]

    def finish(self) -> None:
        """Complete the plan."""
        run, finished = self.plan.run, self.plan.finished
        name = run.folder.path
        if finished is not None and finished.outcome == "completed" and not run.started.conversation:
            raise RunIsFinishedError(
                f"{name} is finished: there is nothing to continue. `codeact show {run_name(name)}` prints it."
            )
        if self._stopped is not None:
            raise RunNotResumableError(
                f"{name} can't be continued: the run went on without its log ({self._stopped.reason}), so it is not known what "
                "it did after that."
            )
        if self.plan.boundary.state is None:
            raise RunNotResumableError(
                f"{name} can't be continued: its log does not have the state with which the {run.started.kind} began"
                f"{f' ({self._no_state})' if self._no_state else ''}."
            )
        read_answers(name, self.plan.questions)
        self.plan.seconds_since = self.clock.seconds
        self._budget = MemoryLimit(MAX_HELD - self._held)
        for agent, history in self.plan.histories.items():
            self._complete(agent, history.items)

    def _question(self, event: events.QuestionAsked | events.QuestionAnswered) -> None:
        if isinstance(event, events.QuestionAsked):
            self.plan.questions.append(Question(event))
            if len(self.plan.open_questions) > MAX_OPEN:
                raise RunNotResumableError(
                    f"{self.plan.run.folder.path} can't be continued: it has too many questions."
                )
            return
        for each in self.plan.questions:
            if each.asked.question == event.question:
                each.asked.text, each.used = "", True
                each.answer = event

    def _host_call(self, event: events.HostCallStarted | events.HostCallFinished) -> None:
        if event.block:
            if (step := self._steps.get((event.agent, event.block))) is not None:
                ended = isinstance(event, events.HostCallFinished) and event.record.outcome == "cancelled"
                if not ended or event.call in step.calls:  # else the block has ended before the call was approved
                    step.calls[event.call] = event
        elif isinstance(event, events.HostCallStarted):
            self._history(event.agent).tool_calls = event.call
            call = self._tool_calls[event.agent, event.call] = ToolAnswer(event.name, event.arguments)
            self._history(event.agent).items.append(call)
        elif (known := self._tool_calls.get((event.agent, event.call))) is not None:
            known.record = event.record

    def _ended_or_not(self, event: events.RunEvent) -> None:
        if isinstance(event, events.LogStopped):
            self._stopped = event
        if not isinstance(event, events.RunFinished | events.RunResumed):
            return
        self.plan.finished = event if isinstance(event, events.RunFinished) else None
        for change in event.journals if isinstance(event, events.RunResumed) else ():
            self._changed(change)

    def _changed(self, change: events.JournalChange) -> None:
        for entry in change.added:
            JournalEntry.model_validate(entry)
        self.plan.changes.append(change)

    def _history(self, agent: str) -> AgentHistory:
        return self.plan.histories.setdefault(agent, AgentHistory())

    def _at_boundary(self, event: events.Boundary) -> None:
        if event.state is None:
            self._no_state = event.state_error
            return
        self.plan.boundary = event
        if event.at == "message":
            self.plan.turn = None
        self.plan.messages.clear()
        self.clock.seconds = 0.0
        self._requests, self._steps, self._tool_calls, self.plan.changes = {}, {}, {}, []
        for history in self.plan.histories.values():
            history.items.clear()
            history.rebuilt.clear()
        self._held = self._last_cost

    def _answered(self, event: events.ModelCallFinished) -> None:
        self._history(event.agent).answers += 1
        request = self._requests.pop((event.agent, event.number), None)
        if request is None:
            return
        result = CreateResult.model_validate(event.result) if event.result is not None else None
        answer = ModelAnswer(request.request, result, event.error, request.note)
        self._history(event.agent).items.append(answer)

    def _block_finished(self, event: events.BlockFinished) -> None:
        if event.journal is not None:
            self._changed(event.journal)
        if (step := self._steps.get((event.agent, event.number))) is not None:
            step.finished = event

    def _complete(self, agent: str, items: list[Item]) -> None:
        """Say how the steps of an agent have ended."""
        # A failed call at the end may be what has ended the run: it is made again.
        while items and isinstance(last := items[-1], ModelAnswer) and last.result is None:
            items.pop()
        for step in items:
            if isinstance(step, StepResult):
                self._end(agent, step, is_last=step is items[-1])

    def _end(self, agent: str, step: StepResult, *, is_last: bool) -> None:
        finished = step.finished
        if finished is None or (finished.result is None and is_last):
            asked = (q for q in self.plan.questions if (q.asked.agent, q.asked.block) == (agent, step.number))
            notes = [q.note for q in asked if q.asked.tool is not None and not q.used]
            output = self._output if is_last else ""
            step.result, step.unknown = interrupted(output, self._calls(step), notes), True
            return
        if finished.result is not None:
            step.result = self.plan.run.result(finished.result, self._budget)
        failed = is_last and self.plan.finished is not None and self.plan.finished.outcome == "failed"
        step.error = None if failed and step.result is not None else finished.error

    def _calls(self, step: StepResult) -> list[ToolCall]:
        """Return the calls to host tools of code without a result; those without an end were under way."""
        return [
            call.record.call(self.plan.run.reading(self._budget))
            if isinstance(call, events.HostCallFinished)
            else ToolCall(call.name, call.arguments, "cancelled")
            for call in step.calls.values()
        ]
