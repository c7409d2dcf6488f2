"""The log of a run, folded once: what pages, exports and lists show of it. A log that is being written is followed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from autogen_codeact.runs import events
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.folder import MemoryLimit
from autogen_codeact.runs.reader import Gap, LogReader, RawEvent, Run
from autogen_codeact.runs.results import CallRecord, ResultRecord, StoredFile
from autogen_codeact.runs.step_list import STEP_BYTES, Step, StepList
from autogen_codeact.runs.step_parts import (
    MAX_FILES,
    MAX_PARTS,
    Content,
    call_parts,
    error_text,
    message_notes,
    model_call_parts,
    result_parts,
)
from autogen_codeact.runs.store import is_being_written
from autogen_codeact.runs.summary import task_text, usage_of
from autogen_codeact.runs.text import json_text, seconds, words, words_beside_code

MAX_SHOWN = 8 * 1024 * 1024
"""Bytes of memory that an event may take."""
MAX_HELD = 64 * 1024 * 1024
"""Bytes of memory that the steps of a run take, compressed; the others are left out."""
_LINE_BYTES, _FILE_BYTES = 100, 300
_LIVE_CHARS = 256 * 1024
_DROPPED = "[… earlier text was dropped …]\n"
_MALFORMED = (TypeError, ValueError, AttributeError, LookupError, RecursionError, ArithmeticError)
"""What is raised over messages whose fields are not what they should be; it costs the message, never the run."""


@dataclass
class _Agent:
    """The present state of an agent, according to the log."""

    key: str
    calls: dict[int, Step] = field(default_factory=dict)  # of its model, without an answer
    call: Step | None = None  # of its model, whose answer is not a message yet
    request: Step | None = None  # its message with calls that its model makes itself
    code: list[Content] = field(default_factory=list)  # of its last message
    generated: Step | None = None  # its message of code alone, that becomes a block
    blocks: dict[int, Step] = field(default_factory=dict)
    ran: Step | None = None  # a block that has ended, and whose message is still to come


class RunView(StepList):
    """The steps of a run, in order. It reads files: call it in a thread, in one at a time.

    Args:
        run: The run. Nothing has been read of it before `read`.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.timing = {"model_s": 0.0, "sandbox_s": 0.0, "tools_s": 0.0}
        self.files: dict[str, StoredFile | None] = {}
        """The last copy of each file that the code has made or changed, the last change last."""
        self.live = is_being_written(run.folder.path)
        """Whether a process is writing the log, as far as known at the last reading."""
        self.error: str | None = None
        """Why the log could not be read any further, or None."""
        self._tail = LogReader(run.folder)
        self._is_full = self._is_cut_off = False
        self._agents: dict[str, _Agent] = {}
        self._by_source: dict[str, list[_Agent]] = {}
        self._task_ids: set[str] = set()

    # Reading

    @property
    def indexed(self) -> bool:
        """Whether the log has been read to the end that it had at the last reading."""
        return self._tail.at_end or self._is_full or self.error is not None

    def read(self, limit: int = 1024 * 1024) -> bool:
        """Read on in the log.

        Args:
            limit: Bytes to read, up to the end of a line.

        Returns:
            Whether there was something new.
        """
        if self._is_full or self.error is not None:
            return False
        before, was_live = self.revision, self.live
        try:
            # First, so that the last lines of a writer that ends now are not missed.
            self.live = is_being_written(self.run.folder.path)
            for line in self._tail.read(limit, follow=True):
                self.add(line)
        except RunError as error:
            self.error, self.live = str(error), False
            return True
        if was_live and not self.live:
            for step in self.steps:
                if step.is_open:
                    self._change(step)
        if self._tail.cut_off and not self.live and not self._is_cut_off:
            self._is_cut_off = True
            self._gap(Gap(0, "the last line is incomplete", cut_off=True))
        return before != self.revision or was_live != self.live

    def read_all(self) -> Self:
        """Read the log to its present end."""
        self.read()
        while not self.indexed:
            self.read()
        return self

    def is_running(self, step: Step) -> bool:
        """Return whether a step goes on."""
        return self.live and step.is_open and self.totals.finished is None and step.process == self.totals.resumed

    def add(self, line: RawEvent | Gap) -> None:
        """Add the next line of the log."""
        if self._is_full:
            return
        self.totals.add(line, self.run)
        event = self.run.parse(line, MemoryLimit(MAX_SHOWN)) if isinstance(line, RawEvent) else line
        try:
            self._take(event, line)
        except _MALFORMED:
            self.totals.gaps += 1
            self._gap(Gap(line.line, f"the fields of this {event.type} are not what they should be"))
        self._held += _LINE_BYTES
        self._pack_unchanged()
        if self._held > MAX_HELD:
            self._is_full = True
            self._gap(Gap(0, f"the run has more than {len(self.steps):,} steps; the others are not shown"))

    def _gap(self, gap: Gap) -> None:
        notes = [f"{gap.lines:,} lines"] if gap.lines > 1 else []
        self._new("gap", None, gap, text=gap.reason, notes=notes)

    def _agent(self, key: str) -> _Agent:
        if key not in self._agents:
            self._agents[key] = _Agent(key)
            self._by_source.setdefault(key.rpartition("/")[2].partition("#")[0], []).append(self._agents[key])
            self._held += STEP_BYTES
        return self._agents[key]

    def _sender(self, source: object) -> _Agent:
        """Return the agent that has sent a message: its name in the log can have that of its team before it."""
        agents = self._by_source.get(str(source), [])
        busy = [each for each in agents if each.call or each.generated or each.blocks or each.ran]
        return next(iter(busy or agents), None) or self._agent(str(source))

    # Events

    def _take(self, event: events.RunEvent | Gap, line: RawEvent | Gap) -> None:
        match event:
            case Gap():
                self._unreadable(event, line)
            case events.RunStarted():
                for each in event.agents:
                    self._agent(each.name)
                self._task(event, event.task or [])
            case events.TurnStarted():
                self._task(event, event.task)
            case events.TurnFinished() if event.outcome != "completed":
                text = "The turn failed." if event.error is not None else "The turn was stopped."
                self._new("event", None, event, text=text, error=error_text(event.error)).outcome = event.outcome
            case events.ConversationReset():
                self._new("event", None, event, text="The conversation was started again.", reset=True)
            case events.RunResumed():
                notes = [f"Process {event.process.pid} on {event.process.host}"]
                self._new("resumed", None, event, text="The run was continued by another process.", notes=notes)
            case events.RunFinished():
                step = self._new("end", None, event, error=error_text(event.error), stop_reason=event.stop_reason)
                step.outcome, step.took_s = event.outcome, seconds(event.duration_s)
                self._change(step)
            case events.LogStopped():
                self._new("gap", None, event, text=f"The run went on without a log: {event.reason}")
            case events.QuestionAnswered():
                why = f": {event.reason}" if event.reason else ""
                self._new("event", None, event, text=f"It was {'approved' if event.approved else f'denied{why}'}.")
            case _:
                self._take_of_agent(event)

    def _take_of_agent(self, event: events.RunEvent) -> None:
        match event:
            case events.SessionRebuilt():
                self._new("event", event.agent, event, text=f"The session was rebuilt: {json_text(event.outcome)}")
            case events.QuestionAsked():
                what = f"call {event.tool}" if event.tool else "run its code"
                self._new("event", event.agent, event, text=f"Asked whether it may {what}.")
            case events.ModelCallStarted():
                agent = self._agent(event.agent)
                agent.generated = agent.ran = None
                step = self._new("model_call", agent.key, event, is_open=True, request=event.messages)
                agent.call = agent.calls[event.number] = step
            case events.ModelCallFinished():
                self._answered(event)
            case events.BlockStarted():
                agent = self._agent(event.agent)
                step = agent.blocks[event.number] = self._block(agent, event)
                step.is_open, step.process = True, self.totals.resumed
                self._change(step, code=[dict(each) for each in event.blocks])
            case events.BlockFinished():
                self._ended(event)
            case events.HostCallStarted() | events.HostCallFinished():
                self._host_call(event)
            case events.ChunkLogged():
                self._chunk(event.message)
            case events.MessageLogged():
                self._message(event, event.message)

    def _unreadable(self, gap: Gap, line: RawEvent | Gap) -> None:
        """Take an event that can't be read: the end of a call or a block ends it."""
        data = line.data if isinstance(line, RawEvent) else {}
        agent = self._agents.get(str(data.get("agent")))
        if agent is not None and data["type"] in ("model_call_finished", "block_finished"):
            steps = agent.calls if data["type"] == "model_call_finished" else agent.blocks
            if (step := steps.pop(data.get("number", 0), None)) is not None:
                step.is_open = False
                self._change(step, notes=[f"A part of this step can't be read: line {gap.line}: {gap.reason}"])
                return
        self.totals.gaps += isinstance(line, RawEvent)
        self._gap(gap)

    def _task(self, event: events.RunStarted | events.TurnStarted, task: list[Content]) -> None:
        ids = {str(each["id"]) for each in task if "id" in each}
        if not task or (ids and ids <= self._task_ids):
            return  # the first message of a conversation, which its first line has as well
        self._task_ids |= ids
        self._new("task", str(task[0].get("source", "user")), event, text=task_text(task))

    # Models

    def _answered(self, event: events.ModelCallFinished) -> None:
        agent, result = self._agent(event.agent), event.result or {}
        step = agent.calls.pop(event.number, None) or self._new("model_call", agent.key, event)
        step.is_open, step.took_s = False, seconds(event.duration_s)
        self.timing["model_s"] += step.took_s
        if event.error is not None:
            step.outcome, agent.call = "error", None
            self._change(step, error=error_text(event.error))
            return
        content, thought = result.get("content"), result.get("thought")
        known: Content = {
            "answer": content,
            "text": words(content),
            "usage": usage_of(result),
            "model_s": step.took_s,
        }
        if isinstance(thought, str) and thought.strip():
            known["thought"] = thought
        agent.call = step
        self._change(step, **known)

    def _chunk(self, message: Mapping[str, Any]) -> None:
        """Take a piece of what a model or a block is writing; all of it comes with its end."""
        agent, name = self._sender(message["source"]), "text"
        step = agent.call if agent.call is not None and agent.call.is_open else None
        if message.get("metadata", {}).get("chunk_of") == "execution":
            step, name = next(reversed(agent.blocks.values()), None), "output"
        if step is not None:
            text = self._unpacked(step).get(name, "") + message["content"]
            if len(text) > 2 * _LIVE_CHARS:
                text = _DROPPED + text[-_LIVE_CHARS:]
            self._change(step, **{name: text})

    # Messages

    def _message(self, event: events.MessageLogged, message: Mapping[str, Any]) -> None:
        if str(message.get("id")) in self._task_ids:
            return
        agent, kind, text = self._sender(message.get("source")), str(message.get("type")), words(message.get("content"))
        metadata = message["metadata"] if isinstance(message.get("metadata"), dict) else {}
        match kind:
            case "ThoughtEvent" if agent.call is not None:
                self._change(agent.call, thought=text)
            case "CodeGenerationEvent" if "replayed" in metadata:
                self._new("event", agent.key, event, text=text)
            case "CodeGenerationEvent" if "retry" in metadata:
                self._said(agent, "decision", event, text, retry=metadata["retry"] == "true")
            case "CodeGenerationEvent":
                self._generated(agent, event, text, metadata)
            case "CodeExecutionEvent":
                self._executed(agent, event, metadata)
            case "HandoffMessage":
                self._said(agent, "handoff", event, text, target=str(message.get("target")))
            case "ToolCallRequestEvent":
                agent.request = self._said(agent, "message", event, "")
            case "ToolCallExecutionEvent" if agent.request is not None:
                results = message["content"] if isinstance(message["content"], list) else []
                if "calls" not in self._unpacked(agent.request):
                    self._change(agent.request, calls=[model_call_parts(each) for each in results[:MAX_PARTS]])
            case _ if "exit_code" in metadata and agent.ran is not None:
                self._change(agent.ran, said=text)  # the block shows all of it
                agent.ran = None
            case _:
                notes = message_notes(metadata)
                self._said(agent, "event" if kind.endswith("Event") else "message", event, text, notes=notes)

    def _said(self, agent: _Agent, kind: str, event: events.MessageLogged, text: str, **content: Any) -> Step:
        """Make the call of a model the message that has come of it; or a new step of a message without one."""
        if agent.call is not None and not agent.call.is_open:
            step, agent.call = agent.call, None
        else:
            step = self._new(kind, agent.key, event)
        step.kind, agent.ran = kind, None
        return self._change(step, text=text, type=event.message.get("type"), **content)

    def _generated(self, agent: _Agent, event: events.MessageLogged, text: str, metadata: Mapping[str, Any]) -> None:
        found = event.message.get("code_blocks")
        blocks = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
        agent.code = [{"code": str(each.get("code")), "language": str(each.get("language"))} for each in blocks]
        runs = bool(agent.code) and not {"cut_off", "sent_back"} & set(metadata)
        if runs:
            text = words_beside_code(text, [each["code"] for each in agent.code])
        step = self._said(agent, "message", event, text, notes=message_notes(metadata))
        agent.generated = step if runs and not text else None
        if agent.generated is not None:
            self._block(agent, event)
            agent.generated = self._change(step, code=agent.code)

    def _block(self, agent: _Agent, event: events.Event) -> Step:
        """Return the step of code: the message that is nothing else, or a new one."""
        step, agent.generated = agent.generated or self._new("block", agent.key, event), None
        step.kind = "block"
        return step

    def _executed(self, agent: _Agent, event: events.MessageLogged, metadata: Mapping[str, Any]) -> None:
        if agent.ran is not None:
            agent.ran = None
            return
        # Code that was not approved never ran.
        found = event.message.get("result")
        result = found if isinstance(found, dict) else {}
        code = result["exit_code"] if isinstance(result.get("exit_code"), int) else None
        step = self._block(agent, event)
        step.outcome = str(metadata.get("outcome", "denied"))[:40]
        self._change(step, code=agent.code, exit_code=code, output=str(result.get("output", "")))

    # Code

    def _ended(self, event: events.BlockFinished) -> None:
        agent, result = self._agent(event.agent), event.result
        step = agent.blocks.pop(event.number, None) or self._new("block", agent.key, event)
        step.is_open, agent.ran, took, in_tools = False, step, seconds(event.duration_s), 0.0
        step.outcome = "error" if event.error is not None or result is None else result.outcome
        known: Content = {"error": error_text(event.error)}
        if result is not None:
            step.state = result.state
            parts = result_parts(result)
            known = {**parts, "error": parts["error"] or known["error"], "files": self._changed_files(result)}
            known["notes"] = [*self._unpacked(step).get("notes", ()), *parts["notes"]]
            in_tools = min(took, sum(seconds(each.duration_s) for each in result.tool_calls))
        known["block_s"] = took
        step.took_s += took
        self.timing["sandbox_s"] += took - in_tools
        self.timing["tools_s"] += in_tools
        self._change(step, **known)

    def _changed_files(self, result: ResultRecord) -> list[Content]:
        before, files = result.files_before, []
        for each in result.artifacts:
            known = self.files.pop(each.name, None)
            self.files[each.name] = each.file
            is_new = before is not None and each.name not in before
            content = each.model_dump(mode="json", exclude={"path"})
            files.append({**content, "before": known and known.model_dump(), "is_new": is_new})
        self._held += _FILE_BYTES * len(files)
        return files[:MAX_FILES]

    def _host_call(self, event: events.HostCallStarted | events.HostCallFinished) -> None:
        agent = self._agent(event.agent)
        step = agent.blocks.get(event.block) if event.block else agent.request
        if step is None:
            return
        calls = self._unpacked(step).setdefault("calls", [])
        if isinstance(event, events.HostCallStarted):
            record = CallRecord(name=event.name, arguments=event.arguments, outcome="cancelled")
            call, place = {**call_parts(record), "outcome": "running"}, len(calls)
        else:
            call = call_parts(event.record)
            running = [
                at for at, each in enumerate(calls) if (each["outcome"], each["name"]) == ("running", call["name"])
            ]
            place = running[0] if running else len(calls)
            if not event.block:  # those of a block are in its time
                step.took_s += call["duration_s"]
                self.timing["tools_s"] += call["duration_s"]
        if place < MAX_PARTS:
            calls[place : place + 1] = [call]
        self._change(step)
