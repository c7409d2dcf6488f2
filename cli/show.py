"""What agents say and do, shown as it comes."""

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

from autogen_codeact.cli.screen import Screen, amount, seconds, shortened
from autogen_codeact.executors import Artifact, ExecutionResult
from autogen_codeact.sandbox.files.filenames import printable
from autogen_codeact.sandbox.result import written_by_code

Message = BaseAgentEvent | BaseChatMessage

_ENDINGS = {
    "timeout": "took too long and was stopped",
    "oom": "used more memory than the sandbox has",
    "crashed": "crashed",
    "denied": "not approved, so not run",
}


def headline(result: CodeResult) -> str:
    """Say in some words how code ended."""
    if not isinstance(result, ExecutionResult):
        return "ok" if result.exit_code == 0 else f"failed, exit code {result.exit_code}"
    ended = _ENDINGS.get(result.outcome, "ok" if result.exit_code == 0 else "failed")
    why = f", {printable(result.error.type)}" if result.error is not None and result.outcome == "error" else ""
    code = f", exit code {result.exit_code}" if result.exit_code != 0 else ""
    return f"{ended}{why}{code}, {seconds(result.duration_s)}"


def remarks(result: CodeResult) -> list[str]:
    """Say what else is worth knowing: lost output, restored memory, files."""
    if not isinstance(result, ExecutionResult):
        return []
    lines = []
    if result.value is not None and result.value not in result.output:
        lines.append(f"Value: {result.value}")
    if result.error is not None and result.error.message not in result.output:
        lines.append(f"{printable(result.error.type)}: {result.error.message}")
    if result.truncated:
        lines.append(f"{result.truncated:,} bytes of output were too much to keep.")
    if result.state != "kept":
        lines.append(f"The session's memory was {result.state}.")
    lines += result.notes
    return lines + list(map(_about, result.artifacts))


def _about(file: Artifact) -> str:
    # In one line: a line break in a name must not look like one of our notes.
    note = f"; {printable(file.note)}" if file.note else ""
    return f"File: {printable(file.name)} ({amount(file.size)}{note})"


class Play:
    """Shows the messages of one run.

    Args:
        screen: Where.
        team: Whether several agents speak, so that each message needs its speaker's name.
    """

    def __init__(self, screen: Screen, *, team: bool = False) -> None:
        self._screen = screen
        self._team = team
        self._streamed = ""
        self._mid_line = False

    def show(self, message: Message) -> None:
        """Show one message."""
        if isinstance(message, ModelClientStreamingChunkEvent):
            self._stream(message)
            return
        self._end_line()
        if isinstance(message, ThoughtEvent):
            self._screen.panel(self._by(message.source, "The model thinks"), message.content, "dim")
            return  # what was streamed is still to come as a message of its own
        seen, self._streamed = self._streamed.strip(), ""
        match message:
            case CodeGenerationEvent():
                self._show_generation(message, seen)
            case CodeExecutionEvent():
                self._show_result(message.result, f"{_turn(message).capitalize()} in the sandbox")
            case TextMessage():
                self._show_text(message, seen)
            case _:
                self._screen.panel(f"{type(message).__name__} of {message.source}", message.to_text(), "dim")

    def _by(self, source: str, otherwise: str) -> str:
        return source if self._team else otherwise

    def _stream(self, message: ModelClientStreamingChunkEvent) -> None:
        if not self._streamed:
            self._screen.line(f"{self._by(message.source, 'The model')} says:", "cyan", bold=True)
        self._streamed += message.content
        self._mid_line = True
        self._screen.piece(message.content)

    def _end_line(self) -> None:
        if self._mid_line:
            self._screen.line("\n")
        self._mid_line = False

    def _show_generation(self, event: CodeGenerationEvent, seen: str) -> None:
        if "retry" in event.metadata:
            self._screen.panel("The model's decision", event.content, "yellow")
        elif "cut_off" in event.metadata:
            self._screen.panel("The model's answer was cut off, so nothing of it is run", event.content, "red")
        elif "sent_back" in event.metadata:
            self._screen.panel(
                "The model's answer is sent back", f"{event.content}\n\n{event.metadata['sent_back']}", "red"
            )
        elif event.content.strip() != seen:
            self._screen.panel(f"The model writes code ({_turn(event)})", event.content, "cyan", markdown=True)

    def _show_text(self, message: TextMessage, seen: str) -> None:
        if message.source == "user":
            self._screen.panel("Task", message.content, "blue")
        elif "exit_code" in message.metadata:
            ended = "ok" if message.metadata["exit_code"] == "0" else f"exit code {message.metadata['exit_code']}"
            took = f", {seconds(float(message.metadata['duration_s']))}" if "duration_s" in message.metadata else ""
            style = "green" if ended == "ok" else "red"
            self._screen.panel(f"{message.source}: {ended}{took}", shortened(message.content), style)  # type: ignore[arg-type]
        elif message.content.strip() != seen:
            self._screen.panel(
                self._by(message.source, "The model's answer"), message.content, "magenta", markdown=True
            )

    def _show_result(self, result: CodeResult, what: str) -> None:
        text = "\n".join([shortened(written_by_code(result).rstrip()) or "(no output)", *_apart(remarks(result))])
        self._screen.panel(f"{what}: {headline(result)}", text, "green" if result.exit_code == 0 else "red")


def _turn(event: CodeGenerationEvent | CodeExecutionEvent) -> str:
    return f"step {event.metadata['step']}" if "step" in event.metadata else f"attempt {event.retry_attempt + 1}"


def _apart(lines: list[str]) -> list[str]:
    return ["", *lines] if lines else []
