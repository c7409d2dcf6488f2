"""A run as a trajectory in the Agent Trajectory Interchange Format (ATIF 1.7), for training and evaluation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TextIO

from autogen_codeact.runs import events
from autogen_codeact.runs.folder import MemoryLimit
from autogen_codeact.runs.notebook import MAX_CELL, to_json
from autogen_codeact.runs.reader import Gap, RawEvent, Run

SCHEMA = "ATIF-v1.7"
EXECUTE_CODE = "execute_code"
_TEXT = {"type": "string"}
_EXECUTE_CODE = {
    "type": "function",
    "function": {
        "name": EXECUTE_CODE,
        "description": "Run a block of code of the message in the sandbox.",
        "parameters": {"type": "object", "properties": {"language": _TEXT, "code": _TEXT}, "required": ["code"]},
    },
}
_RESET = "The user has started the conversation again."
_NO_RESULT = "[the log has no result]"

Step = dict[str, Any]


def export_atif(run: Run, file: TextIO) -> None:
    """Write a run as a trajectory of ATIF 1.7; see https://www.harborframework.com/docs/agents/trajectory-format.

    A run of one agent is one trajectory: what its model was told and wrote, and the code as calls of `execute_code`. A run of
    more agents is the conversation between them, with a trajectory of each agent in `subagent_trajectories`.

    Args:
        run: The run.
        file: Where to.

    Raises:
        RunError: The log can't be read.
    """
    agents = run.started.agents
    if len(agents) == 1:
        _write(run, file, _AgentSteps(run, agents[0]))
        return
    _write(run, file, _TeamSteps(run), agents)


class _Steps:
    """The steps of a trajectory; `all` makes them one by one, and then the numbers are known."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.count = self.gaps = self.prompt_tokens = self.completion_tokens = 0
        self.open: Step | None = None  # the last step of the agent, to which its code and their results are added

    def all(self) -> Iterator[Step]:
        """Return the steps."""
        for raw in self.run.raw_events():
            event = self.run.parse(replace(raw, budget=MemoryLimit(MAX_CELL))) if isinstance(raw, RawEvent) else raw
            if isinstance(event, Gap):
                self.gaps += not event.cut_off
            else:
                yield from self.take(event)
        yield from self.close()
        if not self.count:
            yield self.numbered({"source": "system", "message": "Nothing has happened in this run."})

    def take(self, event: Any) -> Iterator[Step]:
        """Return the steps that an event ends."""
        raise NotImplementedError

    def close(self) -> Iterator[Step]:
        """Return the last step of the agent, to which nothing can be added any more."""
        step, self.open = self.open, None
        if step is not None:
            yield self.numbered(step)

    def numbered(self, step: Step) -> Step:
        """Return a step with its number."""
        self.count += 1
        return {"step_id": self.count, **step}

    def head(self) -> dict[str, Any]:
        """Return what the trajectory says before its steps."""
        started = self.run.started
        agent = {"name": "autogen-codeact", "version": started.process.versions.get("autogen-codeact", "unknown")}
        return {"schema_version": SCHEMA, "session_id": started.run, "trajectory_id": started.run, "agent": agent}


