"""`AsyncSandbox`: a sandbox that is started when it is needed, used, and replaced when it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, Unpack, overload

from codeact_sandbox import commands
from codeact_sandbox.backends import selection as select
from codeact_sandbox.backends.facts import SandboxFacts, facts_of, known_facts
from codeact_sandbox.backends.leftovers import remove_leftovers_in_background
from codeact_sandbox.files import archives, sync
from codeact_sandbox.files.operations import FileOperations
from codeact_sandbox.files.work_folder import WorkFolder
from codeact_sandbox.host.blocks import check_block, combine, make_request
from codeact_sandbox.host.chunks import OutputChunk, OutputChunks, stream_output
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.connection import OutputCallback
from codeact_sandbox.host.waiting import CrossLoopSemaphore
from codeact_sandbox.network.connector import Resolver, resolve_by_system
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.session import branches, ports
from codeact_sandbox.session.block_run import BlockRun, notify_refused
from codeact_sandbox.session.pool import Pool
from codeact_sandbox.session.preparation import prepare
from codeact_sandbox.session.replay import EMPTY_BLOCK, ExternalEffectsError, ReplayWorkspace
from codeact_sandbox.tools.approval import ApproveTool
from codeact_sandbox.tools.toolset import Tool, Toolset
from codeact_sandbox.types.errors import SandboxError, SandboxNotStarted, Unsupported
from codeact_sandbox.types.limits import parse_size, parse_timeout
from codeact_sandbox.types.observers import BlockId, Observer, Recorder, SandboxStarted, SandboxStopped, notify
from codeact_sandbox.types.option_parsing import merge_options, options_of
from codeact_sandbox.types.option_types import SandboxKeywords
from codeact_sandbox.types.options import BackendName, DockerOptions, Mode, SandboxOptions
from codeact_sandbox.types.result import Result
from codeact_sandbox.types.run_context import NO_CONTEXT, Block, CodeAndLanguage, RunContext
from codeact_sandbox.types.skills import Skill, find_skills
from codeact_sandbox.types.tool import HostToolProtocol

END_S = 2.0
END_REQUEST = {"path": None, "command": None, "keep_state": False, "end": True}
STOPPED = "the sandbox has been stopped: call start() before running more code"
LOST = (
    "The sandbox had ended since the last block; this block ran in a new one: variables and files made there are lost."
)


class AsyncSandbox(FileOperations):
    """Runs code in a hardened sandbox.

    Use it with `async with`, or with `start` and `stop`. If it has not been started, the first block starts it. Cancelling the
    task that awaits a block kills the block with everything that it started. It works in any event loop.

    The arguments and errors are those of `Sandbox`.
    """

    # Finds the addresses of the hosts in `allow_domains`, in a thread.
    resolve_name: Resolver = staticmethod(resolve_by_system)
    timeout = 60.0  # wall-clock seconds that a block may take
    starts = 0  # number of sandboxes started. If it has changed, what the last one contained is gone.
    unrecorded = 0  # number of blocks run and rollbacks made in this sandbox by callers that keep no journal

    def __init__(
        self,
        backend: BackendName | SandboxOptions = "auto",
        *,
        tools: Sequence[Tool] | Toolset = (),
        approve_tool: ApproveTool | None = None,
        recorder: Recorder | None = None,
        observers: Sequence[Observer] = (),
        progress: Callable[[str], None] | None = None,
        pool: Pool | None = None,
        caller: type | None = None,
        **options: Unpack[SandboxKeywords],
    ) -> None:
        given: Mapping[str, Any] = options
        if not isinstance(pool, Pool | None):
            raise TypeError(f"pool must be a SandboxPool, not {pool!r:.50} ({type(pool).__name__})")
        if pool is not None and backend == "auto":
            given = merge_options(pool.options.given(), given)
            backend = pool.options.backend
        self._caller = caller or type(self)
        self.options = options_of(backend, given, self._caller)
        self.timeout = self.options.timeout
        self._undecided = given if backend == "auto" and isinstance(self.options, DockerOptions) else None
        self.blocks = 0  # number of blocks run in this sandbox
        self.client: RunnerClient | None = None  # the client of the running sandbox's runner
        self.name: str | None = None  # name of the last sandbox
        given_tools = tools if isinstance(tools, Toolset) else Toolset(tools, self.options.tool_limits, approve_tool)
        self.tools: Toolset = given_tools
        self.attachments = self.tools.broker.attachments  # the recorders and observers
        if recorder is not None or observers:
            self.attach(recorder=recorder, observers=observers)
        self._progress = progress
        self._pool = pool
        if pool is not None:
            pool.check(self.options, self.tools)
        self._folder = WorkFolder()
        self.started_jobs: list[commands.Job] = []  # those of the last sandbox whose output is kept
        self.replaying_now = False  # whether the session is being rebuilt
        self.open_branch: branches.AsyncBranch | None = None  # the open branch
        self._stopped = False
        self._lost = False
        self._lifecycle = CrossLoopSemaphore()
        self._session = CrossLoopSemaphore()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @overload
    async def start(self) -> None: ...

    @overload
    async def start(
        self,
        command: commands.Words,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
    ) -> commands.Job: ...

    async def start(
        self,
        command: commands.Words | None = None,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
    ) -> commands.Job | None:
        """Start the sandbox, and nothing if it is running; or start a command in the background, beside blocks and commands.

        Args:
            command: Program and arguments, or a line for `/bin/sh -c`. Default: none, only the sandbox is started.
            cwd: The command's directory: absolute, or relative to the workspace. Default: the workspace.
            env: Variables besides the sandbox's own.
            stdin: Whether the job's `write` gives it standard input. Default: it has none.

        Returns:
            The job, whose output is kept (`limits.output`); None without a command.

        Raises:
            ValueError: An argument is invalid.
            SandboxFileError: `cwd` is not a directory there.
            SandboxError: The sandbox or the command did not start, or 64 commands run already.
        """
        if command is not None:
            return await commands.start_job(self, command, cwd=cwd, env=env, stdin=stdin)
        async with self._lifecycle:
            self._stopped = False
            await self._running()
        return None

    async def stop(self) -> None:
        """Stop the sandbox and everything in it; repeated calls, also before `start`, are harmless.

        With `stop_container=False` the container is kept for the next `start`.
        """
        async with self._lifecycle:
            self._stopped = True
            try:
                if self.options.autogen.stop_container:
                    self._lost = False
                    await self._stop(end_session=True)
            finally:
                await self.tools.stop()

    async def restart(self) -> None:
        """Start a new sandbox, with the files of `work_dir` and nothing else of the last one.

        Raises:
            SandboxError: It did not start.
        """
        async with self._lifecycle:
            await self._stop(keep_folder=True, end_session=True)
            self._stopped = self._lost = False
            await self.tools.start()
            await self._start()

    def attach(self, *, recorder: Recorder | None = None, observers: Sequence[Observer] = ()) -> Callable[[], None]:
        """Attach a recorder and observers, beside those that are attached already.

        They stay attached while the sandbox is stopped, restarted or leased from a pool. Any thread may attach and detach; it
        counts from the next block, start or stop on.

        Args:
            recorder: Keeps a record of the calls to host tools. Several are awaited in the order in which they were attached.
            observers: Notified of starts, stops, blocks and calls.

        Returns:
            Detaches them, at once, in the middle of a block, too; repeated calls are harmless.
        """
        return self.attachments.attach(recorder, observers)

    @property
    def work_dir(self) -> Path:
        """The folder on the host whose files are exchanged with the workspace.

        Raises:
            SandboxNotStarted: It is a temporary one and the sandbox has not been started.
        """
        return self._folder.path(self.options)

    @property
    def mode(self) -> Mode:
        """`process` or `session`."""
        return self.options.mode

    # Host tools

    def add_tools(self, tools: Sequence[Any], approve_tool: ApproveTool | None = None) -> None:
        """Let the code call more host tools, from the next block on. Those that it has already are ignored.

        Args:
            tools: As for the constructor.
            approve_tool: As for the constructor, if that has got none. Default: none.

        Raises:
            TypeError: Something is not a tool.
            ValueError: A tool can't be used; the message says why.
        """
        self.tools.add(tools, approve_tool)

    def offer_tool(self, tool: HostToolProtocol) -> None:
        """Let the code call a function of its caller, unless another has its name: it is not listed, and needs no approval."""
        self.tools.offer(tool)

    @property
    def known_tools(self) -> tuple[HostToolProtocol, ...] | None:
        """The functions of the host that the code can call; None if there are sources of tools that have not been started."""
        return self.tools.known

    async def list_tools(self) -> tuple[HostToolProtocol, ...]:
        """List the host tools; starts their sources, not the sandbox."""
        if self.tools.known is not None:
            return self.tools.known
        async with self._lifecycle:
            return await self.tools.start()

    @property
    def skills(self) -> list[Skill]:
        """The skills in /skills, as they are now on the host."""
        return find_skills(self.options.skills)

    @property
    def jobs(self) -> list[commands.Job]:
        """The jobs of this sandbox: those that run, and the last 32 that have ended."""
        return list(self.started_jobs)

    def new_client(self) -> RunnerClient:
        """Make the client of a sandbox with these options that has not been started."""
        remove_leftovers_in_background()
        return select.make_client(self.options, self.tools.broker.settings(), self._progress, self.resolve_name)

    async def _running(self) -> RunnerClient:
        client = self.client
        await self.tools.start()
        if client is None or not client.alive:
            self._lost = self._lost or client is not None
            await self._stop(keep_folder=True)
            client = await self._start()
        return client

    async def _start(self) -> RunnerClient:
        began = time.monotonic()
        if self._undecided is not None:
            found = await asyncio.to_thread(select.choose_backend, self._undecided)
            self.options = options_of(found, self._undecided, self._caller)
            self._undecided = None
        fresh = await self._folder.open(self.options)
        try:
            client = await self._pool.acquire() if self._pool is not None else self.new_client()
            self.name = client.name
            # A sandbox that replaces one that has died must start even if the files have become too large for it.
            self.blocks = await prepare(
                client, self.options, self.tools, self._folder.workspace, all_files=not self._lost
            )
        except BaseException:
            # A folder of earlier blocks must survive an engine that is unavailable for a moment.
            await self._folder.release(keep=not fresh)
            raise
        self.client, self.started_jobs = client, []
        self.starts, self.unrecorded = self.starts + 1, 0
        if fresh and self.options.snapshot is not None:
            try:
                await archives.restore(self, Path(self.options.snapshot))
            except BaseException:
                await self._stop()
                raise
        started = SandboxStarted(client.name, self.options.backend, time.monotonic() - began)
        notify(self.attachments.current, "sandbox_started", started)
        return client

    async def _stop(self, *, keep_folder: bool = False, end_session: bool = False) -> None:
        client, self.client, branch, self.open_branch = self.client, None, self.open_branch, None
        reasons: list[SandboxError] = []
        began = time.monotonic()
        try:
            if client is not None:
                if not client.alive:
                    client.when_ended(reasons.append)
                elif end_session and branch is None and not client.blocks.running:
                    await self._end_session(client)
        finally:
            if client is not None:
                await client.stop()
            await self._folder.close(keep=keep_folder)
            if client is not None:
                error = str(reasons[0]) if reasons else None
                stopped = SandboxStopped(client.name, error, time.monotonic() - began)
                notify(self.attachments.current, "sandbox_stopped", stopped)

    async def _end_session(self, client: RunnerClient) -> None:
        """End the interpreter as Python does, within two seconds, and copy what has changed since the last block."""
        workspace = self._folder.workspace
        with contextlib.suppress(SandboxError):
            if self.options.mode == "session" and self.blocks:
                await client.blocks.run(END_REQUEST, b"", END_S)
            if workspace is not None:
                await sync.pull_changed(workspace, client)

    async def _discard(self, client: RunnerClient) -> None:
        """Stop a sandbox with a partly rebuilt session; the next block gets another one."""
        async with self._lifecycle:
            if self.client is client:
                self._lost = True
                await self._stop(keep_folder=True)

    # Running code

    async def run(self, code: str, language: str = "python", timeout: float | None = None) -> Result:
        """Run code; the sandbox is started if it is not running.

        Args:
            code: The code.
            language: Its language. Default: Python.
            timeout: Wall-clock seconds that it may take. Default: the sandbox's `timeout`.

        Returns:
            What it did; an error in the code is a result, not an exception.

        Raises:
            ValueError: The timeout is not a positive number.
            SandboxError: Something around the code broke.
            asyncio.CancelledError: The task was cancelled; the code is dead by then. The exception's `result` has its output.
        """
        result = await self.run_all((Block(code, language),), timeout=timeout)
        if result.outcome == "timeout":
            limit = self.timeout if timeout is None else timeout
            result.notes = (*result.notes, f"It was stopped after {limit:g} s, its time limit (timeout=).")
        return result

    async def run_all(
        self,
        blocks: Sequence[CodeAndLanguage],
        context: RunContext = NO_CONTEXT,
        chunks: OutputChunks | None = None,
        *,
        timeout: float | None = None,
    ) -> Result:
        """Run blocks one after the other, up to the first that fails, and return one result for all.

        `chunks` gets their output while it is written; `timeout` is for each block.
        """
        if not blocks:
            raise ValueError("No code blocks to execute.")
        for block in blocks:
            check_block(block)
        limit = parse_timeout(timeout) if timeout is not None else self.timeout
        # In a session no other call's block runs between the blocks of one call.
        async with self._session if self.options.mode == "session" else contextlib.nullcontext():
            client = await self.ready()
            results: list[Result] = []
            for number, block in enumerate(blocks):
                listener = chunks.listener(number) if chunks is not None else None
                lost = self._lost
                try:
                    result = await self._run_block(client, block, context, limit, listener=listener)
                except SandboxError as error:
                    earlier = (call for each in results for call in each.tool_calls)
                    error.tool_calls = (*earlier, *error.tool_calls)
                    raise
                if lost:
                    result.notes, result.state = (LOST, *result.notes), "lost"
                    self._lost = False
                results.append(result)
                if chunks is not None:
                    chunks.finish(number, result)
                if result.exit_code != 0:
                    break
            return combine(results)

    async def ready(self) -> RunnerClient:
        """Return the running sandbox, or a new one if it has ended or was not started."""
        client = self.client
        if self.open_branch is not None and branches.inside.get() is not self.open_branch:
            raise Unsupported(branches.OPEN)
        if client is not None and client.alive and not self._stopped and self.tools.known is not None:
            return client
        async with self._lifecycle:
            if self._stopped:
                raise SandboxNotStarted(STOPPED)
            return await self._running()

    def interrupt(self) -> bool:
        """Stop the blocks that run, and return whether there were any; the session stays as it was before them.

        Whoever awaits such a block gets its result: the outcome `crashed`, the exit code 130 and an error of type `Stopped`.
        """
        return self.client is not None and self.client.blocks.interrupt()

    def stream_all(
        self,
        blocks: Sequence[CodeAndLanguage],
        context: RunContext = NO_CONTEXT,
        *,
        timeout: float | None = None,
        on_start: Callable[[asyncio.Future[Any]], object] | None = None,
    ) -> AsyncGenerator[OutputChunk | Result, None]:
        """Run blocks as `run_all` does, yield an `OutputChunk` for each piece of output, and finally the `Result`.

        `on_start` is called with the task that runs the blocks, which may be cancelled.
        """
        limit = parse_size(self.options.limits.output)
        return stream_output(partial(self.run_all, blocks, context, timeout=timeout), limit, on_start)

    def stream(
        self, code: str, language: str = "python", timeout: float | None = None
    ) -> AsyncGenerator[OutputChunk | Result, None]:
        """Run code as `run` does, and yield its output while it is written.

        The chunks together are the result's output, including the line after a timeout. If it is long, the head (half of
        `limits.output`) comes while it is written, and the tail when the code has ended. Closing the stream kills the code.

        Args:
            code: The code.
            language: Its language. Default: Python.
            timeout: Wall-clock seconds that it may take. Default: the sandbox's `timeout`.

        Yields:
            An `OutputChunk` for each piece of output, and finally the `Result`.

        Raises:
            ValueError: The timeout is not a positive number.
            SandboxError: Something around the code broke.
            asyncio.CancelledError: The task was cancelled; the code is dead by then.
        """
        return self.stream_all((Block(code, language),), timeout=timeout)

    async def _run_block(
        self,
        client: RunnerClient,
        block: CodeAndLanguage,
        context: RunContext,
        timeout: float,
        *,
        listener: OutputCallback | None = None,
        replay: ReplayWorkspace | None = None,
        observed: bool = True,
    ) -> Result:
        options, workspace = self.options, self._folder.workspace
        attached = self.attachments.current if observed else ()
        # The host gets the files of a branch if it is kept.
        request = make_request(block, options, scan=workspace is not None and not context.branch)
        if isinstance(request, Result):
            notify_refused(attached, BlockId(client.name, self.blocks + 1), block, request)
            return request
        self.unrecorded += not context.journalled
        self.blocks += 1
        ident = BlockId(client.name, self.blocks)  # other blocks can begin during each await below
        run = BlockRun(client, options, self.tools, workspace if replay is None else None, context, ident, replay)
        if attached:
            return await run.observed(attached, block, request, timeout, listener)
        return await run.run(block, request, timeout, listener)

    @property
    def known_facts(self) -> SandboxFacts:
        """What code finds in the sandbox, as far as it follows from the options."""
        return known_facts(self.options)

    async def facts(self) -> SandboxFacts:
        """Return what code finds in the sandbox: files now, packages at its start; it is started if it is not running.

        If it does not start, or does not answer within 5 s, the result contains only what follows from the options.
        """
        try:
            client = await self.ready()
        except SandboxError:
            return self.known_facts  # code that needs the sandbox will raise
        return await facts_of(client, self.options)

    # Commands beside the blocks

    exec = commands.run_command
    forward = ports.forward

    # The session's memory

    async def checkpoint(self) -> None:
        """Save the session's memory, until the next call or `stop`.

        Raises:
            ValueError: There is no session, or a block is running.
        """
        await self._command(wire.TAKE_CHECKPOINT)

    async def rollback(self) -> None:
        """Restore the session's memory to the last `checkpoint()`; can be repeated.

        Files, file offsets, threads and subprocesses are not restored.

        Raises:
            ValueError: There is no session or no checkpoint, or a block is running.
        """
        await self._command(wire.ROLL_BACK)
        self.unrecorded += 1

    def branch(self) -> branches.AsyncBranch:
        """Return a branch of the session, for `async with`: its blocks become the session with `keep()`, else they are undone.

        Variables and workspace are then as before. A branch has no network and calls only host tools that are `branch_safe`.
        On entry it raises `Unsupported` in process mode, in another branch, while commands run, with effects outside the sandbox
        (`network`, `bind_dir`), or if the session can't be saved (running threads, too little memory).
        """
        return branches.AsyncBranch(self)

    async def _command(self, kind: bytes) -> None:
        if self.options.mode != "session":
            raise ValueError("there is no session to checkpoint in process mode: use mode='session'")
        await (await self.ready()).requests.ask({}, kind=kind)

    # Replay

    @contextlib.asynccontextmanager
    async def replaying(self, known_marks: Iterable[str]) -> AsyncIterator[ReplayWorkspace]:
        """Let the session run blocks without effects outside it; at the end its workspace has the host's files again.

        `known_marks` are those of the files that the blocks need. All processes and threads of the blocks are ended; if that
        fails, the sandbox is stopped. It raises `ExternalEffectsError` if they could have an effect outside the sandbox.
        """
        async with self._session:
            client = await self.ready()
            if (reason := select.external_effects(self.options)) is not None:
                raise ExternalEffectsError(reason)
            assert self._folder.workspace is not None
            run_block = partial(self._run_block, client, timeout=self.timeout, observed=False)
            # Files made by the start are stored on the host after the first block, as in every session.
            await run_block(EMPTY_BLOCK, RunContext(journalled=True))
            replay = ReplayWorkspace(client, self._folder.workspace, run_block)
            try:
                self.replaying_now = True
                await replay.begin(set(known_marks), self.options.limits.workspace_bytes)
                yield replay
                await replay.end()
            except BaseException:
                await asyncio.shield(asyncio.ensure_future(self._discard(client)))
                raise
            finally:
                self.replaying_now = False
                replay.close()
