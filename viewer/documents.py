"""Makes the document of a step of its events, which are read from the log again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from autogen_codeact.runs.errors import RunFileError
from autogen_codeact.runs.events import (
    BlockFinished,
    BlockStarted,
    HostCallFinished,
    HostCallStarted,
    MessageLogged,
    ModelCallFinished,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    TurnFinished,
    TurnStarted,
    ValueLogged,
)
from autogen_codeact.runs.notebook import words_beside_code
from autogen_codeact.runs.reader import Gap, Run, UnknownEvent
from autogen_codeact.runs.results import CallRecord, DisplayRecord, ResultRecord
from autogen_codeact.runs.summary import task_text
from autogen_codeact.viewer.entries import StepEntry
from autogen_codeact.viewer.file_changes import MAX_FILES, changed_files, reference
from autogen_codeact.viewer.indexing import MALFORMED
from autogen_codeact.viewer.schema import Document
from autogen_codeact.viewer.text import (
    bounded,
    count,
    json_text,
    output_text,
    seconds,
    shortened,
    visible,
)
from codeact_sandbox.highlight import pieces
from codeact_sandbox.types.displays import is_json
from codeact_sandbox.types.result import ErrorInfo, last_line

TEXT_CHARS = 200_000
CODE_CHARS = 200_000
OUTPUT_CHARS = 40_000
DISPLAY_CHARS = 1_000_000
MAX_PARTS = 100
"""Displays, calls and connections of a block that its document has."""

_ALWAYS = ("number", "kind", "agent", "time", "duration_s", "running", "usage", "text")
Event = RunEvent | UnknownEvent | Gap


def document(
    run: Run, entry: StepEntry, events: Sequence[Event], *, running: bool, highlighted: bool = True
) -> Document:
    """Return the document of a step."""
    step: Document = {
        "number": entry.number,
        "kind": entry.kind,
        "agent": visible(entry.agent[:200]) if entry.agent is not None else None,
        "time": visible(entry.time),
        "duration_s": round(entry.took_s, 6),
        "running": running,
        "usage": entry.usage,
    }
    try:
        _fill(run, entry, step, events, running=running)
    except MALFORMED as error:
        # Of a log that nobody of ours has written; the other steps can be shown.
        step = {**step, "kind": "gap", "text": f"This step can't be shown: {bounded(str(error), 300)}"}
        return {name: step[name] for name in _ALWAYS}
    if highlighted and step.get("code"):
        spans = pieces(step["code"], step["language"])
        step["spans"] = [[kind, text] for kind, text in spans] if any(kind for kind, _ in spans) else None
    return step


def _fill(run: Run, entry: StepEntry, step: Document, events: Sequence[Event], *, running: bool) -> None:
    if entry.kind in ("event", "gap", "resumed"):
        step["text"] = entry.title
    if entry.gap_lines > 1:
        step["notes"] = [f"{entry.gap_lines:,} lines"]
    if bad := next((each for each in events if isinstance(each, Gap)), None):
        step["notes"] = [f"A part of this step can't be read: line {bad.line}: {bad.reason}"]
    for event in events:
        if not isinstance(event, Gap):
            _take(run, entry, step, event)
    if entry.kind == "block":
        _complete_block(entry, step, running=running)
    elif entry.live is not None:
        step["text"], step["text_bytes"] = shortened(str(entry.live), TEXT_CHARS)


def whole_output(entry: StepEntry, events: Sequence[Event]) -> str:
    """Return the whole output of a block, or the whole text of another step."""
    for event in reversed(events):
        match event:
            case BlockFinished() if event.result is not None:
                return _written(event.result)
            case MessageLogged() if entry.kind == "block":
                result = event.message.get("result")
                if isinstance(result, dict):
                    return str(result.get("output", ""))
            case _ if entry.live is not None or entry.kind == "block":
                pass  # what is known of it is in `live`
            case MessageLogged() if isinstance(event.message.get("content"), str):
                return str(event.message["content"])
            case RunStarted() | TurnStarted():
                return task_text(event.task or ())
            case ModelCallFinished() if event.result is not None and isinstance(event.result.get("content"), str):
                return str(event.result["content"])
    return str(entry.live or "")


def _take(run: Run, entry: StepEntry, step: Document, event: RunEvent | UnknownEvent) -> None:
    match event:
        case ModelCallFinished():
            _take_answer(step, event)
        case MessageLogged():
            _take_message(step, event.message)
        case BlockStarted():
            _take_code(step, [(each.code, each.language) for each in event.blocks])
        case BlockFinished():
            _take_result(run, entry, step, event)
        case HostCallStarted() | HostCallFinished():
            _take_call(step, event)
        case RunStarted() | TurnStarted():
            step["text"], step["text_bytes"] = shortened(task_text(event.task or ()), TEXT_CHARS)
        case RunResumed():
            step["notes"] = [f"Process {event.process.pid} on {bounded(event.process.host, 200)}"]
        case RunFinished():
            step["outcome"] = event.outcome
            step["stop_reason"] = bounded(event.stop_reason) if event.stop_reason is not None else None
            step["error"] = _error(event.error)
            step["duration_s"] = seconds(event.duration_s)
        case TurnFinished():
            step["error"] = _error(event.error)
        case ValueLogged():
            step["text"] = f"{entry.title.rstrip('.')}: {json_text(event.value)}"
        case UnknownEvent():
            step["text"] = json_text(event.data)


def _take_answer(step: Document, event: ModelCallFinished) -> None:
    result = event.result or {}
    if event.error is not None:
        step["error"] = _error(event.error)
    if isinstance(thought := result.get("thought"), str) and thought.strip():
        step["thought"], _ = shortened(thought, TEXT_CHARS)
    if step["kind"] in ("model_call", "decision"):
        content = result.get("content")
        text = content if isinstance(content, str) else json_text(content) if content is not None else ""
        step["text"], step["text_bytes"] = shortened(text, TEXT_CHARS)
        if step["kind"] == "decision":
            _take_decision(step, text)


def _take_decision(step: Document, text: str) -> None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(found, dict) and isinstance(found.get("reason"), str):
        step["text"], step["text_bytes"] = shortened(found["reason"], TEXT_CHARS)
        step["retry"] = found.get("retry") is True


# Messages


def _take_message(step: Document, message: Mapping[str, Any]) -> None:
    content, metadata = message.get("content"), message.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    kind = message.get("type")
    if kind == "ThoughtEvent":
        step["thought"], _ = shortened(str(content), TEXT_CHARS)
    elif kind == "CodeExecutionEvent":
        _take_unrun(step, message, metadata)
    elif kind == "ToolCallExecutionEvent":
        step["calls"] = [*step.get("calls", []), *map(_call_of_model, content if isinstance(content, list) else ())]
    elif kind == "ToolCallRequestEvent":
        step["text"] = ""
    elif kind == "CodeGenerationEvent" and "retry" in metadata:
        step["retry"] = metadata["retry"] == "true"
        step.setdefault("text", visible(str(content)[:TEXT_CHARS]))
    else:
        _take_words(step, message, metadata)


def _take_words(step: Document, message: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    text = _words(message.get("content"))
    blocks = [each for each in message.get("code_blocks") or () if isinstance(each, dict)]
    notes = [str(metadata[name]) for name in ("sent_back", "stopped", "misfit") if metadata.get(name)]
    if metadata.get("not_run"):
        notes.append(_not_run(str(metadata["not_run"])))
    if "cut_off" in metadata:
        notes.insert(0, "The model's answer was cut off, so none of its code was run.")
    elif blocks and "sent_back" not in metadata:
        text = words_beside_code(text, [str(each.get("code")) for each in blocks])
    if step["kind"] == "block":
        _take_code(step, [(str(each.get("code")), str(each.get("language"))) for each in blocks])
    step["text"], step["text_bytes"] = shortened(text, TEXT_CHARS)
    step["notes"] = [bounded(note) for note in notes]
    if step["kind"] == "handoff":
        step["target"] = bounded(str(message.get("target")), 200)


def _not_run(found: str) -> str:
    names = {str(each["language"] or each["reason"]) for each in json.loads(found)}
    return f"There is {' and '.join(sorted(names))} code in it that was not run."


def _words(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(each if isinstance(each, str) else "[image]" for each in content)
    return content if isinstance(content, str) else json_text(content)


def _take_unrun(step: Document, message: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    result = message.get("result")
    result = result if isinstance(result, dict) else {}
    step["outcome"] = bounded(str(metadata.get("outcome", "denied")), 40)
    step["exit_code"] = result.get("exit_code") if isinstance(result.get("exit_code"), int) else None
    step["output"], step["output_bytes"] = output_text(str(result.get("output", "")), OUTPUT_CHARS)


# Code and results


def _take_code(step: Document, blocks: Sequence[tuple[str, str]]) -> None:
    code = "\n\n".join(code for code, _ in blocks).rstrip("\n")
    step["language"] = bounded(blocks[0][1], 40) if blocks else ""
    step["code"], step["code_bytes"] = shortened(code, CODE_CHARS)


def _take_result(run: Run, entry: StepEntry, step: Document, event: BlockFinished) -> None:
    result = event.result
    step["error"] = _error(event.error)
    if result is None:
        step["outcome"] = "error"
        return
    if result.error is not None:
        step["error"] = _error(result.error)
    displays = _without_copies(result.displays)
    step["output"], step["output_bytes"] = output_text(_beside_figures(_written(result), result.displays), OUTPUT_CHARS)
    step["outcome"], step["exit_code"] = result.outcome, result.exit_code
    step["truncated"] = count(result.truncated)
    step["value"] = bounded(result.value_repr) if result.value_repr is not None else None
    step["displays"] = [_display(run, each) for each in displays[:MAX_PARTS]]
    step["calls"] = [_call(each) for each in result.tool_calls[:MAX_PARTS]]
    step["connections"] = [
        {
            "host": bounded(each.host, 300) if each.host is not None else None,
            "port": each.port,
            "allowed": each.allowed,
            "sent": count(each.sent),
            "received": count(each.received),
            "reason": bounded(each.reason) if each.reason is not None else None,
        }
        for each in result.connections[:MAX_PARTS]
    ]
    step["files"] = changed_files(run, result, entry.known_files)
    step["state"] = result.state
    step["notes"] = [*step.get("notes", []), *(bounded(note) for note in result.notes[:MAX_PARTS])]
    step["notes"] += _left_out(result)


def _written(result: ResultRecord) -> str:
    """Return what the code has written, without the line about a timeout or the end of memory."""
    return result.output.removesuffix(last_line(result.outcome, result.state))


def _without_copies(displays: Sequence[DisplayRecord]) -> list[DisplayRecord]:
    """Return what was shown, each figure once: one that is the value of a block is shown with all that are open as well."""
    found: dict[object, DisplayRecord] = {}
    for each in displays:
        images = tuple(file.sha256 for file in each.files.values())
        found.setdefault(images if any(images) else id(each), each)
    return list(found.values())


def _beside_figures(output: str, displays: Sequence[DisplayRecord]) -> str:
    """Return the output without the lines that stand for figures."""
    for each in displays[:MAX_PARTS]:
        if each.files and each.output_line:
            output = output.replace(f"{each.output_line}\n", "", 1)
    return output


def _left_out(result: ResultRecord) -> list[str]:
    parts = {
        "displays": len(_without_copies(result.displays)) - MAX_PARTS,
        "calls": len(result.tool_calls) - MAX_PARTS,
        "connections": len(result.connections) - MAX_PARTS,
        "files": len(result.artifacts) - MAX_FILES,
    }
    return [f"{number:,} more {name} are not shown." for name, number in parts.items() if number > 0]


def _complete_block(entry: StepEntry, step: Document, *, running: bool) -> None:
    if entry.live is not None:
        step["output"], step["output_bytes"] = output_text(str(entry.live), OUTPUT_CHARS)
    if entry.is_open:
        step["outcome"] = "running" if running else "interrupted"


def _display(run: Run, display: DisplayRecord) -> Document:
    data: dict[str, Any] = {}
    for kind, form in list(display.data.items())[:20]:
        text = form if isinstance(form, str) else json.dumps(form, default=str)
        if len(text) <= DISPLAY_CHARS:
            data[bounded(kind, 100)] = text
        else:
            data.setdefault("text/plain", f"[{visible(kind[:100])} with {len(text):,} characters is not shown]")
    for kind, file in list(display.files.items())[:20]:
        data[bounded(kind, 100)] = {"file": reference(file, kind)}
        if is_json(kind) and file.size <= DISPLAY_CHARS:
            with suppress(RunFileError):
                data[bounded(kind, 100)] = run.read_file(file).decode("utf-8", "replace")
    return {"name": bounded(display.name, 300), "data": data}


# Calls


def _call(record: CallRecord) -> Document:
    return {
        "name": bounded(record.name, 200),
        "arguments": {bounded(name, 200): json_text(value) for name, value in list(record.arguments.items())[:50]},
        "outcome": record.outcome,
        "result": json_text(_plain(record.result)) if record.outcome == "ok" else None,
        "error": _error(record.error),
        "duration_s": seconds(record.duration_s),
        "approval": "refused" if record.outcome == "refused" else None,
        "images": [reference(each.file, each.media_type) for each in record.images[:20]],
    }


def _plain(result: Any) -> Any:
    """Return the text of a result of AutoGen's workbenches; other results as they are."""
    if isinstance(result, dict) and result.get("type") == "ToolResult" and isinstance(result.get("result"), list):
        parts = [each.get("content") if isinstance(each, dict) else None for each in result["result"]]
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) == len(parts):
            return "\n".join(texts)
    return result


def _take_call(step: Document, event: HostCallStarted | HostCallFinished) -> None:
    calls = step.setdefault("calls", [])
    if isinstance(event, HostCallStarted):
        if len(calls) < MAX_PARTS:
            started = CallRecord(name=event.name, arguments=event.arguments, outcome="cancelled")
            calls.append({**_call(started), "outcome": "running"})
        return
    call = _call(event.record)
    places = [at for at, each in enumerate(calls) if each["outcome"] == "running" and each["name"] == call["name"]]
    if places:
        calls[places[0]] = call
    elif len(calls) < MAX_PARTS:
        calls.append(call)


def _call_of_model(result: Any) -> Document:
    result = result if isinstance(result, dict) else {}
    failed = result.get("is_error") is True
    content = bounded(str(result.get("content")))
    return {
        "name": bounded(str(result.get("name")), 200),
        "arguments": {},
        "outcome": "error" if failed else "ok",
        "result": None if failed else content,
        "error": content if failed else None,
        "duration_s": 0.0,
        "approval": None,
        "images": [],
    }


def _error(error: ErrorInfo | None) -> str | None:
    return bounded(f"{error.type}: {error.message}") if error is not None else None
