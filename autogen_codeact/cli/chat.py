"""`codeact chat`: a conversation with an agent or a team in a live session."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogen_agentchat.base import ChatAgent, TaskResult
from autogen_agentchat.base import Team as BaseTeam
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents import ApprovalRequest, ApprovalResponse
from autogen_codeact.agents.budget import prices_of
from autogen_codeact.agents.model_calls import DeadlineClient
from autogen_codeact.cli.approval import ALL, YES, CodeApproval
from autogen_codeact.cli.chat_input import Commands, Interrupted, Reader, open_reader
from autogen_codeact.cli.exit import EXIT_INTERRUPTED, CommandError, run_until_interrupted, say, silence_libraries
from autogen_codeact.cli.jobs import NO_LOG, AgentChoice, ChatJob
from autogen_codeact.cli.kept_runs import (
    check_folder,
    choose_run_folder,
    rebuilds,
    say_files,
    say_rebuilding,
)
from autogen_codeact.cli.model_choice import ModelChoice
from autogen_codeact.cli.models import RecordedModel, describe_error, key_for, named_key, open_model, without_key
from autogen_codeact.cli.progress import THINKING, Progress
from autogen_codeact.cli.sandbox import check_limits, make_agent, read_limits, started
from autogen_codeact.cli.sandbox_choice import with_skills
from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.cli.transcript import Message, Transcript
from autogen_codeact.executors import DockerCommandLineCodeExecutor
from autogen_codeact.executors.capabilities import capabilities_of
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.runs import load_run
from autogen_codeact.runs.agents import agent_keys, asks_first, describe_agents, load_agents, set_approval
from autogen_codeact.runs.conversation import RecordedConversation
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.notebook import export_files
from autogen_codeact.runs.plan import Plan, make_plan
from autogen_codeact.runs.store import find_run, run_name
from autogen_codeact.runs.text import model_name
from autogen_codeact.teams.loading import load_component
from autogen_codeact.teams.parts import executors_of
from codeact_sandbox import SandboxError

if TYPE_CHECKING:
    from autogen_codeact.cli.pages import LivePage


ENDING_DEADLINE_S = 15.0
_QUESTION = "Run this code? [y]es, [n]o, [a]ll of this chat, or what to do instead: "


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

    def sandboxes(self) -> list[SandboxCodeExecutor]:
        """Return the executors that are sandboxes."""
        return sandboxes_of(self.conversation.target)

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
                if (observed := capabilities_of(executor).sandbox) is not None:
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


CLIENT = "_model_client"
"""Attribute of AutoGen's agents with their model, which has no public name."""
_UNUSED_KEY = "none"
"""For a model that another one takes the place of."""


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
        if plan is None:
            target = _load(job)
            stack.push_async_callback(_close, target)
        else:
            try:
                target = load_agents(
                    plan, (), _keys(job), trust=job.how.trust, set_later=("approval_func", "approve_tool")
                )
            except RunError as error:
                raise without_key(error, (agent.model for agent in plan.started.agents)) from error
            stack.push_async_callback(_close, target)
            for _, agent in agent_keys(target):
                exchange_model(agent, _resumed_model(job, client, getattr(agent, CLIENT, None)))
        for each in sandboxes_of(target):
            await each.start()
            if plan is not None:
                _put_files_back(plan, each)
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


def _keys(job: ChatJob) -> str | Callable[[Mapping[str, Any]], str | None]:
    """Return the key of the models of an earlier chat, or what finds it."""
    if job.model.spec:
        return _UNUSED_KEY
    return named_key(job.model.api_key_env) if job.model.api_key_env is not None else key_for


async def _close(target: Any) -> None:
    close = getattr(target, "close", None)
    try:
        if close is not None:
            await close()
    finally:
        for executor in sandboxes_of(target):
            await executor.stop()


def exchange_model(agent: ChatAgent, client: ChatCompletionClient | None) -> None:
    """Give an agent another model client, if it has one."""
    if client is not None and getattr(agent, CLIENT, None) is not None:
        setattr(agent, CLIENT, client)


def _resumed_model(job: ChatJob, client: ChatCompletionClient | None, loaded: Any) -> ChatCompletionClient | None:
    if client is not None or loaded is None:
        return client
    if type(loaded).__name__ == "ReplayChatCompletionClient":  # AutoGen's loses line breaks when it streams
        loaded = RecordedModel([each for each in loaded.chat_completions if not isinstance(each, str)])
    return DeadlineClient(loaded, job.model.timeout_s)


def _put_files_back(plan: Plan, executor: SandboxCodeExecutor) -> None:
    """Write the files that the code had made into a workspace that was temporary."""
    with suppress(RunError, OSError):
        if executor.sandbox.options.work_dir is None and not any(executor.work_dir.iterdir()):
            export_files(plan.run, executor.work_dir)


def sandboxes_of(target: ChatAgent | BaseTeam) -> list[SandboxCodeExecutor]:
    """Return the executors that are sandboxes."""
    return [each for each in executors_of(target) if isinstance(each, SandboxCodeExecutor)]


def model_names(target: ChatAgent | BaseTeam) -> list[str]:
    """Return the names of the models, each once."""
    names = (model_name(info.model) for info in describe_agents(target) if info.model is not None)
    return list(dict.fromkeys(filter(None, names)))


def is_chat(folder: Path) -> bool:
    """Return whether a run is a chat; one that can't be read is none."""
    try:
        return load_run(folder).started.conversation
    except RunError:
        return False