class _AgentSteps(_Steps):
    """What the model of one agent was told and wrote, and its code."""

    def __init__(self, run: Run, info: events.AgentInfo) -> None:
        super().__init__(run)
        self.info = info
        self._unread: dict[str, Any] | None = None  # the result of code that the model has not read yet

    def head(self) -> dict[str, Any]:
        head = super().head()
        extra = {"name": self.info.name, "kind": self.info.kind, "host_tools": self.info.tools}
        head["agent"] |= {"tool_definitions": [_EXECUTE_CODE], "extra": extra}
        if self.info.model is not None:
            head["agent"]["model_name"] = self.info.model
        return head

    def take(self, event: Any) -> Iterator[Step]:
        if isinstance(event, events.ConversationReset):
            yield from self.close()
            yield self.numbered({"source": "system", "timestamp": _time(event), "message": _RESET})
        elif getattr(event, "agent", None) == self.info.name:
            match event:
                case events.ModelCallStarted():
                    yield from self._told(event)
                case events.ModelCallFinished(result=dict()):
                    yield from self.close()
                    self.open, self._unread = self._written(event, event.result or {}), None
                case events.BlockStarted():
                    yield from self._ran(event)
                case events.BlockFinished():
                    self._ended(event)

    def _told(self, event: events.ModelCallStarted) -> Iterator[Step]:
        """Take what is new in a request: all of the first one, then what comes after the last answer."""
        messages = event.messages
        answers = [at for at, each in enumerate(messages) if each.get("type") == "AssistantMessage"]
        for message in messages[answers[-1] + 1 :] if answers and self.count else messages:
            kind, content = message.get("type"), message.get("content")
            if kind == "FunctionExecutionResultMessage":
                self._observe([_result(each.get("call_id"), _text(each.get("content"))) for each in _objects(content)])
            elif kind == "UserMessage" and message.get("source") == self.info.name and self._observes(_text(content)):
                continue
            else:
                yield from self.close()
                source = {"UserMessage": "user", "AssistantMessage": "agent"}.get(str(kind), "system")
                if source == "user" and message.get("source") == self.info.name:
                    source = "system"  # the agent tells its model something that no user has said
                step: Step = {"source": source, "timestamp": _time(event), "message": _text(content)}
                yield self.numbered({**step, "is_copied_context": True} if source == "agent" else step)

    def _observes(self, text: str) -> bool:
        """Let the result of the last code be what the model has read of it; return whether there is such a result."""
        unread, self._unread = self._unread, None
        if unread is not None:
            unread["content"] = text
        return unread is not None

    def _written(self, event: events.ModelCallFinished, result: Mapping[str, Any]) -> Step:
        content, usage = result.get("content"), result.get("usage")
        step: Step = {"source": "agent", "timestamp": _time(event), "message": "", "llm_call_count": 1}
        if isinstance(content, str):
            step["message"] = content
        elif calls := _objects(content):
            step["tool_calls"] = [_call(each) for each in calls]
        if isinstance(result.get("thought"), str):
            step["reasoning_content"] = result["thought"]
        if isinstance(usage, dict):
            counts = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
            read, wrote = (count if type(count) is int and count >= 0 else 0 for count in counts)
            step["metrics"] = {"prompt_tokens": read, "completion_tokens": wrote}
            self.prompt_tokens += read
            self.completion_tokens += wrote
        return {**step, "extra": {"duration_s": event.duration_s}}

    def _ran(self, event: events.BlockStarted) -> Iterator[Step]:
        if self.open is None or "observation" in self.open:  # code that no answer of this agent's model contains
            yield from self.close()
            self.open = {"source": "agent", "timestamp": _time(event), "message": "", "llm_call_count": 0}
        calls = [
            {
                "tool_call_id": f"{event.number}.{at}",
                "function_name": EXECUTE_CODE,
                "arguments": {"language": block.language, "code": block.code},
            }
            for at, block in enumerate(event.blocks, 1)
        ]
        self.open["tool_calls"] = [*self.open.get("tool_calls", ()), *calls]

    def _ended(self, event: events.BlockFinished) -> None:
        calls = self.open.get("tool_calls", ()) if self.open is not None else ()
        ran = [each["tool_call_id"] for each in calls if each["tool_call_id"].startswith(f"{event.number}.")]
        if not ran:
            return
        result, extra = event.result, dict[str, Any](duration_s=event.duration_s)
        if result is not None:
            extra |= {"exit_code": result.exit_code, "outcome": result.outcome}
            fields = {"name", "arguments", "outcome", "result"}
            extra["host_calls"] = [call.model_dump(mode="json", include=fields) for call in result.tool_calls or ()]
        error = f"{event.error.type}: {event.error.message}" if event.error is not None else _NO_RESULT
        self._unread = _result(ran[-1], result.output if result is not None else error) | {"extra": extra}
        self._observe([self._unread])

    def _observe(self, results: Sequence[dict[str, Any]]) -> None:
        if self.open is not None:
            known = {each["tool_call_id"] for each in self.open.get("tool_calls", ())}
            before = self.open.get("observation", {}).get("results", [])
            new = [each for each in results if each["source_call_id"] in known]
            self.open["observation"] = {"results": [*before, *new]}


class _TeamSteps(_Steps):
    """The messages that agents send each other."""

    def head(self) -> dict[str, Any]:
        head = super().head()
        head["agent"]["extra"] = {"name": self.run.started.name, "kind": self.run.started.kind}
        return head

    def take(self, event: Any) -> Iterator[Step]:
        if isinstance(event, events.ConversationReset):
            yield self.numbered({"source": "system", "timestamp": _time(event), "message": _RESET})
        if not isinstance(event, events.MessageLogged) or str(event.message.get("type")).endswith("Event"):
            return
        source, text = str(event.message.get("source")), _text(event.message.get("content"))
        step: Step = {"source": "user", "timestamp": _time(event), "message": text}
        if source != "user":
            step |= {"source": "agent", "llm_call_count": 0, "extra": {"agent": source}}
            names = [each.name for each in self.run.started.agents]
            refs = [{"trajectory_id": each} for each in names if each == source or each.endswith(f"/{source}")]
            step |= {"observation": {"results": [{"subagent_trajectory_ref": refs}]}} if refs else {}
        yield self.numbered(step)


def _write(run: Run, file: TextIO, steps: _Steps, agents: Sequence[events.AgentInfo] = (), **head: Any) -> None:
    """Write a trajectory step by step, so that a long one takes little memory."""
    file.write(to_json({**steps.head(), **head})[:-1] + ', "steps": [')
    for number, step in enumerate(steps.all()):
        file.write(f"{',' if number else ''}\n{to_json(step)}")
    file.write("\n]")
    inner = [_AgentSteps(run, info) for info in agents]
    for number, each in enumerate(inner):
        file.write(",\n" if number else ', "subagent_trajectories": [\n')
        _write(run, file, each, trajectory_id=each.info.name)
    read, wrote = (
        sum(getattr(each, name) for each in (steps, *inner)) for name in ("prompt_tokens", "completion_tokens")
    )
    metrics = {"total_prompt_tokens": read, "total_completion_tokens": wrote, "total_steps": steps.count}
    file.write(f'{"]" if inner else ""}, "final_metrics": {to_json(metrics)}')
    if steps.gaps:
        file.write(f', "notes": "Parts of the log that can not be read: {steps.gaps}."')
    file.write("}\n")


def _time(event: Any) -> str:
    return str(event.time.isoformat())


def _result(call: Any, text: str) -> dict[str, Any]:
    return {"source_call_id": str(call), "content": text}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    raw = call.get("arguments")
    try:
        arguments = json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError):
        arguments = None
    named = {"tool_call_id": str(call.get("id")), "function_name": str(call.get("name"))}
    return {**named, "arguments": arguments if isinstance(arguments, dict) else {"arguments": raw}}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    return "\n".join(
        each if isinstance(each, str) else "[image]" if isinstance(each, dict) and "data" in each else to_json(each)
        for each in parts
    )


def _objects(content: Any) -> list[dict[str, Any]]:
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
