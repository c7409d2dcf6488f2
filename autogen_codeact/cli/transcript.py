"""Prints what agents say and do, message by message."""

from __future__ import annotations

import time

from autogen_agentchat.base import TaskResult
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

from autogen_codeact.agents.budget import Prices
from autogen_codeact.agents.code_runner import OUTPUT_CHUNK
from autogen_codeact.agents.observation import INTERRUPTED, end_is_unknown, outcome_summary
from autogen_codeact.cli.output import in_options
from autogen_codeact.cli.terminal import AnswerPrinter, Terminal, format_size, shorten
from autogen_codeact.executors import ExecutionResult
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.result import STOPPED, Artifact, format_duration, written_by_code
from codeact_sandbox.types.text import apply_carriage_returns, format_count

Message = BaseAgentEvent | BaseChatMessage
MAX_COMPARED = 1_000_000  # characters of printed text that are kept, because a message repeats them


def remarks(result: CodeResult) -> list[str]:
    """Return what else a user should know of a result: value, displayed text, lost output, restored memory, files."""
    if not isinstance(result, ExecutionResult):
        return []
    lines = []
    if result.value_repr is not None and result.value_repr not in result.output:
        lines.append(f"Value: {result.value_repr}")
    for display in result.displays:
        text = display.text.strip()
        if display.path is None and display.image is None and text and text not in result.output:
            lines.append(shorten(text))
    told = result.error == STOPPED or end_is_unknown(result)  # in its summary
    if result.error is not None and not told and result.error.message not in result.output:
        lines.append(f"{printable(result.error.type)}: {result.error.message}")
    if result.truncated:
        lines.append(f"{result.truncated:,} bytes of output were dropped.")
    if result.state != "kept":
        lines.append(
            f"The session's variables were {'lost' if result.state == 'lost' else 'put back to before this code'}."
        )
    return [*lines, *result.notes, *map(_describe_file, result.artifacts)]


def hints_in(message: Message) -> list[str]:
    """Return what a message says to persons on the command line about limits of the sandbox that code has met."""
    return message.metadata.get("hints", "").splitlines()


def _describe_file(file: Artifact) -> str:
    # In one line: a line break in a name must not look like one of our notes.
    note = f"; {printable(file.note)}" if file.note else ""
    return f"File: {printable(file.name)} ({format_size(file.size)}{note})"


