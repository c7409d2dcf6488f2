"""Assigns the events of a log to steps while they are read; the full content is read again when a step is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autogen_codeact.runs.reader import Gap, RawEvent
from autogen_codeact.runs.summary import RunClock, task_text
from autogen_codeact.viewer.entries import LiveText, Place, StepEntry
from autogen_codeact.viewer.schema import Document
from autogen_codeact.viewer.text import count, seconds, title

MALFORMED = (TypeError, ValueError, AttributeError, LookupError, RecursionError, ArithmeticError)
"""What is raised over events whose fields are not what they should be; it costs the event, never the run."""
MAX_READ = 128 * 1024 * 1024
"""Bytes of a log that are read: what is kept of a line is no larger than the line."""
_LINE_BYTES, _STEP_BYTES = 200, 1_200
"""Bytes that a line and a step take beside their text."""
_MAX_ANSWER = 8_000
_VALUES = {"rebuild": "The session was rebuilt."}
_FENCES = ("```", "~~~", "<")
_ROOM_OF_FENCES = 30


@dataclass
class _Agent:
    """The present state of an agent, according to the log."""

    key: str
    calls: dict[int, StepEntry] = field(default_factory=dict)  # calls of its model without an answer, by their numbers
    call: StepEntry | None = None  # a call of its model whose answer has not become a message yet
    generated: StepEntry | None = None  # a message of code alone, that becomes a block
    code: StepEntry | None = None  # its last message with code
    ran: StepEntry | None = None  # a block that has ended and whose event is still to come
    request: StepEntry | None = None  # a message with calls of the model
    request_has_calls: bool = False
    blocks: dict[int, StepEntry] = field(default_factory=dict)
    files: dict[str, Any] = field(default_factory=dict)


class StepIndex:
    """The index of the steps of a log."""

    def __init__(self) -> None:
        self.entries: list[StepEntry] = []
        self.revision = 0
        """Number of changes of steps."""
        self._read = 0
        self.is_full = False
        self.finished: dict[str, Any] | None = None
        self.resumed = self.gaps = self.blocks = self.model_calls = self.prompt_tokens = self.completion_tokens = 0
        self.clock = RunClock()
        self.timing: Document = {"model_s": 0.0, "sandbox_s": 0.0, "tools_s": 0.0}
        self._agents: dict[str, _Agent] = {}
        self._by_source: dict[str, list[str]] = {}
        self._task_ids: set[str] = set()

    def is_running(self, entry: StepEntry) -> bool:
        """Return whether a step goes on if the run does."""
        return entry.is_open and self.finished is None and entry.process == self.resumed

    def touch(self, entry: StepEntry) -> None:
        """Note that a step has changed."""
        self.revision += 1
        entry.revision = self.revision

    def add(self, line: RawEvent | Gap) -> None:
        """Add the next line of the log."""
        if self.is_full:
            return
        self._read += _LINE_BYTES + (len(line.text) if isinstance(line, RawEvent) else 0)
        if self._read > MAX_READ:
            self.is_full = True
            self._add_gap(f"the run has more than {len(self.entries):,} steps; the others are not shown", 0)
            return
        if isinstance(line, Gap):
            self.gaps += not line.cut_off
            self._add_gap(line.reason, line.lines)
            return
        try:
            self.clock.see(line.name, line.data.get("monotonic"))
            getattr(self, f"_on_{line.name}", self._unknown)(line)
        except MALFORMED:
            self.gaps += 1
            self._add_gap(f"this is not an event of type {title(line.name)}", 1)

    # Steps

    def _new(self, kind: str, agent: str | None, line: RawEvent | None, *, is_open: bool = False) -> StepEntry:
        time = line.data.get("time") if line is not None else None
        shown = time if isinstance(time, str) and len(time) <= 40 else (self.entries[-1].time if self.entries else "")
        entry = StepEntry(len(self.entries) + 1, kind, agent, shown, self.resumed, is_open)
        self.entries.append(entry)
        self._read += _STEP_BYTES
        if line is not None:
            self._extend(entry, line)
        return entry

    def _extend(self, entry: StepEntry, line: RawEvent) -> StepEntry:
        entry.places.append(Place(line.line, line.end - len(line.text) - 1, len(line.text)))
        self.touch(entry)
        return entry

    def _add_gap(self, reason: str, lines: int) -> None:
        last = self.entries[-1] if self.entries else None
        if last is not None and last.kind == "gap" and last.gap_lines:
            last.gap_lines += lines
        else:
            last = self._new("gap", None, None)
            last.gap_lines = lines
            last.set_title(reason)
        self.touch(last)

    def _agent(self, key: object) -> _Agent:
        if not isinstance(key, str):
            raise TypeError("an agent's name is text")
        if key not in self._agents:
            self._agents[key] = _Agent(key)
            name = key.rpartition("/")[2].partition("#")[0]
            self._by_source.setdefault(name, []).append(key)
        return self._agents[key]

    def _sender(self, source: object) -> _Agent:
        """Return the agent that has sent a message: its name in the log can have that of its team before it."""
        keys = self._by_source.get(source, []) if isinstance(source, str) else []
        agents = [self._agents[key] for key in keys]
        busy = [each for each in agents if each.call or each.generated or each.blocks or each.ran]
        return next(iter(busy or agents), None) or self._agent(source)

    # Events

    def _on_run_started(self, line: RawEvent) -> None:
        task = line.data.get("task") or []
        self._task_ids = {str(each["id"]) for each in task if "id" in each}
        for each in line.data.get("agents", []):
            self._agent(each["name"])
        if not self.entries and task:
            entry = self._new("task", str(task[0].get("source", "user")), line)
            entry.set_title(task_text(task))

    def _on_turn_started(self, line: RawEvent) -> None:
        task = line.data["task"]
        ids = {str(each["id"]) for each in task if "id" in each}
        if ids and ids <= self._task_ids and self.entries and self.entries[-1].kind == "task":
            return  # the first message of a conversation, which its first line has as well
        self._task_ids |= ids
        entry = self._new("task", str(task[0].get("source", "user")) if task else None, line)
        entry.set_title(task_text(task))

    def _on_turn_finished(self, line: RawEvent) -> None:
        if line.data["outcome"] != "completed":
            entry = self._new("event", None, line)
            entry.outcome = str(line.data["outcome"])[:40]
            entry.set_title("The turn failed." if line.data.get("error") else "The turn was stopped.")

    def _on_conversation_reset(self, line: RawEvent) -> None:
        self._new("event", None, line).set_title("The conversation was started again.")

    def _on_run_resumed(self, line: RawEvent) -> None:
        self.resumed += 1
        self.finished = None
        self._new("resumed", None, line).set_title("The run was continued by another process.")

    def _on_run_finished(self, line: RawEvent) -> None:
        self.finished = line.data
        entry = self._new("end", None, line)
        entry.outcome = str(line.data["outcome"])[:40]
        error = line.data.get("error")
        entry.set_title(
            f"{error['type']}: {error['message']}" if error else line.data.get("stop_reason") or entry.outcome
        )

    def _on_log_stopped(self, line: RawEvent) -> None:
        self._new("gap", None, line).set_title(f"The run went on without a log: {line.data['reason']}")
        self.gaps += 1

    def _on_value(self, line: RawEvent) -> None:
        if (title := _VALUES.get(line.data["kind"])) is not None:
            self._new("event", str(line.data["agent"]), line).set_title(title)

    def _on_question_asked(self, line: RawEvent) -> None:
        what = f"call {line.data['tool']}" if line.data.get("tool") else "run its code"
        self._new("event", str(line.data["agent"]), line).set_title(f"Asked whether it may {what}.")

    def _on_question_answered(self, line: RawEvent) -> None:
        why = f": {line.data['reason']}" if line.data.get("reason") else ""
        how = "approved" if line.data["approved"] else f"denied{why}"
        self._new("event", None, line).set_title(f"It was {how}.")

    def _on_boundary(self, line: RawEvent) -> None:
        pass  # a place to resume from, which is no step

    def _unknown(self, line: RawEvent) -> None:
        self._new("event", None, line).set_title(f"An event of a type that this version does not know: {line.name}")

    def _on_model_call_started(self, line: RawEvent) -> None:
        agent = self._agent(line.data["agent"])
        agent.generated = agent.ran = None
        agent.call = agent.calls[int(line.data["number"])] = self._new("model_call", agent.key, line, is_open=True)
        agent.call.title = "The model is asked"

    def _on_model_call_finished(self, line: RawEvent) -> None:
        agent = self._agent(line.data["agent"])
        entry = agent.calls.pop(int(line.data["number"]), None)
        entry = self._extend(entry, line) if entry is not None else self._new("model_call", agent.key, line)
        entry.is_open, entry.live = False, None
        entry.took_s = seconds(line.data.get("duration_s"))
        self.timing["model_s"] += entry.took_s
        error, result = line.data.get("error"), line.data.get("result")
        if error is not None:
            entry.outcome = "error"
            entry.set_title(f"{error['type']}: {error['message']}")
            agent.call = None
            return
        self.model_calls += 1
        agent.call = entry
        content = self._take_answer(entry, result)
        if reason := _reason_of_decision(content):
            entry.kind, entry.answer = "decision", content
            entry.set_title(reason)

    def _take_answer(self, entry: StepEntry, result: Any) -> str | None:
        if not isinstance(result, dict):
            return None
        usage = result.get("usage")
        if isinstance(usage, dict):
            read, written = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
            entry.usage = {"prompt_tokens": read, "completion_tokens": written}
            self.prompt_tokens += read
            self.completion_tokens += written
        content = result.get("content")
        entry.set_title(content, markdown=True)
        return content if isinstance(content, str) and len(content) <= _MAX_ANSWER else None

    def _on_block_started(self, line: RawEvent) -> None:
        agent = self._agent(line.data["agent"])
        entry, agent.generated = agent.generated, None
        entry = self._extend(entry, line) if entry is not None else self._new("block", agent.key, line)
        entry.kind, entry.is_open, entry.process = "block", True, self.resumed
        entry.set_title("\n".join(str(each["code"]) for each in line.data["blocks"] if each.get("code")))
        agent.blocks[int(line.data["number"])] = entry
        self.blocks += 1

    def _on_block_finished(self, line: RawEvent) -> None:
        agent = self._agent(line.data["agent"])
        entry = agent.blocks.pop(int(line.data["number"]), None) or self._new("block", agent.key, None)
        self._extend(entry, line)
        entry.is_open, agent.ran = False, entry
        result, error = line.data.get("result"), line.data.get("error")
        duration, in_tools = seconds(line.data.get("duration_s")), 0.0
        if result is not None:
            entry.live = None
            in_tools = min(duration, sum(seconds(each.get("duration_s")) for each in result.get("tool_calls") or []))
            entry.outcome, entry.state = str(result["outcome"])[:40], _state(result.get("state"))
            self._follow_files(agent, entry, result)
        if error is not None:
            entry.outcome = "error"
        entry.took_s += duration
        self.timing["sandbox_s"] += duration - in_tools
        self.timing["tools_s"] += in_tools

    def _follow_files(self, agent: _Agent, entry: StepEntry, result: Mapping[str, Any]) -> None:
        artifacts = {str(each["name"]): each for each in result.get("artifacts") or ()}
        entry.known_files = {name: agent.files[name] for name in artifacts if name in agent.files}
        agent.files |= {name: each.get("file") for name, each in artifacts.items()}

    def _on_host_call_started(self, line: RawEvent) -> None:
        agent = self._agent(line.data["agent"])
        number = line.data["block"]
        entry = agent.request if number == 0 else agent.blocks.get(number)
        if entry is None:
            return
        self._extend(entry, line)
        if number == 0:  # a call of the model itself; those of a block are in its time
            agent.request_has_calls = True
            if line.name == "host_call_finished":
                took = seconds(line.data["record"].get("duration_s"))
                entry.took_s += took
                self.timing["tools_s"] += took

    _on_host_call_finished = _on_host_call_started

    def _on_chunk(self, line: RawEvent) -> None:
        message = line.data["message"]
        text, agent = message["content"], self._sender(message["source"])
        if not isinstance(text, str):
            return
        if message.get("metadata", {}).get("chunk_of") == "execution":
            entry = next(reversed(agent.blocks.values()), None)
        else:
            entry = agent.call if agent.call is not None and agent.call.is_open else None
        if entry is not None:
            entry.live = entry.live or LiveText()
            entry.live.add(text)
            self.touch(entry)

    # Messages

    def _on_message(self, line: RawEvent) -> None:
        message = line.data["message"]
        kind, metadata = str(message["type"]), message.get("metadata") or {}
        if str(message.get("id")) in self._task_ids:
            return
        agent = self._sender(message.get("source") or "")
        match kind:
            case "ThoughtEvent" if agent.call is not None:
                self._extend(agent.call, line)
            case "CodeGenerationEvent" if "replayed" in metadata:
                self._new("event", agent.key, line).set_title(message["content"])
            case "CodeGenerationEvent" if "retry" in metadata:
                self._answered(agent, "decision", line, message)
            case "CodeGenerationEvent":
                self._code_generated(agent, line, message)
            case "CodeExecutionEvent":
                self._code_executed(agent, line, metadata)
            case "HandoffMessage":
                self._answered(agent, "handoff", line, message)
            case "ToolCallRequestEvent":
                agent.request = self._answered(agent, "message", line, message)
                agent.request_has_calls = False
            case "ToolCallExecutionEvent" if agent.request is not None:
                if not agent.request_has_calls:
                    self._extend(agent.request, line)
            case _ if "exit_code" in metadata and agent.ran is not None:
                agent.ran = None  # the block shows all of it
            case _:
                self._answered(agent, "message" if kind.endswith("Message") else "event", line, message)

    def _answered(self, agent: _Agent, kind: str, line: RawEvent, message: Mapping[str, Any]) -> StepEntry:
        """Make the call of a model the message that has come of it; or a new step of a message without one."""
        entry, content = agent.call, message.get("content")
        repeats = entry is not None and entry.answer in (None, content)
        if entry is not None and not entry.is_open and (repeats or kind == "decision"):
            agent.call = None
            self._extend(entry, line)
            entry.kind = kind
            entry.answer = None
        else:
            entry = self._new(kind, agent.key, line)
        if kind != "decision" or not entry.title:
            words = content.partition("```")[0] if isinstance(content, str) else None
            entry.set_title(words or content if isinstance(content, str) else message.get("type"), markdown=True)
        agent.ran = None
        return entry

    def _code_generated(self, agent: _Agent, line: RawEvent, message: Mapping[str, Any]) -> None:
        entry = self._answered(agent, "message", line, message)
        metadata = message.get("metadata") or {}
        codes = [each["code"].strip() for each in message.get("code_blocks") or ()]
        agent.code, agent.generated = entry, None
        content = message.get("content")
        if codes and isinstance(content, str) and not {"cut_off", "sent_back"} & set(metadata):
            text = content.strip()
            room = len(text) - sum(map(len, codes))
            if text.startswith(_FENCES) and room <= _ROOM_OF_FENCES * len(codes):
                agent.generated = entry

    def _code_executed(self, agent: _Agent, line: RawEvent, metadata: Mapping[str, Any]) -> None:
        if agent.ran is not None:
            agent.ran = None
            return
        # Code that was not approved never ran.
        entry, agent.generated = agent.generated, None
        if entry is None:
            entry = self._new("block", agent.key, None)
            entry.places += agent.code.places if agent.code is not None else []
        self._extend(entry, line)
        entry.kind, entry.outcome = "block", str(metadata.get("outcome", "denied"))[:40]


def _reason_of_decision(content: str | None) -> str | None:
    """Return the reason in the JSON with which a model decides about another attempt, or None if it is something else."""
    if content is None or not content.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.keys() != {"reason", "retry"} or not isinstance(found["reason"], str):
        return None
    return found["reason"] if isinstance(found["retry"], bool) else None


def _state(state: object) -> str | None:
    return state if state in ("kept", "restored", "lost") else None
