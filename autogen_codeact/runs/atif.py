"""A run as a trajectory in the Agent Trajectory Interchange Format (ATIF 1.7), for training and evaluation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from autogen_codeact.runs.events import AgentInfo
from autogen_codeact.runs.notebook import to_json
from autogen_codeact.runs.reader import Run
from autogen_codeact.runs.step_list import Step
from autogen_codeact.runs.step_parts import Content
from autogen_codeact.runs.view import RunView

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
_NOTHING = "Nothing has happened in this run."
_SOURCES = {"UserMessage": "user", "AssistantMessage": "agent"}

Item = dict[str, Any]
"""A step of a trajectory."""


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
    view = RunView(run).read_all()
    started, totals = run.started, view.totals
    if len(started.agents) == 1:
        (info,) = started.agents
        count = _write(run, file, _AgentItems(view, info).all(), started.run, _described(info))
    else:
        extra = {"name": started.name, "kind": started.kind}
        count = _write(run, file, _team_items(view), started.run, {"extra": extra})
        for number, info in enumerate(started.agents):
            file.write(",\n" if number else ', "subagent_trajectories": [\n')
            _write(run, file, _AgentItems(view, info).all(), info.name, _described(info))
            file.write("}")
        file.write("]" if started.agents else "")
    metrics = {
        "total_prompt_tokens": totals.prompt_tokens,
        "total_completion_tokens": totals.completion_tokens,
        "total_steps": count,
    }
    file.write(f', "final_metrics": {to_json(metrics)}')
    if totals.gaps:
        file.write(f', "notes": "Parts of the log that can not be read: {totals.gaps}."')
    file.write("}\n")


def _described(info: AgentInfo) -> dict[str, Any]:
    agent: dict[str, Any] = {
        "tool_definitions": [_EXECUTE_CODE],
        "extra": {"name": info.name, "kind": info.kind, "host_tools": info.tools},
    }
    return agent if info.model is None else {**agent, "model_name": info.model}


def _write(run: Run, file: TextIO, items: Iterable[Item], name: str, agent: dict[str, Any]) -> int:
    """Write a trajectory without its end, step by step, so that a long one takes little memory; return its steps."""
    version = run.started.process.versions.get("autogen-codeact", "unknown")
    head = {
        "schema_version": SCHEMA,
        "session_id": run.started.run,
        "trajectory_id": name,
        "agent": {"name": "autogen-codeact", "version": version, **agent},
    }
    file.write(to_json(head)[:-1] + ', "steps": [')
    count = 0
    for item in items:
        file.write(f"{',' if count else ''}\n{to_json({'step_id': count + 1, **item})}")
        count += 1
    if not count:
        file.write(to_json({"step_id": 1, "source": "system", "message": _NOTHING}))
    file.write("\n]")
    return max(count, 1)


def _team_items(view: RunView) -> Iterator[Item]:
    """Return the messages that agents send each other."""
    names = {each.name for each in view.run.started.agents}
    for step in view.steps:
        content = view.content(step)
        item: Item = {"source": "user", "timestamp": step.time, "message": content.get("said", content.get("text", ""))}
        if content.get("reset"):
            yield {**item, "source": "system", "message": _RESET}
        elif step.kind == "task":
            yield item
        elif "said" in content or str(content.get("type")).endswith("Message"):
            item |= {"source": "agent", "llm_call_count": 0, "extra": {"agent": step.agent}}
            refs = [{"trajectory_id": step.agent}] if step.agent in names else []
            yield item | ({"observation": {"results": [{"subagent_trajectory_ref": refs}]}} if refs else {})


class _AgentItems:
    """What the model of one agent was told and wrote, and its code."""

    def __init__(self, view: RunView, info: AgentInfo) -> None:
        self._view = view
        self._name = info.name
        self._is_first = True
        self._open: Item | None = None  # the last item of the agent, to which its code and their results are added
        self._unread: dict[str, Any] | None = None  # the result of code that the model has not read yet

    def all(self) -> Iterator[Item]:
        """Return the steps."""
        for step in self._view.steps:
            content = self._view.content(step)
            if content.get("reset"):
                yield from self._closed()
                yield {"source": "system", "timestamp": step.time, "message": _RESET}
            elif step.agent == self._name:
                yield from self._told(step, content.get("request", []))
                if "answer" in content:
                    yield from self._closed()
                    self._open, self._unread = _written(step, content), None
                if "code" in content:
                    yield from self._ran(step, content)
        yield from self._closed()

    def _closed(self) -> Iterator[Item]:
        """Return the last item of the agent, to which nothing can be added any more."""
        item, self._open = self._open, None
        if item is not None:
            self._is_first = False
            yield item

    def _told(self, step: Step, messages: list[Content]) -> Iterator[Item]:
        """Take what is new in a request: all of the first one, then what comes after the last answer."""
        answers = [at for at, each in enumerate(messages) if each.get("type") == "AssistantMessage"]
        for message in messages[answers[-1] + 1 :] if answers and not self._is_first else messages:
            kind, content = str(message.get("type")), message.get("content")
            own = kind == "UserMessage" and message.get("source") == self._name  # no user has said this
            if kind == "FunctionExecutionResultMessage":
                self._observe([_result(each.get("call_id"), _text(each.get("content"))) for each in _objects(content)])
            elif own and self._unread is not None:
                # What the model has read of the result of the last code.
                self._unread["content"], self._unread = _text(content), None
            else:
                yield from self._closed()
                source = "system" if own else _SOURCES.get(kind, "system")
                item: Item = {"source": source, "timestamp": step.time, "message": _text(content)}
                self._is_first = False
                yield {**item, "is_copied_context": True} if source == "agent" else item

    def _ran(self, step: Step, content: Content) -> Iterator[Item]:
        if self._open is None or "observation" in self._open:  # code that no answer of this agent's model contains
            yield from self._closed()
            self._open = {"source": "agent", "timestamp": step.time, "message": "", "llm_call_count": 0}
        calls = [
            {"tool_call_id": f"{step.number}.{at}", "function_name": EXECUTE_CODE, "arguments": block}
            for at, block in enumerate(content["code"], 1)
        ]
        self._open["tool_calls"] = [*self._open.get("tool_calls", ()), *calls]
        if step.is_open or not calls:
            return
        extra: dict[str, Any] = {"duration_s": content.get("block_s", 0.0), "outcome": step.outcome}
        if content.get("exit_code") is not None:
            extra["exit_code"] = content["exit_code"]
            extra["host_calls"] = [_host_call(each) for each in content.get("calls", ())]
        text = content.get("output") or content.get("error") or _NO_RESULT
        self._unread = _result(calls[-1]["tool_call_id"], text) | {"extra": extra}
        self._observe([self._unread])

    def _observe(self, results: list[dict[str, Any]]) -> None:
        if self._open is not None:
            known = {each["tool_call_id"] for each in self._open.get("tool_calls", ())}
            before = self._open.get("observation", {}).get("results", [])
            new = [each for each in results if each["source_call_id"] in known]
            self._open["observation"] = {"results": [*before, *new]}


def _written(step: Step, content: Content) -> Item:
    answer, calls = content["answer"], _objects(content["answer"])
    item: Item = {
        "source": "agent",
        "timestamp": step.time,
        "message": answer if isinstance(answer, str) else "",
        "llm_call_count": 1,
        "extra": {"duration_s": content["model_s"]},
    }
    if calls:
        item["tool_calls"] = [_call(each) for each in calls]
    if content.get("thought"):
        item["reasoning_content"] = content["thought"]
    if content["usage"] is not None:
        item["metrics"] = content["usage"]
    return item


def _result(call: Any, text: str) -> dict[str, Any]:
    return {"source_call_id": str(call), "content": text}


def _call(call: Content) -> dict[str, Any]:
    raw = call.get("arguments")
    arguments = _parsed(raw)
    named = {"tool_call_id": str(call.get("id")), "function_name": str(call.get("name"))}
    return {**named, "arguments": arguments if isinstance(arguments, dict) else {"arguments": raw}}


def _host_call(call: Content) -> dict[str, Any]:
    arguments = {name: _parsed(text) for name, text in call["arguments"].items()}
    return {"name": call["name"], "arguments": arguments, "outcome": call["outcome"], "result": _parsed(call["result"])}


def _parsed(text: Any) -> Any:
    """Return the value of a JSON text; other text, such as one that was shortened, as it is."""
    try:
        return json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return text


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
