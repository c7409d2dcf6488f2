"""`codeact chat`: a conversation with an agent or a team in a live session."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from autogen_codeact.cli.chat_agent import is_chat, model_names, opened
from autogen_codeact.cli.chat_commands import Commands
from autogen_codeact.cli.chat_input import Interrupted, Reader, open_reader
from autogen_codeact.cli.chat_turns import Turns
from autogen_codeact.cli.exit import EXIT_INTERRUPTED, CommandError, run_until_interrupted, say, silence_libraries
from autogen_codeact.cli.jobs import ChatJob
from autogen_codeact.cli.kept_runs import (
    check_folder,
    choose_run_folder,
    max_total_size,
    rebuilds,
    remove_oldest,
    say_files,
    say_rebuilding,
)
from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.cli.transcript import Transcript
from autogen_codeact.runs import load_run
from autogen_codeact.runs.agents import asks_first, set_approval
from autogen_codeact.runs.conversation import RecordedConversation
from autogen_codeact.runs.plan import Plan, make_plan
from autogen_codeact.runs.store import find_run, run_name
from autogen_codeact.runs.summary import task_text
from codeact_sandbox.types.formatting import format_count

if TYPE_CHECKING:
    from autogen_codeact.cli.pages import LivePage


def run_chat(job: ChatJob) -> int:
    """Run a chat until the user leaves."""
    job.check()
    if job.save is not None:
        check_folder(job.save)
    max_total_size()  # a wrong value is told now, not at the end
    silence_libraries()
    chat = Chat(job)
    return run_until_interrupted(chat.run(), on_interrupt=chat.interrupt)


class Chat:
    """One conversation at a terminal or a pipe."""

    def __init__(self, job: ChatJob) -> None:
        self._job = job
        self._turns: Turns | None = None
        self._reader: Reader | None = None
        self._at_prompt = 0
        self._page: LivePage | None = None

    async def run(self) -> int:
        """Run the chat until the user leaves; return the exit status."""
        job = self._job
        plan = None
        if job.resume is not None:
            plan = await asyncio.to_thread(_read_plan, find_run(job.resume, is_chat=is_chat))
        self._reader = reader = open_reader()
        terminal = Terminal()
        async with opened(job, plan) as target:
            conversation = await self._conversation(plan, target)
            approve = asks_first(plan, wanted=job.approve) if plan is not None else job.approve
            view = Transcript(terminal, team=len(conversation.agents) > 1, chat=True)
            turns = self._turns = Turns(conversation, reader, view, terminal, model=job.model)
            if approve and not set_approval(target, turns.approve) and job.approve:
                raise CommandError("--approve needs an agent that runs code, and this one has none.")
            cancelled = True
            try:
                await self._show_page(turns)
                await self._greet(terminal, plan, turns)
                status = await self._talk(reader, turns, Commands(turns, terminal))
                cancelled = status != 0
            finally:
                await conversation.close(cancelled=cancelled)
                if self._page is not None:
                    await asyncio.to_thread(self._page.close, wait=False)
                _say_where(conversation)
        return status

    async def _conversation(self, plan: Plan | None, target: object) -> RecordedConversation:
        if plan is None:
            return RecordedConversation(target, self._job.save)  # type: ignore[arg-type]
        return await RecordedConversation.resume(
            plan,
            target,  # type: ignore[arg-type]
            rebuild=rebuilds(plan, plan.run.folder.path, wanted=self._job.how.rebuild, trust=self._job.how.trust),
            on_rebuild=say_rebuilding,
        )

    async def _greet(self, terminal: Terminal, plan: Plan | None, turns: Turns) -> None:
        names = ", ".join(model_names(turns.conversation.target)) or "no model"
        terminal.line(f"codeact chat with {names}. /help lists the commands.", "dim")
        if plan is None:
            return
        count = max(0, len(plan.undo_points) - 1) + (plan.turn is not None)
        terminal.line(f"Going on with {plan.run.folder.path.name}: {format_count(count, 'turn')}.", "dim")
        last = plan.turn or next((point.task for point in reversed(plan.undo_points) if point.task), None)
        if last is not None:
            terminal.line(f"The last message was: {task_text(last)[:200]}", "dim")
        if turns.conversation.is_open:
            terminal.line("Its turn was interrupted, and goes on:", "dim")
            await turns.go_on()

    async def _talk(self, reader: Reader, turns: Turns, commands: Commands) -> int:
        while True:
            try:
                text = (await reader.message()).strip()
            except EOFError:
                return 0
            except Interrupted:
                if self._pressed_at_prompt(turns):
                    return EXIT_INTERRUPTED
                continue
            if not text:
                continue
            turns.presses = self._at_prompt = 0
            if text in ("exit", "quit"):
                return 0
            if text.startswith("/") and not text.startswith("//"):
                if await commands.run(text):
                    return 0
                continue
            await self._say(turns, text.removeprefix("/"))

    async def _say(self, turns: Turns, text: str) -> None:
        conversation = turns.conversation
        if conversation.path is None and not self._job.no_save and not conversation.has_begun:
            conversation.path = choose_run_folder(text)
        await self._show_page(turns)
        await turns.say(text)

    async def _show_page(self, turns: Turns) -> None:
        """With `--view`, open the page of the chat as soon as its log has a place: with the first message."""
        path = turns.conversation.path
        if self._job.view and self._page is None and path is not None:
            from autogen_codeact.cli.pages import LivePage  # noqa: PLC0415 - of an extra

            self._page = LivePage(path, turns.end_turn)
            turns.approval.control = self._page.control
            await self._page.open()

    def _pressed_at_prompt(self, turns: Turns) -> bool:
        turns.presses += 1
        self._at_prompt += 1
        if turns.presses >= 3 or self._at_prompt >= 2:
            return True
        say("Ctrl-C again leaves the chat; so do /quit and Ctrl-D")
        return False

    def interrupt(self) -> bool:
        """Handle a Ctrl-C that no line editor has got; return whether the chat goes on."""
        turns = self._turns
        if turns is None:
            return False
        if turns.is_running:
            return turns.interrupt()
        return (self._reader is not None and self._reader.interrupt()) or not self._pressed_at_prompt(turns)


def _read_plan(folder: Path) -> Plan:
    plan = make_plan(folder)
    if not plan.started.conversation:
        raise CommandError(f"{folder} is a run and not a chat: `codeact resume {folder}` continues it.")
    return plan


def _say_where(conversation: RecordedConversation) -> None:
    path = conversation.path
    if path is None or not conversation.has_begun:
        return
    name = run_name(path)
    say(f"saved: `codeact chat --resume {name}` goes on with it, `codeact show {name}` prints it")
    say_files(load_run(path), name)
    if name != str(path):
        remove_oldest(path, max_total_size())
