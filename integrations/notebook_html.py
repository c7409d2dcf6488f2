"""HTML of agents' messages for notebooks. All of it is untrusted: it is escaped, and nothing in it runs or is loaded."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    HandoffMessage,
    MultiModalMessage,
    StructuredMessage,
    TextMessage,
    ThoughtEvent,
)
from autogen_core.code_executor import CodeResult

from autogen_codeact.agents.observation import outcome_summary
from codeact_sandbox import Result
from codeact_sandbox.types.displays import cut, escaped, output_to_html
from codeact_sandbox.types.result import STOPPED, remarks, written_by_code

Message = BaseAgentEvent | BaseChatMessage

MAX_MESSAGES = 200
"""Messages of a run that are shown: its first one and the last ones."""
MAX_HTML_CHARS = 32_000_000
"""HTML of all messages of a run; figures of earlier messages are left out before those of later ones."""
MAX_MESSAGE_CHARS = 20_000
"""Characters of a message, and of the output of one block."""
_GREY = "color:var(--jp-ui-font-color2, #666)"
_BORDERS = {
    "task": "#1e88e5",
    "code": "#00acc1",
    "good": "#43a047",
    "bad": "#e53935",
    "answer": "#8e24aa",
    "other": "#9e9e9e",
}


def message_to_html(message: Message) -> str:
    """Return HTML that shows a message or an event: its words as they are, and the figures of code."""
    kind, title, body = "other", type(message).__name__, ""
    match message:
        case CodeGenerationEvent():
            kind, title = "code", "decides" if "retry" in message.metadata else "writes code"
            if "cut_off" in message.metadata:
                body = f'<div style="{_GREY}">The answer was cut off, so none of its code is run.</div>'
            elif "sent_back" in message.metadata:
                body = _pre(message.metadata["sent_back"])
            body = _pre(message.content) + body
        case CodeExecutionEvent():
            kind = "good" if message.result.exit_code == 0 else "bad"
            title, body = f"ran code: {outcome_summary(message.result)}", result_to_html(message.result)
        case ThoughtEvent():
            title = "thinks"
        case HandoffMessage():
            title = f"hands over to {message.target}"
        case MultiModalMessage():
            kind, title, body = "answer", "", "".join(map(_part, message.content))
        case TextMessage() | StructuredMessage():
            kind, title = "task" if message.source == "user" else "answer", ""
    return _box(message, kind, title, body or _pre(message.to_text()))


def result_to_html(result: CodeResult) -> str:
    """Return HTML of what code has printed and shown, and of what else happened."""
    shown = written_by_code(result)
    displays = result.displays if isinstance(result, Result) else ()
    rows = output_to_html(shown, displays, MAX_MESSAGE_CHARS)
    return "\n".join([*(rows or [_line("(no output)")]), *map(_line, _remarks(result))])


def _remarks(result: CodeResult) -> list[str]:
    """Return sentences about a result that are not in its output: the error, lost output or memory, notes, files."""
    if not isinstance(result, Result):
        return []
    lines = []
    if result.error is not None and result.error != STOPPED and result.error.message not in result.output:
        lines.append(f"{result.error.type}: {result.error.message}")
    if result.state != "kept":
        lines.append(f"The session's memory was {result.state}.")
    return [*lines, *remarks(result)]


def run_to_html(run: TaskResult) -> str:
    """Return HTML that shows a run: its messages, why it stopped, and the tokens that it used."""
    left, rows = MAX_HTML_CHARS, [_line(ending(run))]
    for message in reversed(_kept(run.messages)):
        row = message_to_html(message)
        if len(row) > left:  # then the results of earlier blocks are text
            row = _box(message, "other", type(message).__name__, _pre(message.to_text()))
        left -= len(row)
        rows.append(row)
    if len(run.messages) > MAX_MESSAGES:
        rows.insert(-1, _line(f"{len(run.messages) - MAX_MESSAGES:,} messages are not shown here."))
    return "\n".join(reversed(rows))


def ending(run: TaskResult) -> str:
    """Return a line about the end of a run."""
    usages = [message.models_usage for message in run.messages if message.models_usage is not None]
    tokens = sum(usage.prompt_tokens for usage in usages), sum(usage.completion_tokens for usage in usages)
    parts = [f"Stopped: {run.stop_reason}"] if run.stop_reason else ["Done"]
    blocks = sum(isinstance(message, CodeExecutionEvent) for message in run.messages)
    if blocks:
        parts.append(f"{blocks} block{'s' * (blocks > 1)} of code")
    if any(tokens):
        parts.append(f"{tokens[0]:,} tokens in, {tokens[1]:,} out")
    return " · ".join(parts)


def message_to_text(message: Message) -> str:
    """Return a message as text, for terminals and for notebooks without HTML."""
    if isinstance(message, CodeExecutionEvent):
        text = "\n".join([written_by_code(message.result).rstrip("\n"), *_remarks(message.result)]).strip("\n")
        return f"{plain(message.source)} ran code: {plain(outcome_summary(message.result))}\n{plain(text)}".rstrip()
    return f"{plain(message.source)} ({type(message).__name__}):\n{plain(message.to_text())}"


def plain(text: str) -> str:
    """Return text with its control and invisible characters made visible."""
    return html.unescape(escaped(cut(text, MAX_MESSAGE_CHARS)))


def _kept(messages: Sequence[Message]) -> list[Message]:
    return list(messages) if len(messages) <= MAX_MESSAGES else [messages[0], *messages[1 - MAX_MESSAGES :]]


def _line(text: str) -> str:
    return f'<div style="{_GREY}">{escaped(cut(text, 1000))}</div>'


def _box(message: Message, kind: str, title: str, body: str) -> str:
    words = f"<b>{escaped(cut(message.source, 200))}</b> {escaped(cut(title, 200))}"
    step = message.metadata.get("step")
    if step is not None and step.isdigit():
        words += f" · step {step}"
    border = f"border-left:3px solid {_BORDERS[kind]};padding:2px 0 2px 10px;margin:6px 0"
    heading = f'<div style="{_GREY};font-size:90%">{words}</div>'
    return f'<div class="codeact-message" style="{border}">{heading}\n{body}</div>'


def _pre(text: str) -> str:
    style = "white-space:pre-wrap;overflow-wrap:anywhere"
    return f'<pre style="{style}">{escaped(cut(text, MAX_MESSAGE_CHARS))}</pre>'


def _part(part: Any) -> str:
    if isinstance(part, str):
        return _pre(part)
    encoded = part.to_base64()
    if len(encoded) > MAX_HTML_CHARS // 4:
        return _pre("An image that is too large to be shown here.")
    return f'<img alt="image" style="max-width:100%" src="data:image/png;base64,{encoded}">'
