"""Print what agents say and do, message by message."""

from __future__ import annotations

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
)
from autogen_core.code_executor import CodeResult

from autogen_codeact.agents.observation import INTERRUPTED
from autogen_codeact.agents.reliable_client import BEGINS_AGAIN
from autogen_codeact.cli.terminal import Terminal, format_duration, format_size, shorten
from autogen_codeact.executors import STOPPED, Artifact, ExecutionResult
from autogen_codeact.sandbox.files.filenames import printable
from autogen_codeact.sandbox.folding import fold_carriage_returns
from autogen_codeact.sandbox.result import written_by_code

Message = BaseAgentEvent | BaseChatMessage

_OUTCOMES = {
    "timeout": "timed out and was stopped",
    "oom": "used more memory than the sandbox has",
    "crashed": "crashed",
    "denied": "not approved, so not run",
}


def headline(result: CodeResult) -> str:
    """Return how code ended, in a few words."""
    if not isinstance(result, ExecutionResult):
        return "ok" if result.exit_code == 0 else f"failed, exit code {result.exit_code}"
    if _is_unknown(result):
        return "whether it finished is unknown"
    if result.outcome == "crashed" and result.error == STOPPED:
        return f"stopped, {format_duration(result.duration_s)}"
    parts = [_OUTCOMES.get(result.outcome, "ok" if result.exit_code == 0 else "failed")]
    if result.error is not None and result.outcome == "error":
        parts.append(printable(result.error.type))
    if result.exit_code != 0:
        parts.append(f"exit code {result.exit_code}")
    return ", ".join([*parts, format_duration(result.duration_s)])


def remarks(result: CodeResult) -> list[str]:
    """Return what else a user should know of a result: value, lost output, restored memory, files."""
    if not isinstance(result, ExecutionResult):
        return []
    lines = []
    if result.value is not None and result.value not in result.output:
        lines.append(f"Value: {result.value}")
    if _is_unknown(result) and result.error is not None:
        lines.append(f"{result.error.message[:1].upper()}{result.error.message[1:]}.")
    elif result.error is not None and result.error != STOPPED and result.error.message not in result.output:
        lines.append(f"{printable(result.error.type)}: {result.error.message}")
    if result.truncated:
        lines.append(f"{result.truncated:,} bytes of output were dropped.")
    if result.state != "kept":
        lines.append(f"The session's memory was {result.state}.")
    return [*lines, *result.notes, *map(_describe_file, result.artifacts)]


def _is_unknown(result: ExecutionResult) -> bool:
    # Code can raise an exception of this name, but then it has not crashed.
    return result.outcome == "crashed" and result.error is not None and result.error.type == INTERRUPTED


def _describe_file(file: Artifact) -> str:
    # In one line: a line break in a name must not look like one of our notes.
    note = f"; {printable(file.note)}" if file.note else ""
    return f"File: {printable(file.name)} ({format_size(file.size)}{note})"


class Transcript:
    """Prints the messages of one run.

    Args:
        terminal: Where to print.
        team: Whether there are several agents, so that each message needs its sender's name.
    """

    def __init__(self, terminal: Terminal, *, team: bool = False) -> None:
        self._terminal = terminal
        self._team = team
        self._streamed = ""
        self._mid_line = False

    def show(self, message: Message) -> None:
        """Print one message."""
        if isinstance(message, ModelClientStreamingChunkEvent):
            self._show_chunk(message)
            return
        if self._mid_line:
            self._terminal.line("\n")
        self._mid_line = False
        if isinstance(message, ThoughtEvent):
            self._terminal.panel(self._title(message, "The model thinks"), message.content, "dim")
            return  # the message with the streamed text follows
        streamed, self._streamed = self._streamed.strip(), ""
        match message:
            case CodeGenerationEvent():
                self._show_generation(message, streamed)
            case CodeExecutionEvent():
                self._show_result(message)
            case TextMessage():
                self._show_text(message, streamed)
            case _:
                self._terminal.panel(f"{type(message).__name__} of {message.source}", message.to_text(), "dim")

    def _title(self, message: Message, title: str) -> str:
        return message.source if self._team else title

    def _show_chunk(self, message: ModelClientStreamingChunkEvent) -> None:
        if not self._mid_line:
            self._terminal.line(f"{self._title(message, 'The model')} says:", "cyan", bold=True)
        self._streamed = "" if message.content == BEGINS_AGAIN else self._streamed + message.content
        self._mid_line = True
        self._terminal.write(message.content)

    def _show_generation(self, event: CodeGenerationEvent, streamed: str) -> None:
        panel = self._terminal.panel
        if "retry" in event.metadata:
            panel("The model's decision", event.content, "yellow")
        elif "cut_off" in event.metadata:
            panel("The model's answer was cut off, so none of its code is run", event.content, "red")
        elif "sent_back" in event.metadata:
            panel("The model's answer is sent back", f"{event.content}\n\n{event.metadata['sent_back']}", "red")
        elif event.content.strip() != streamed:
            panel(f"The model writes code ({_position(event)})", event.content, "cyan", markdown=True)

    def _show_text(self, message: TextMessage, streamed: str) -> None:
        if message.source == "user":
            self._terminal.panel("Task", message.content, "blue")
        elif "exit_code" in message.metadata:
            good = message.metadata["exit_code"] == "0"
            ended = "ok" if good else f"exit code {message.metadata['exit_code']}"
            title = f"{message.source}: {ended}"
            if message.metadata.get("outcome") == "crashed" and message.metadata.get("error") == INTERRUPTED:
                title = f"{message.source}: whether the code finished is unknown"
            elif "duration_s" in message.metadata:
                title += f", {format_duration(float(message.metadata['duration_s']))}"
            self._terminal.panel(title, shorten(message.content), "green" if good else "red")
        elif message.content.strip() != streamed:
            title = self._title(message, "The model's answer")
            self._terminal.panel(title, message.content, "magenta", markdown=True)

    def _show_result(self, event: CodeExecutionEvent) -> None:
        output = shorten(fold_carriage_returns(written_by_code(event.result)).rstrip()) or "(no output)"
        title = f"{_position(event).capitalize()} in the sandbox: {headline(event.result)}"
        text = "\n".join([output, *([""] if remarks(event.result) else []), *remarks(event.result)])
        self._terminal.panel(title, text, "green" if event.result.exit_code == 0 else "red")


def _position(event: CodeGenerationEvent | CodeExecutionEvent) -> str:
    return f"step {event.metadata['step']}" if "step" in event.metadata else f"attempt {event.retry_attempt + 1}"
