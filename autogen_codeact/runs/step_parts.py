"""What steps have of results of code, calls and messages, as JSON values of limited size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autogen_codeact.runs.results import CallRecord, DisplayRecord, ResultRecord
from autogen_codeact.runs.text import json_text, seconds, words
from codeact_sandbox.types.result import ErrorInfo, last_line

MAX_PARTS = 100
"""Displays, calls and connections of a block that are kept."""
MAX_FILES = 200
"""Files of a block that are kept."""
Content = dict[str, Any]
"""What a step has, as JSON values; text is as it was written.

text, thought, notes, error, usage; answer and request: the model's, whole; reset; target (handoff);
retry (decision); stop_reason (end); said: the message with a block's output
code: [{code, language}]; exit_code, output, value, truncated, displays, calls, connections,
files: with the earlier copy of each as `before`
"""


def result_parts(result: ResultRecord) -> Content:
    displays = list({_identity(each): each for each in reversed(result.displays)}.values())[::-1]
    output = result.output.removesuffix(last_line(result.outcome, result.state))
    for display in displays[:MAX_PARTS]:
        if display.files and display.output_line:  # it stands for a figure
            output = output.replace(f"{display.output_line}\n", "", 1)
    parts = {
        "displays": len(displays) - MAX_PARTS,
        "calls": len(result.tool_calls) - MAX_PARTS,
        "connections": len(result.connections) - MAX_PARTS,
        "files": len(result.artifacts) - MAX_FILES,
    }
    left_out = [f"{number:,} more {name} are not shown." for name, number in parts.items() if number > 0]
    return {
        "output": output,
        "error": error_text(result.error),
        "exit_code": result.exit_code,
        "value": result.value_repr,
        "truncated": result.truncated,
        "displays": [_display(each) for each in displays[:MAX_PARTS]],
        "calls": [call_parts(each) for each in result.tool_calls[:MAX_PARTS]],
        "connections": [dict(vars(each)) for each in result.connections[:MAX_PARTS]],
        "notes": [*result.notes[:MAX_PARTS], *left_out],
    }


def error_text(error: ErrorInfo | None) -> str | None:
    return f"{error.type}: {error.message}" if error is not None else None


def message_notes(metadata: Mapping[str, Any]) -> list[str]:
    notes = [str(metadata[name]) for name in ("sent_back", "stopped", "misfit") if metadata.get(name)]
    if metadata.get("not_run"):
        names = {str(each["language"] or each["reason"]) for each in json.loads(metadata["not_run"])}
        notes.append(f"There is {' and '.join(sorted(names))} code in it that was not run.")
    if "cut_off" in metadata:
        notes.insert(0, "The model's answer was cut off, so none of its code was run.")
    return notes


def _identity(display: DisplayRecord) -> object:
    """Return what is the same for copies of a figure: as the value of a block it is shown with all that are open as well."""
    images = tuple(file.sha256 for file in display.files.values())
    return images if any(images) else id(display)


def _display(display: DisplayRecord) -> Content:
    return {
        "name": display.name,
        "data": dict(list(display.data.items())[:20]),
        "files": {kind: file.model_dump() for kind, file in list(display.files.items())[:20]},
        "metadata": display.metadata,
    }


def call_parts(record: CallRecord) -> Content:
    """Return a call to a host tool."""
    return {
        "name": record.name[:200],
        "arguments": {name[:200]: json_text(value) for name, value in list(record.arguments.items())[:50]},
        "outcome": record.outcome,
        "result": json_text(_plain(record.result)) if record.outcome == "ok" else None,
        "error": error_text(record.error),
        "duration_s": seconds(record.duration_s),
        "images": [{**each.file.model_dump(), "media_type": each.media_type} for each in record.images[:20]],
    }


def _plain(result: Any) -> Any:
    """Return the text of a result of AutoGen's workbenches; other results as they are."""
    if isinstance(result, dict) and result.get("type") == "ToolResult" and isinstance(result.get("result"), list):
        parts = [each.get("content") if isinstance(each, dict) else None for each in result["result"]]
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) == len(parts):
            return "\n".join(texts)
    return result


def model_call_parts(result: Any) -> Content:
    """Return a call that a model made itself, of the message with its result."""
    result = result if isinstance(result, dict) else {}
    failed, content = result.get("is_error") is True, words(result.get("content"))
    record = CallRecord(name=str(result.get("name")), arguments={}, outcome="error" if failed else "ok")
    return call_parts(record) | {"result": None if failed else content, "error": content if failed else None}
