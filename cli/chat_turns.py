"""The turns of a chat: running one, what Ctrl-C does to it, and asking for approval."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from typing import Any

from autogen_agentchat.base import TaskResult

from autogen_codeact.agents import ApprovalRequest, ApprovalResponse
from autogen_codeact.cli.approval import ALL, YES, CodeApproval
from autogen_codeact.cli.chat_input import Interrupted, Reader
from autogen_codeact.cli.model_choice import ModelChoice
from autogen_codeact.cli.models import describe_error
from autogen_codeact.cli.progress import THINKING, Progress
from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.cli.transcript import Message, Transcript
from autogen_codeact.executors.capabilities import capabilities_of
from autogen_codeact.runs.conversation import RecordedConversation
from autogen_codeact.teams.parts import executors_of
from codeact_sandbox import SandboxError

ENDING_DEADLINE_S = 15.0
_QUESTION = "Run this code? [y]es, [n]o, [a]ll of this chat, or what to do instead: "


class Turns:
    """Runs the turns of a chat, one after the other."""

    def __init__(
        self,
        conversation: RecordedConversation,
        reader: Reader,
        view: Transcript,
        terminal: Terminal,
        *,
        model: ModelChoice,
    ) -> None:
        self.conversation = conversation
        self.model = model
        self.presses = 0
        """How often Ctrl-C was pressed since the last message."""
        self._reader = reader
        self._view = view
        self._terminal = terminal
        self._running: asyncio.Task[None] | None = None
        self.approval = CodeApproval(self._ask)
        self._withdrawn = False
        self._progress: Progress | None = None

    @property
    def is_running(self) -> bool:
        """Whether there is a turn, or something else that Ctrl-C ends."""
        return self._running is not None

    async def say(self, text: str) -> None:
        """Run a turn with a message, and print what happens."""
        await self._run(self.conversation.turn(text))

    async def go_on(self) -> None:
        """End the turn that was interrupted."""
        await self._run(self.conversation.go_on())

    async def guarded(self, work: Any) -> Any:
        """Await something that Ctrl-C ends; None if it has."""
        task = await self._finished(work)
        if task.cancelled():
            self._terminal.line("[stopped]", "yellow")
            return None
        return task.result()

    async def _finished(self, work: Any) -> asyncio.Task[Any]:
        """Await something that Ctrl-C ends, and return its task, which is done."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._running = task
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            await self._end(task)
            raise
        finally:
            self._running = None
        return task

    # A turn

    async def _run(self, items: AsyncGenerator[Message | TaskResult, None]) -> None:
        before = self._sandboxes()
        self._view.begin()
        with self._in_progress():
            task = await self._finished(self._show(items))
        self._view.end()
        if task.cancelled():
            self._terminal.line("[turn ended; the conversation is as it was before it]", "yellow")
        elif (error := task.exception()) is not None:
            self._show_error(error)
        self._say_lost(before)
        self._terminal.line(self._view.summary(), "dim")

    @contextmanager
    def _in_progress(self) -> Iterator[None]:
        """Show what is happening, in a line that is hidden while other output is written."""
        with Progress() as progress, ExitStack() as attached:
            for executor in executors_of(self.conversation.target):
                if (observed := capabilities_of(executor).observed) is not None:
                    attached.callback(observed.attach(observers=[progress.watcher]))
            self._progress = progress
            progress.set(THINKING)
            try:
                yield
            finally:
                self._progress = None

    async def _show(self, items: AsyncGenerator[Message | TaskResult, None]) -> None:
        async with aclosing(items) as stream:
            async for item in stream:
                self._view.show(item)
                if self._progress is not None:
                    self._progress.follow(item)

    @staticmethod
    async def _end(task: asyncio.Task[Any]) -> None:
        task.cancel()
        await asyncio.wait({task}, timeout=ENDING_DEADLINE_S)
        if task.done() and not task.cancelled():
            task.exception()  # asyncio would print it

    def _show_error(self, error: BaseException) -> None:
        of_sandbox = isinstance(error, SandboxError)
        text = f"{type(error).__name__}: {error}" if of_sandbox else describe_error(error, self.model)
        self._terminal.line(f"The turn failed. {text}", "red")
        self._terminal.line("The conversation is as it was before it.", "yellow")

    # Ctrl-C

    def interrupt(self) -> bool:
        """Handle Ctrl-C in a turn: the first stops the block, the second ends the turn; False for the third, which leaves."""
        self.presses += 1
        if self.presses == 1 and self._stop_block():
            self._terminal.line()
            self._terminal.line("[stopping the code; Ctrl-C again ends the turn]", "yellow")
        elif self.presses < 3:
            self.end_turn()
        return self.presses < 3

    def end_turn(self) -> None:
        """End what runs now, as a second Ctrl-C does."""
        if self._running is not None:
            self._running.cancel()

    def _stop_block(self) -> bool:
        if self._reader.interrupt():  # the question whether it may run
            return True
        stopped = [
            executor.interrupt()
            for executor in executors_of(self.conversation.target)
            if hasattr(executor, "interrupt")
        ]
        return any(stopped)

    # Approval

    async def approve(self, request: ApprovalRequest) -> ApprovalResponse:
        """Ask whether code may run."""
        try:
            return await self.approval(request)
        except Interrupted:
            self._withdrawn = False
            self.presses = max(self.presses, 1)
            return ApprovalResponse(approved=False, reason="the person stopped it")

    async def _ask(self, code: str) -> str:
        self._view.before_question(code)
        if self._progress is not None:
            self._progress.set(None)
        number = f" {secrets.randbelow(900) + 100}" if self._withdrawn else ""
        self._withdrawn = True  # until there is an answer
        answer = None
        while answer is None or (number and answer.lower() in YES + ALL):
            if number:
                # What was typed for the question before must not allow this code.
                self._terminal.line(f"An earlier question was answered on the page: a yes is now y{number}", "yellow")
            answer = (await self._reader.answer(_QUESTION)).strip()
        self._withdrawn = False
        return answer.removesuffix(number)

    # A sandbox that has died

    def _sandboxes(self) -> list[int]:
        found = (capabilities_of(executor).session for executor in executors_of(self.conversation.target))
        return [session.starts for session in found if session is not None]

    def _say_lost(self, before: list[int]) -> None:
        if any(earlier and now > earlier for earlier, now in zip(before, self._sandboxes(), strict=False)):
            self._terminal.line(
                "The sandbox had died, and a new one was started, without the variables of this session. Files of the workspace "
                "were put back as far as this machine has them.",
                "yellow",
            )
