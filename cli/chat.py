"""`codeact chat`: a conversation with an agent or a team in a live session."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam

from autogen_codeact.agents.budget import prices_of
from autogen_codeact.cli.chat_agent import is_chat, model_names, opened, sandboxes_of
from autogen_codeact.cli.chat_commands import Commands
from autogen_codeact.cli.chat_input import Interrupted, Reader, open_reader
from autogen_codeact.cli.chat_turns import Turns
from autogen_codeact.cli.exit import EXIT_INTERRUPTED, CommandError, run_until_interrupted, say, silence_libraries
from autogen_codeact.cli.jobs import NO_LOG, AgentChoice, ChatJob
from autogen_codeact.cli.kept_runs import (
    check_folder,
    choose_run_folder,
    rebuilds,
    say_files,
    say_rebuilding,
)
from autogen_codeact.cli.sandbox import check_limits, read_limits
from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.cli.transcript import Transcript
from autogen_codeact.executors import DockerCommandLineCodeExecutor
from autogen_codeact.runs import load_run
from autogen_codeact.runs.agents import asks_first, set_approval
from autogen_codeact.runs.conversation import RecordedConversation
from autogen_codeact.runs.plan import Plan, make_plan
from autogen_codeact.runs.store import find_run, run_name

if TYPE_CHECKING:
    from autogen_codeact.cli.pages import LivePage


def run_chat(job: ChatJob) -> int:
    """Run a chat until the user leaves."""
    job.check()
    check_folder(job.save)
    check_limits(AgentChoice(job.team, not job.team), read_limits(job.budget, job.model.spec))
    silence_libraries()
    chat = Chat(job)
    return run_until_interrupted(chat.run(), on_interrupt=chat.interrupt)


class Chat:
    """One conversation at a terminal or a pipe."""

    def __init__(self, job: ChatJob) -> None:
        self._job = job
        self._turns: Turns | None = None
        self._reader: Reader | None = None
        self._commands: Commands | None = None
        self._at_prompt = 0
        self._page: LivePage | None = None

    async def run(self) -> int:
        """Run the chat until the user leaves; return the exit status."""
        job = self._job
        plan = None
        if job.resume is not None:
            plan = await asyncio.to_thread(_read_plan, find_run(job.resume, is_chat=is_chat))
        terminal = Terminal()
        async with opened(job, plan) as target:
            conversation = await self._conversation(plan, target)
            approve = asks_first(plan, wanted=job.approve) if plan is not None else job.approve
            view = Transcript(terminal, team=len(conversation.agents) > 1, chat=True)
            limits = read_limits(job.budget, job.model.spec)
            view.prices, view.max_cost = limits.prices or prices_of(model_names(target)), limits.max_cost
            self._reader = reader = open_reader()
            turns = self._turns = Turns(conversation, reader, view, terminal, model=job.model)
            self._commands = commands = Commands(turns, terminal)
            if approve and not set_approval(target, turns.approve) and job.approve:
                raise CommandError("--approve needs an agent that runs code, and this one has none.")
            cancelled = True
            try:
                await self._show_page(turns)
                await self._greet(terminal, plan, turns)
                status = await self._talk(reader, turns, commands)
                cancelled = status != 0
            finally:
                await conversation.close(cancelled=cancelled)
                if self._page is not None:
                    await asyncio.to_thread(self._page.close, wait=False)
                _say_where(conversation)
        return status

    async def _conversation(self, plan: Plan | None, target: object) -> RecordedConversation:
        if plan is None:
            save = self._job.save if self._job.save != NO_LOG else None
            return RecordedConversation(target, save)  # type: ignore[arg-type]
        return await RecordedConversation.resume(
            plan,
            target,  # type: ignore[arg-type]
            rebuild=rebuilds(plan, plan.run.folder.path, wanted=self._job.how.rebuild, trust=self._job.how.trust),
            on_rebuild=say_rebuilding,
        )

    async def _greet(self, terminal: Terminal, plan: Plan | None, turns: Turns) -> None:
        described = _described(turns.conversation.target)
        terminal.field("", f"codeact chat: {described}. /help lists the commands.", indent=0)
        if plan is None:
            return
        name = run_name(plan.run.folder.path)
        terminal.line(f"Going on with {name}; `codeact show {name}` prints what was said.", "dim")
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
            if text[0] not in "/!":
                await self._say(turns, text, commands)
            elif text[:2] in ("//", "!!"):
                await self._say(turns, text[1:], commands)
            elif await commands.run(text):
                return 0

    async def _say(self, turns: Turns, text: str, commands: Commands) -> None:
        conversation = turns.conversation
        if conversation.path is None and self._job.save != NO_LOG and not conversation.has_begun:
            conversation.path = choose_run_folder(text)
        await self._show_page(turns)
        await turns.say(commands.message(text))

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


def _described(target: ChatAgent | BaseTeam) -> str:
    """Return the models, the sandbox, and where its files are."""
    models = ", ".join(model_names(target)) or "no model"
    for executor in sandboxes_of(target):
        backend = "Docker" if isinstance(executor, DockerCommandLineCodeExecutor) else "bubblewrap"
        folder = executor.options.work_dir
        where = f"folder {Path(folder).absolute()}" if folder is not None else "temporary folder"
        return f"{models}, {backend} sandbox, {where}"
    return models


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
