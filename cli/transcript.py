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
from autogen_codeact.agents.outcome_summary import end_is_unknown, outcome_summary
from autogen_codeact.agents.reliable_client import BEGINS_AGAIN
from autogen_codeact.cli.terminal import Terminal, format_size, shorten
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.sandbox import Artifact
from autogen_codeact.sandbox.carriage_returns import apply_carriage_returns
from autogen_codeact.sandbox.files.filenames import printable
from autogen_codeact.sandbox.result import STOPPED, format_duration, written_by_code

Message = BaseAgentEvent | BaseChatMessage
MAX_COMPARED = 1_000_000
"""Characters of printed output that are kept, because a message repeats them."""


def remarks(result: CodeResult) -> list[str]:
    """Return what else a user should know of a result: value, lost output, restored memory, files."""
    if not isinstance(result, ExecutionResult):
        return []
    lines = []
    if result.value_repr is not None and result.value_repr not in result.output:
        lines.append(f"Value: {result.value_repr}")
    told = result.error == STOPPED or end_is_unknown(result)  # in its summary
    if result.error is not None and not told and result.error.message not in result.output:
        lines.append(f"{printable(result.error.type)}: {result.error.message}")
    if result.truncated:
        lines.append(f"{result.truncated:,} bytes of output were dropped.")
    if result.state != "kept":
        lines.append(f"The session's memory was {result.state}.")
    return [*lines, *result.notes, *map(_describe_file, result.artifacts)]


def hints_in(message: Message) -> list[str]:
    """Return what a message says to persons on the command line about limits of the sandbox that code has met."""
    return message.metadata.get("hints_with_flags", "").splitlines()


def _describe_file(file: Artifact) -> str:
    # In one line: a line break in a name must not look like one of our notes.
    note = f"; {printable(file.note)}" if file.note else ""
    return f"File: {printable(file.name)} ({format_size(file.size)}{note})"


class Transcript:
    """Prints the messages of one run."""

    def __init__(self, terminal: Terminal, *, team: bool = False) -> None:
        self._terminal = terminal
        self._team = team
        self._streamed = ""
        self._mid_line = False
        self._output = ""
        """What the code that runs has written, as far as it was printed; not more than `MAX_COMPARED`."""
        self._place = "Code"

    def show(self, message: Message) -> None:
        """Print one message."""
        if isinstance(message, ModelClientStreamingChunkEvent):
            if message.metadata.get("chunk_of") == "execution":
                self._show_output(message)
            else:
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
        self._streamed = "" if message.content == BEGINS_AGAIN else (self._streamed + message.content)[:MAX_COMPARED]
        self._mid_line = True
        self._terminal.write(message.content)

    def _show_generation(self, event: CodeGenerationEvent, streamed: str) -> None:
        panel = self._terminal.panel
        self._place = _position(event).capitalize()
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
            self._show_reply(message)
        elif message.content.strip() != streamed:
            title = self._title(message, "The model's answer")
            self._terminal.panel(title, message.content, "magenta", markdown=True)

    def _show_output(self, message: ModelClientStreamingChunkEvent) -> None:
        """Print a part of what running code writes."""
        if self._mid_line:
            self._terminal.line("\n")
        self._mid_line = False
        if not self._output:
            self._terminal.heading(message.source if self._team else f"{self._place} in the sandbox", "cyan")
        if len(self._output) < MAX_COMPARED:
            self._output += message.content
        self._terminal.output(message.content)

    def end(self) -> None:
        """End the line that was begun, because no further message comes."""
        if self._output:
            self._terminal.end_output()
        elif self._mid_line:
            self._terminal.line()
        self._output, self._mid_line = "", False

    def _show_result(self, event: CodeExecutionEvent) -> None:
        title = f"{_position(event).capitalize()} in the sandbox"
        output, notes = written_by_code(event.result), [*remarks(event.result), *hints_in(event)]
        self._show_end(title, output, notes, outcome_summary(event.result), good=event.result.exit_code == 0)

    def _show_reply(self, message: TextMessage) -> None:
        """Print how code has ended that an agent without a model ran."""
        code = message.metadata["exit_code"]
        ended = "ok" if code == "0" else f"exit code {code}"
        if message.metadata.get("outcome") == "crashed" and message.metadata.get("error") == INTERRUPTED:
            ended = "whether the code finished is unknown"
        elif "duration_s" in message.metadata:
            ended += f", {format_duration(float(message.metadata['duration_s']))}"
        notes = message.content.partition(self._output.strip())[2].strip().split("\n") if self._output else []
        # The hints in the message are for models that read it.
        notes = [note for note in notes if note and not note.startswith("Hint: ")] + hints_in(message)
        self._show_end(message.source, message.content, notes, ended, good=code == "0")

    def _show_end(self, title: str, output: str, notes: list[str], ended: str, *, good: bool) -> None:
        """Print of a result what was not printed while the code ran."""
        terminal = self._terminal
        if self._output:
            terminal.end_output()
        else:
            terminal.heading(title, "cyan")
            terminal.line(shorten(apply_carriage_returns(output).strip("\n").rstrip()) or "(no output)")
        self._output = ""
        for note in notes:
            terminal.line(note, "yellow")
        terminal.line(ended, "green" if good else "red")
        terminal.line()


def _position(event: CodeGenerationEvent | CodeExecutionEvent) -> str:
    return f"step {event.metadata['step']}" if "step" in event.metadata else f"attempt {event.retry_attempt + 1}"
