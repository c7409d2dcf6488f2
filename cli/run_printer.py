"""Prints the messages of a run, as text with what is happening now, or as JSON; and computes its exit status."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import CodeExecutionEvent, TextMessage
from autogen_core.code_executor import CodeExecutor

from autogen_codeact.agents.code_search import is_cut_off
from autogen_codeact.agents.not_run import COULD_RUN
from autogen_codeact.cli.agents import LANGUAGES
from autogen_codeact.cli.exit import CommandError, say
from autogen_codeact.cli.json_output import JsonPrinter, LastJsonLine
from autogen_codeact.cli.model_choice import ModelChoice
from autogen_codeact.cli.models import describe_error
from autogen_codeact.cli.progress import Progress
from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.cli.transcript import Message, Transcript
from autogen_codeact.executors.capabilities import capabilities_of
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.writer import LogLocked
from autogen_codeact.sandbox import SandboxError
from autogen_codeact.sandbox.types.languages import find_language
from autogen_codeact.teams import FinalWordTermination


class RunPrinter:
    """Prints the messages of one run. Files of the code may stay after it: then JSON names them."""

    def __init__(
        self, progress: Progress, end: LastJsonLine, folder: Path | None, *, team: bool, files_stay: bool = False
    ) -> None:
        self._progress, self._end, self._team = progress, end, team
        self._json = JsonPrinter(folder, files_stay=files_stay) if end.enabled else None
        self._transcript = Transcript(Terminal(), team=team)
        self._failed = self._answered = self._empty = self._cut_off = False
        self._not_run: list[str] = []

    @contextmanager
    def watching(self, executor: CodeExecutor) -> Iterator[None]:
        """Show the activity of an executor, if it can be observed."""
        observed = capabilities_of(executor).observed
        watcher = self._progress.watcher if self._json is None else self._json.watcher
        detach = observed.attach(observers=[watcher]) if observed is not None else None
        try:
            yield
        finally:
            if detach is not None:
                detach()

    async def follow(self, events: AsyncGenerator[Message | TaskResult, None], model: ModelChoice) -> TaskResult | None:
        """Print messages as they come, and return the result; an error that the model may have raised has its advice."""
        result = None
        try:
            async with aclosing(events) as items:
                async for event in items:
                    self._progress.follow(event)
                    if isinstance(event, TaskResult):
                        result = event
                        await self._judge(event)
                    else:
                        await self._show(event)
        except LogLocked as error:
            raise CommandError(str(error)) from error
        except (CommandError, SandboxError, RunError):
            raise
        except Exception as error:  # whatever a model client raises
            raise CommandError(f"The run failed. {describe_error(error, model)}") from error
        finally:
            self._progress.set(None)
            self._transcript.end()
        return result

    def print_problems(self) -> int:
        """Print what is wrong with the answer, and return the exit status."""
        if self._empty:
            say("the model's answer is empty")
        if self._cut_off:
            say("the model's answer ends inside a block of code")
        elif self._not_run:
            say(f"the model's answer has {' and '.join(self._not_run)} code in it that was not run")
        return 0 if self._answered and not (self._failed or self._not_run or self._cut_off) else 1

    async def _show(self, message: Message) -> None:
        if isinstance(message, CodeExecutionEvent):
            self._failed = message.result.exit_code != 0
        elif isinstance(message, TextMessage) and "exit_code" in message.metadata:
            self._failed = message.metadata["exit_code"] != "0"
        if self._json is not None:
            await self._json.show(message)
        else:
            self._transcript.show(message)

    async def _judge(self, result: TaskResult) -> None:
        """Find out whether there is an answer, and whether its code was run."""
        last = result.messages[-1]
        if not isinstance(last, TextMessage) or last.source == "user":
            return
        self._empty = not last.content.strip()
        self._answered = not self._empty and await self._is_final(last)
        if "answered_by" not in last.metadata:  # code can give code as its answer
            blocks = json.loads(last.metadata.get("not_run", "[]"))
            self._not_run = sorted({each["language"] for each in blocks if _is_to_run(each)})
            self._cut_off = is_cut_off(last.content)

    async def _is_final(self, last: TextMessage) -> bool:
        if self._team:
            final_word = FinalWordTermination("TERMINATE", sources=["coder"], languages=LANGUAGES)
            return await final_word([last]) is not None
        return "stopped" not in last.metadata


def _is_to_run(block: dict[str, str]) -> bool:
    """Return whether code in an answer was to be run: it could, or it is of a language that sandboxes may have."""
    return block["reason"] in COULD_RUN or (
        block["reason"] == "language" and find_language(block["language"]) is not None
    )