class Transcript:
    """Prints messages, with titles; in a `chat` without the user's own. With `team`, each has its sender's name.

    Args:
        prices: What the model costs, in US dollars. Default: unknown.
        max_cost: What it may cost in a turn. Default: no limit.
    """

    def __init__(
        self,
        terminal: Terminal,
        *,
        team: bool = False,
        chat: bool = False,
        prices: Prices | None = None,
        max_cost: float | None = None,
    ) -> None:
        self._terminal = terminal
        self._team, self._chat = team, chat
        self._answer = AnswerPrinter(terminal)
        self._answering = False
        self._streamed = ""  # what has been printed of an answer; not more than `MAX_COMPARED`, as of `_output`
        self._output = ""  # what the code that runs has written, as far as it was printed
        self._step = "Code"
        self._read = self._written = self._blocks = 0
        self._began = 0.0
        self._prices, self._max_cost = prices, max_cost

    def begin(self) -> None:
        self._began = time.monotonic()
        self._read = self._written = self._blocks = 0

    def summary(self) -> str:
        """Return blocks, tokens, cost and seconds of the turn."""
        blocks = f"{format_count(self._blocks, 'block')}, " if self._blocks else ""
        tokens = format_count(self._read + self._written, "token")
        if self._prices is not None and self._read + self._written:
            tokens += f", ${self._prices.cost(self._read, self._written):.4f}"
            tokens += f" of ${self._max_cost:g}" if self._max_cost is not None else ""
        return f"[{blocks}{tokens}, {format_duration(time.monotonic() - self._began)}]"

    def before_question(self, code: str) -> None:
        """Print what came before a question about code (as markdown), and the code if what comes from the agents may be late."""
        if self._team:
            self._answer.end()
            self._answer.add(f"{code}\n")
        self._end_answer()

    def end(self) -> None:
        """End the line that was begun, because no further message comes."""
        if self._output:
            self._terminal.end_output()
        self._end_answer()
        self._output = self._streamed = ""

    def show(self, message: Message | TaskResult) -> None:
        match message:
            case TaskResult():
                self.end()
                if limit := _limit_of(message):
                    self._terminal.line(limit, "yellow")
            case ModelClientStreamingChunkEvent() if message.metadata.items() >= OUTPUT_CHUNK.items():
                self._show_output(message)
            case ModelClientStreamingChunkEvent():
                if not self._answering:
                    self._terminal.line(f"{message.source if self._team else 'The model'} says:", "cyan", bold=True)
                self._answering = True
                self._answer.add(message.content)
            case ThoughtEvent():  # the message with the streamed text follows
                self._end_answer()
                title = message.source if self._team else "The model thinks"
                self._terminal.panel(title, message.content, "dim")
            case _:
                self._end_answer()
                streamed, self._streamed = self._streamed.strip(), ""
                self._count(message)
                self._show_whole(message, streamed)

    def _end_answer(self) -> None:
        self._streamed = (self._streamed + self._answer.end())[:MAX_COMPARED]
        if self._answering:
            self._terminal.line()
        self._answering = False

    def _show_output(self, message: ModelClientStreamingChunkEvent) -> None:
        self._end_answer()
        if not self._output:
            self._terminal.heading(message.source if self._team else f"{self._step} in the sandbox", "cyan")
        if len(self._output) < MAX_COMPARED:
            self._output += message.content
        self._terminal.output(message.content)

    def _show_whole(self, message: Message, streamed: str) -> None:
        terminal = self._terminal
        match message:
            case CodeGenerationEvent():
                self._show_generation(message, streamed)
            case CodeExecutionEvent(result=result):
                notes = [*remarks(result), *hints_in(message)]
                title = f"{_position(message).capitalize()} in the sandbox"
                self._show_end(title, result, written_by_code(result), notes, outcome_summary(result))
            case TextMessage() if "exit_code" in message.metadata:
                self._show_reply(message)
            case TextMessage(source="user"):
                if not self._chat:
                    terminal.panel("Task", message.content, "blue")
            case BaseChatMessage():
                title = "The model's answer" if isinstance(message, TextMessage) else type(message).__name__
                title = message.source if self._team and isinstance(message, TextMessage) else title
                if message.to_text().strip() != streamed:
                    terminal.panel(title, message.to_text(), "magenta", markdown=True)
            case _:
                terminal.panel(f"{type(message).__name__} of {message.source}", message.to_text(), "dim")

    def _show_generation(self, event: CodeGenerationEvent, streamed: str) -> None:
        position, sent_back = _position(event), event.metadata.get("sent_back")
        self._step = position.capitalize()
        if "retry" in event.metadata:
            self._terminal.panel("The model's decision", event.content, "yellow")
            return
        if event.content.strip() != streamed:
            self._terminal.panel(f"The model writes code ({position})", event.content, "cyan", markdown=True)
        if "cut_off" in event.metadata:
            self._terminal.line("The answer was cut off, so none of its code is run.\n", "red")
        elif sent_back is not None:
            self._terminal.line(f"Sent back to the model: {sent_back}\n", "yellow")

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
        result = CodeResult(exit_code=0 if code == "0" else 1, output="")
        self._show_end(message.source, result, message.content, notes, ended)

    def _show_end(self, title: str, result: CodeResult, output: str, notes: list[str], ended: str) -> None:
        """Print of a result what was not printed while the code ran."""
        terminal, shown = self._terminal, self._output
        self._output = ""
        if shown:
            terminal.end_output()
        else:
            terminal.heading(title, "cyan")
            terminal.line(shorten(apply_carriage_returns(output).strip("\n").rstrip()) or "(no output)")
        for note in notes:
            terminal.line(in_options(note), "yellow")
        terminal.line(f"{ended}\n", "green" if result.exit_code == 0 else "red")

    def _count(self, message: Message) -> None:
        self._blocks += isinstance(message, CodeExecutionEvent)
        if (usage := message.models_usage) is not None:
            self._read += usage.prompt_tokens
            self._written += usage.completion_tokens


def _limit_of(result: TaskResult) -> str | None:
    """Return what says that a limit has ended the run, and what was left undone."""
    if "is used up" in (result.stop_reason or ""):
        return result.stop_reason
    stopped = getattr(result.messages[-1], "metadata", {}).get("stopped") if result.messages else None
    limit = {"max_steps": "steps", "max_cost": "cost", "max_tokens": "tokens", "max_seconds": "seconds"}.get(
        stopped or ""
    )
    return f"The limit of --budget {limit} was reached: the answer says what is missing." if limit is not None else None


def _position(event: CodeGenerationEvent | CodeExecutionEvent) -> str:
    return f"step {event.metadata['step']}" if "step" in event.metadata else f"attempt {event.retry_attempt + 1}"
