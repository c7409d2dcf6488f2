"""HTML of agents' messages for notebooks. All of it is untrusted: it is escaped, and nothing in it runs or is loaded."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

from autogen_agentchat.base import Response, TaskResult
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
from markdown_it import MarkdownIt
from markdown_it.token import Token

from autogen_codeact.agents.outcome_summary import outcome_summary
from autogen_codeact.sandbox import Result
from autogen_codeact.sandbox.highlight import pieces
from autogen_codeact.sandbox.markdown import markdown_tokens
from autogen_codeact.sandbox.types.displays import cut, escaped, output_to_html
from autogen_codeact.sandbox.types.filenames import printable
from autogen_codeact.sandbox.types.result import STOPPED, written_by_code

Message = BaseAgentEvent | BaseChatMessage

MAX_MESSAGES = 200
"""Messages of a run that are shown: its first one and the last ones."""
MAX_HTML_CHARS = 32_000_000
"""HTML of all messages of a run; figures of earlier messages are left out before those of later ones."""
MAX_MESSAGE_CHARS = 20_000
"""Characters of a message, and of the output of one block."""
_MAX_TOKENS = 8_000
_COLORS = {
    # JupyterLab's own colours, which follow its theme; the second value is for other programs.
    "c": "var(--jp-mirror-editor-comment-color, #5f8787)",
    "k": "var(--jp-mirror-editor-keyword-color, #008000)",
    "s": "var(--jp-mirror-editor-string-color, #ba2121)",
    "m": "var(--jp-mirror-editor-number-color, #088)",
    "nb": "var(--jp-mirror-editor-builtin-color, #008000)",
    "nf": "var(--jp-mirror-editor-def-color, #00f)",
    "gi": "var(--jp-success-color1, #388e3c)",
    "gd": "var(--jp-error-color1, #d32f2f)",
}
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
    """Return HTML that shows a message or an event.

    Args:
        message: Of any type; those that are not known are shown as text.
    """
    kind, title = "other", type(message).__name__
    match message:
        case CodeGenerationEvent():
            kind, title = "code", "decides" if "retry" in message.metadata else "writes code"
            body = _markdown(message.content) + _sent_back(message)
        case CodeExecutionEvent():
            kind, title = (
                "good" if message.result.exit_code == 0 else "bad",
                f"ran code: {outcome_summary(message.result)}",
            )
            body = result_to_html(message.result)
        case ThoughtEvent():
            title, body = "thinks", _pre(message.content)
        case StructuredMessage():
            kind, title, body = "answer", "answers", _pre(_json_of(message))
        case MultiModalMessage():
            kind, title, body = "answer", "", "".join(map(_part, message.content))
        case HandoffMessage():
            title, body = f"hands over to {message.target}", _markdown(message.content)
        case TextMessage():
            kind, title = "task" if message.source == "user" else "answer", ""
            body = _markdown(message.content)
        case _:
            body = _pre(message.to_text())
    return _box(message, kind, title, body)


def result_to_html(result: CodeResult) -> str:
    """Return HTML of what code has printed and shown, and of what else happened.

    Args:
        result: A result of the sandbox, or of another executor.
    """
    shown = written_by_code(result)
    displays = result.displays if isinstance(result, Result) else ()
    rows = output_to_html(shown, displays, MAX_MESSAGE_CHARS)
    if not rows:
        rows = [f'<div style="{_GREY}">(no output)</div>']
    rows += [f'<div style="{_GREY}">{escaped(cut(each, 1000))}</div>' for each in remarks(result)]
    return "\n".join(rows)


def remarks(result: CodeResult, most: int = 20) -> list[str]:
    """Return sentences about a result that are not in its output: the error, lost output or memory, notes, files.

    Args:
        result: The result.
        most: Sentences and names at most. Default 20.
    """
    if not isinstance(result, Result):
        return []
    lines = []
    if result.error is not None and result.error != STOPPED and result.error.message not in result.output:
        lines.append(f"{result.error.type}: {result.error.message}")
    if result.truncated:
        lines.append(f"{result.truncated:,} bytes of output were dropped.")
    if result.state != "kept":
        lines.append(f"The session's memory was {result.state}.")
    lines += result.notes[:most]
    shown = {display.name for display in result.displays}
    if names := [artifact.name for artifact in result.artifacts if artifact.name not in shown]:
        more = f", and {len(names) - most:,} more" if len(names) > most else ""
        lines.append(f"Files: {', '.join(names[:most])}{more}")
    return lines


def run_to_html(run: TaskResult) -> str:
    """Return HTML that shows a run: its messages, why it stopped, and the tokens that it used.

    Args:
        run: What `run` or the end of `run_stream` returns.
    """
    messages = list(run.messages)
    rows = list(_limited(messages))
    if len(messages) > MAX_MESSAGES:
        left_out = f'<div style="{_GREY}">{len(messages) - MAX_MESSAGES:,} messages are not shown here.</div>'
        rows.insert(1, left_out)
    return "\n".join([*rows, f'<div style="{_GREY}">{escaped(cut(ending(run), 1000))}</div>'])


def ending(run: TaskResult) -> str:
    """Return a line about the end of a run.

    Args:
        run: What `run` or the end of `run_stream` returns.
    """
    usages = [message.models_usage for message in run.messages if message.models_usage is not None]
    tokens = sum(usage.prompt_tokens for usage in usages), sum(usage.completion_tokens for usage in usages)
    parts = [f"Stopped: {run.stop_reason}"] if run.stop_reason else ["Done"]
    blocks = sum(isinstance(message, CodeExecutionEvent) for message in run.messages)
    if blocks:
        parts.append(f"{blocks} block{'s' * (blocks > 1)} of code")
    if any(tokens):
        parts.append(f"{tokens[0]:,} tokens in, {tokens[1]:,} out")
    return " · ".join(parts)


def response_to_html(response: Response) -> str:
    """Return HTML that shows an agent's turn.

    Args:
        response: What `on_messages` returns.
    """
    return run_to_html(TaskResult(messages=[*(response.inner_messages or ()), response.chat_message]))


def message_to_text(message: Message) -> str:
    """Return a message as text, for terminals and for notebooks without HTML.

    Args:
        message: Of any type.
    """
    text = message.to_text()
    if isinstance(message, CodeExecutionEvent):
        text = "\n".join([written_by_code(message.result).rstrip("\n"), *remarks(message.result)]).strip("\n")
        return (
            f"{plain(message.source)} {plain(f'ran code: {outcome_summary(message.result)}')}\n{plain(text)}".rstrip()
        )
    return f"{plain(message.source)} ({type(message).__name__}):\n{plain(text)}"


def run_to_text(run: TaskResult) -> str:
    """Return a run as text.

    Args:
        run: What `run` or the end of `run_stream` returns.
    """
    shown = _kept(run.messages)
    return "\n\n".join([*map(message_to_text, shown), ending(run)])


def response_to_text(response: Response) -> str:
    """Return an agent's turn as text.

    Args:
        response: What `on_messages` returns.
    """
    return message_to_text(response.chat_message)


def plain(text: str) -> str:
    return html.unescape(escaped(cut(text, MAX_MESSAGE_CHARS)))


def _kept(messages: Sequence[Message]) -> list[Message]:
    return list(messages) if len(messages) <= MAX_MESSAGES else [messages[0], *messages[1 - MAX_MESSAGES :]]


def _limited(messages: Sequence[Message]) -> Iterable[str]:
    """The HTML of messages in their order; where it would be too much, the results of earlier blocks are text."""
    left, rows = MAX_HTML_CHARS, []
    for message in reversed(_kept(messages)):
        row = message_to_html(message)
        if len(row) > left:
            row = _box(message, "other", type(message).__name__, _pre(message.to_text()))
        left -= len(row)
        rows.append(row)
    return reversed(rows)


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


def _sent_back(message: CodeGenerationEvent) -> str:
    if "cut_off" in message.metadata:
        return f'<div style="{_GREY}">The answer was cut off, so none of its code is run.</div>'
    back = message.metadata.get("sent_back")
    return f"<div>{_pre(back)}</div>" if back else ""


def _json_of(message: StructuredMessage[Any]) -> str:
    text = message.to_text()
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False) if len(text) <= MAX_MESSAGE_CHARS else text
    except (ValueError, RecursionError):  # it has a format of its own, or is nested too deeply
        return text


def _part(part: Any) -> str:
    if isinstance(part, str):
        return _markdown(part)
    encoded = part.to_base64()
    if len(encoded) > MAX_HTML_CHARS // 4:
        return _pre("An image that is too large to be shown here.")
    return f'<img alt="image" style="max-width:100%" src="data:image/png;base64,{encoded}">'


def _markdown(text: str) -> str:
    """Render markdown; HTML in it is text, and images are links: a browser would load them when the notebook is opened."""
    parser = MarkdownIt("commonmark", {"html": False, "highlight": _highlighted}).enable("table").disable("image")
    tokens = markdown_tokens(parser, text, _MAX_TOKENS)
    if tokens is None:
        return _pre(text)
    _make_printable(tokens)
    return f'<div class="codeact-words">{parser.renderer.render(tokens, parser.options, {})}</div>'


def _make_printable(tokens: Iterable[Token]) -> None:
    """Make control and invisible characters visible in what the parser has made, because it decodes entities."""
    for token in tokens:
        token.content = html.unescape(escaped(token.content)) if token.content else ""
        token.info = token.info if printable(token.info) == token.info else ""
        token.attrs = {name: value for name, value in token.attrs.items() if printable(str(value)) == value}
        if token.type == "link_open":
            token.attrs["rel"] = "noopener noreferrer nofollow"
            token.attrs["target"] = "_blank"
        _make_printable(token.children or ())


def _highlighted(code: str, language: str, _: str) -> str:
    """Return code as HTML with colours."""
    rows = []
    for kind, text in pieces(code, language):
        safe = html.escape(text)
        rows.append(f'<span style="color:{_COLORS[kind]}">{safe}</span>' if kind in _COLORS else safe)
    return "".join(rows)
