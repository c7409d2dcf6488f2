"""`codeact chat`: a conversation with an agent or a team in a live session."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogen_agentchat.base import ChatAgent, TaskResult
from autogen_agentchat.base import Team as BaseTeam
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents import ApprovalRequest, ApprovalResponse
from autogen_codeact.agents.budget import prices_of
from autogen_codeact.agents.model_calls import DeadlineClient
from autogen_codeact.cli.approval import ALL, YES, CodeApproval
from autogen_codeact.cli.chat_input import Commands, Interrupted, open_reader
from autogen_codeact.cli.jobs import NO_LOG, AgentChoice, ChatJob, ModelChoice
from autogen_codeact.cli.kept_runs import (
    check_folder,
    choose_run_folder,
    is_chat,
    print_chat_location,
    rebuilds,
    say_rebuilding,
)
from autogen_codeact.cli.models import describe_error, open_model, resumed_key, without_key
from autogen_codeact.cli.output import EXIT_INTERRUPTED, CommandError, run_until_interrupted, say, silence_libraries
from autogen_codeact.cli.progress import THINKING, Progress
from autogen_codeact.cli.sandbox import check_limits, make_agent, read_limits, started
from autogen_codeact.cli.sandbox_choice import with_skills
from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.cli.transcript import Message, Transcript
from autogen_codeact.executors import DockerCommandLineCodeExecutor
from autogen_codeact.executors.capabilities import capabilities_of
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.runs.agents import asks_first, describe_agents, load_agents, set_approval
from autogen_codeact.runs.conversation import RecordedConversation
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.notebook import export_files
from autogen_codeact.runs.plan import Plan, make_plan
from autogen_codeact.runs.store import find_run, run_name
from autogen_codeact.runs.text import model_name
from autogen_codeact.teams.loading import load_component
from autogen_codeact.teams.parts import executors_of, wrap_models
from codeact_sandbox import SandboxError

if TYPE_CHECKING:
    from autogen_codeact.cli.pages import LivePage


ENDING_DEADLINE_S = 15.0
_UNUSED_KEY = "none"
"""For a model that another one takes the place of."""
_LOST = (
    "The sandbox had died, and a new one was started, without the variables of this session. Files of the workspace "
    "were put back as far as this machine has them."
)
_QUESTION = "Run this code? [y]es, [n]o, [a]ll of this chat, or what to do instead: "


def run_chat(job: ChatJob) -> int:
    job.check()
    check_folder(job.save)
    check_limits(AgentChoice(job.team, not job.team), read_limits(job.budget, job.model.spec))
    silence_libraries()
    chat = Chat(job)
    return run_until_interrupted(chat.run(), on_interrupt=chat.interrupt)


class Chat:
    """One conversation at a terminal or a pipe."""

    conversation: RecordedConversation
    _view: Transcript

    def __init__(self, job: ChatJob) -> None:
        self.model = job.model
        self._job = job
        self._terminal = Terminal()
        self._reader = open_reader()
        self._commands = Commands(self, self._terminal)
        self._approval = CodeApproval(self._ask)
        self._running: asyncio.Task[Any] | None = None
        self._presses = 0
        """What Ctrl-C has done: 1 if it stopped a block, 2 if it ended a turn or warned; the next one leaves."""
        self._talking = False
        self._withdrawn = False
        self._progress: Progress | None = None
        self._page: LivePage | None = None

    async def run(self) -> int:
        """Run the chat until the user leaves; return the exit status."""
        job = self._job
        plan = None
        if job.resume is not None:
            plan = await asyncio.to_thread(_read_plan, find_run(job.resume, is_chat=is_chat))
        async with opened(job, plan) as target:
            self.conversation = await self._conversation(plan, target)
            limits = read_limits(job.budget, job.model.spec)
            self._view = Transcript(
                self._terminal,
                team=len(self.conversation.agents) > 1,
                chat=True,
                prices=limits.prices or prices_of(model_names(target)),
                max_cost=limits.max_cost,
            )
            approve = asks_first(plan, wanted=job.approve) if plan is not None else job.approve
            if approve and not set_approval(target, self._approve) and job.approve:
                raise CommandError("--approve needs an agent that runs code, and this one has none.")
            status = EXIT_INTERRUPTED
            try:
                await self._show_page()
                await self._greet(plan)
                status = await self._talk()
            finally:
                await self.conversation.close(cancelled=status != 0)
                if self._page is not None:
                    await asyncio.to_thread(self._page.close, wait=False)
                if self.conversation.path is not None and self.conversation.has_begun:
                    print_chat_location(self.conversation.path)
        return status

    async def _conversation(self, plan: Plan | None, target: Any) -> RecordedConversation:
        if plan is None:
            save = self._job.save if self._job.save != NO_LOG else None
            if self._job.view and save is None:
                save = choose_run_folder("chat")  # the page needs a place before the first message
            return RecordedConversation(target, save)
        how = self._job.how
        rebuild = rebuilds(plan, plan.run.folder.path, wanted=how.rebuild, trust=how.trust)
        return await RecordedConversation.resume(plan, target, rebuild=rebuild, on_rebuild=say_rebuilding)

    async def _greet(self, plan: Plan | None) -> None:
        described = _described(self.conversation.target)
        self._terminal.field("", f"codeact chat: {described}. /help lists the commands.", indent=0)
        if plan is None:
            return
        name = run_name(plan.run.folder.path)
        self._terminal.line(f"Going on with {name}; `codeact show {name}` prints what was said.", "dim")
        if self.conversation.is_open:
            self._terminal.line("Its turn was interrupted, and goes on:", "dim")
            await self._turn(self.conversation.go_on())

    async def _talk(self) -> int:
        self._talking = True
        while True:
            try:
                text = (await self._reader.message()).strip()
            except EOFError:
                return 0
            except Interrupted:
                if not self._warned():
                    return EXIT_INTERRUPTED
                continue
            if not text:
                continue
            self._presses = 0
            if text in ("exit", "quit"):
                return 0
            if text[0] not in "/!" or text[:2] in ("//", "!!"):
                await self._say(text[1:] if text[0] in "/!" else text)
            elif await self._commands.run(text):
                return 0

    async def _say(self, text: str) -> None:
        conversation = self.conversation
        if conversation.path is None and self._job.save != NO_LOG and not conversation.has_begun:
            conversation.path = choose_run_folder(text)
        await self._turn(conversation.turn(self._commands.message(text)))

    async def _show_page(self) -> None:
        """With `--view`, open the page of the chat."""
        if self._job.view and (path := self.conversation.path) is not None:
            from autogen_codeact.cli.pages import LivePage  # noqa: PLC0415 - of an extra

            self._page = LivePage(path, self._end_turn)
            self._approval.control = self._page.control
            await self._page.open()

    # A turn

    async def _turn(self, items: AsyncGenerator[Message | TaskResult, None]) -> None:
        before = self._starts()
        self._view.begin()
        with Progress() as progress, ExitStack() as attached:
            for executor in executors_of(self.conversation.target):
                if (observed := capabilities_of(executor).sandbox) is not None:
                    attached.callback(observed.attach(observers=[progress.watcher]))
            self._progress = progress
            progress.set(THINKING)
            task = await self._finished(self._show(items, progress))
        self._progress = None
        self._view.end()
        if task.cancelled():
            self._terminal.line("[turn ended; the conversation is as it was before it]", "yellow")
        elif (error := task.exception()) is not None:
            of_sandbox = isinstance(error, SandboxError)
            text = f"{type(error).__name__}: {error}" if of_sandbox else describe_error(error, self.model)
            self._terminal.line(f"The turn failed. {text}", "red")
            self._terminal.line("The conversation is as it was before it.", "yellow")
        if any(earlier and now > earlier for earlier, now in zip(before, self._starts(), strict=False)):
            self._terminal.line(_LOST, "yellow")
        self._terminal.line(self._view.summary(), "dim")

    async def _show(self, items: AsyncGenerator[Message | TaskResult, None], progress: Progress) -> None:
        async with aclosing(items) as stream:
            async for item in stream:
                self._view.show(item)
                progress.follow(item)

    def _starts(self) -> list[int]:
        """Return how often each sandbox has been started."""
        found = (capabilities_of(executor).session for executor in executors_of(self.conversation.target))
        return [session.starts for session in found if session is not None]

    def sandboxes(self) -> list[SandboxCodeExecutor]:
        return sandboxes_of(self.conversation.target)

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
            task.cancel()
            await asyncio.wait({task}, timeout=ENDING_DEADLINE_S)
            if task.done() and not task.cancelled():
                task.exception()  # asyncio would print it
            raise
        finally:
            self._running = None
        return task

    # Ctrl-C

    def interrupt(self) -> bool:
        """Handle a Ctrl-C that no line editor has got; return whether the chat goes on.

        In a turn, the first stops the block, the second ends the turn, and the third leaves.
        """
        if self._running is None:
            return self._reader.interrupt() or (self._talking and self._warned())
        self._presses += 1
        if self._presses == 1 and self._stop_block():
            self._terminal.line()
            self._terminal.line("[stopping the code; Ctrl-C again ends the turn]", "yellow")
        elif self._presses < 3:
            self._end_turn()
        return self._presses < 3

    def _warned(self) -> bool:
        """Warn after a Ctrl-C at the prompt; return False if that was done before, or a turn was ended."""
        if self._presses >= 2:
            return False
        self._presses = 2
        say("Ctrl-C again leaves the chat; so do /quit and Ctrl-D")
        return True

    def _end_turn(self) -> None:
        if self._running is not None:
            self._running.cancel()

    def _stop_block(self) -> bool:
        if self._reader.interrupt():  # the question whether it may run
            return True
        executors = executors_of(self.conversation.target)
        stopped = [executor.interrupt() for executor in executors if hasattr(executor, "interrupt")]
        return any(stopped)

    async def _approve(self, request: ApprovalRequest) -> ApprovalResponse:
        try:
            return await self._approval(request)
        except Interrupted:
            self._withdrawn = False
            self._presses = max(self._presses, 1)
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


@asynccontextmanager
async def opened(job: ChatJob, plan: Plan | None) -> AsyncIterator[ChatAgent | BaseTeam]:
    """Make the agent or team with a running sandbox, and release everything afterwards."""
    async with AsyncExitStack() as stack:
        client = None
        if job.model.spec:
            client = open_model(job.model)
            stack.push_async_callback(client.close)
        if plan is None and job.component is None:
            assert client is not None
            executor = await stack.enter_async_context(started(with_skills(job.sandbox)))
            choice = AgentChoice(job.team, not job.team)
            limits = read_limits(job.budget, job.model.spec)
            yield make_agent(choice, limits, client, executor, stream=True, stream_output=True)
            return
        target = _load(job) if plan is None else _load_again(job, plan, client)
        stack.push_async_callback(_close, target)
        for executor in sandboxes_of(target):
            await executor.start()
            if plan is not None:
                _put_files_back(plan, executor)
        yield target


def _load(job: ChatJob) -> ChatAgent | BaseTeam:
    file = job.component
    assert file is not None
    try:
        loaded = load_component(file, trusted=True)
    except OSError as error:
        raise CommandError(f"{file} can't be read: {error.strerror}") from error
    except Exception as error:  # whatever the constructor of a component raises
        raise CommandError(f"{file} can't be loaded: {describe_error(error, ModelChoice(str(file)))}") from error
    if not isinstance(loaded, ChatAgent | BaseTeam):
        raise CommandError(f"{file} is the component of a {type(loaded).__name__}, not of an agent or a team.")
    return loaded


def _load_again(job: ChatJob, plan: Plan, client: ChatCompletionClient | None) -> ChatAgent | BaseTeam:
    """Make the agent or team of an earlier chat, with another model if one is named."""
    key = resumed_key(job.model.api_key_env) if client is None else _UNUSED_KEY
    try:
        target = load_agents(plan, (), key, trust=job.how.trust, set_later=("approval_func", "approve_tool"))
    except RunError as error:
        raise without_key(error, (agent.model for agent in plan.started.agents)) from error
    wrap_models([target], lambda loaded: client or DeadlineClient(loaded, job.model.timeout_s))
    return target


async def _close(target: Any) -> None:
    close = getattr(target, "close", None)
    try:
        if close is not None:
            await close()
    finally:
        for executor in sandboxes_of(target):
            await executor.stop()


def _put_files_back(plan: Plan, executor: SandboxCodeExecutor) -> None:
    """Write the files that the code had made into a workspace that was temporary."""
    with suppress(RunError, OSError):
        if executor.sandbox.options.work_dir is None and not any(executor.work_dir.iterdir()):
            export_files(plan.run, executor.work_dir)


def sandboxes_of(target: ChatAgent | BaseTeam) -> list[SandboxCodeExecutor]:
    return [part for part in executors_of(target) if isinstance(part, SandboxCodeExecutor)]


def model_names(target: ChatAgent | BaseTeam) -> list[str]:
    names = (model_name(info.model) for info in describe_agents(target) if info.model is not None)
    return list(dict.fromkeys(filter(None, names)))
