"""AutoGen's `CodeExecutor` on top of a sandbox: blocks in, result out."""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor

from autogen_codeact.executors.checkpoints import Checkpoints
from autogen_codeact.executors.result import ExecutionResult, as_execution_result
from autogen_codeact.executors.tools.executor_tools import ExecutorTools
from autogen_codeact.executors.tools.host_tools import ToolLike
from autogen_codeact.sandbox.egress.gateway import Gateway
from autogen_codeact.sandbox.egress.outside import Outside, Resolver, resolve_by_system
from autogen_codeact.sandbox.egress.policy import Policy
from autogen_codeact.sandbox.errors import SandboxError, SandboxFileError, SandboxNotStarted, SandboxStartError
from autogen_codeact.sandbox.files import sync
from autogen_codeact.sandbox.files.manifest import manifest_of
from autogen_codeact.sandbox.files.protected import WriteBack
from autogen_codeact.sandbox.files.temporary import TemporaryFolder
from autogen_codeact.sandbox.files.transfers import FileTransfers
from autogen_codeact.sandbox.files.workspace import Workspace
from autogen_codeact.sandbox.host.block_reply import add_connections, combine, to_result
from autogen_codeact.sandbox.host.block_request import BlockRequest, make_request
from autogen_codeact.sandbox.host.chunks import OutputChunk, OutputChunks
from autogen_codeact.sandbox.host.client import RunnerClient
from autogen_codeact.sandbox.host.connection import Listener, Reply
from autogen_codeact.sandbox.host.languages import Language
from autogen_codeact.sandbox.host.loops import CancelledBy, in_thread
from autogen_codeact.sandbox.host.turns import Turns
from autogen_codeact.sandbox.limits import Limits, parse_limits, parse_size, parse_timeout
from autogen_codeact.sandbox.result import Artifact, Result
from autogen_codeact.sandbox.run_context import NO_CONTEXT, RunContext
from autogen_codeact.sandbox.tools.approval import ApproveTool
from autogen_codeact.sandbox.tools.limits import ToolLimits
from autogen_codeact.sandbox.tools.tool import HostTool

if TYPE_CHECKING:
    from autogen_codeact.executors.pool import SandboxPool
    from autogen_codeact.executors.scratch import Scratch

INIT_TIMEOUT_S = 60.0
WORKSPACE = "/workspace"
LOST = (
    "The sandbox had ended since the last block; this block ran in a new one: variables and files made there are lost."
)


class SandboxCodeExecutor(FileTransfers, Checkpoints, CodeExecutor):
    """What all our executors have in common; a subclass says how its sandbox is started.

    Args:
        timeout: Wall-clock seconds that a block may take.
        mode: `process` (each block a fresh process) or `session` (one live interpreter).
        work_dir: Folder on the host whose files are exchanged with the workspace, or None for a temporary one.
        mounted: Whether the workspace is itself a folder of the host, so that nothing need be copied.
        languages: The table of languages.
        split_streams: Whether standard output and error are kept apart.
        delete_tmp_files: Whether the code of unnamed blocks is not kept on the host.
        init_command: Shell command that runs once when the sandbox has started, or None.
        functions_source: Source of the module of functions for the code, or None.
        functions_module: Name of that module.
        allow_domains: Hosts that the code may reach; docs/network.md.
        tools: Functions of the host that the code can call.
        tool_limits: How much a block may use of them, or None for the default.
        approve_tool: Asked before each call, or None to allow all.
        pool: Where sandboxes come from, or None to start each one when it is needed.
        limits: What the sandbox may use, or None for the defaults.
        write_back: Names such as ".git" that are written to `work_dir` although programs act on them automatically.
    """

    resolve_name: Resolver = staticmethod(resolve_by_system)
    """Finds the addresses of the hosts in `allow_domains`, in a thread."""

    def __init__(
        self,
        *,
        timeout: float,
        mode: str,
        work_dir: Path | None,
        mounted: Path | None,
        languages: Mapping[str, Language],
        split_streams: bool,
        delete_tmp_files: bool,
        init_command: str | None,
        functions_source: str | None,
        functions_module: str,
        allow_domains: Sequence[str] = (),
        tools: Sequence[ToolLike] = (),
        tool_limits: ToolLimits | None = None,
        approve_tool: ApproveTool | None = None,
        pool: SandboxPool | None = None,
        limits: Limits | None = None,
        write_back: Sequence[str] = (),
    ) -> None:
        if mode not in ("process", "session"):
            raise ValueError(f"mode must be 'process' or 'session', not {mode!r}")
        self._timeout = parse_timeout(timeout)
        self._limits = parse_limits(limits)
        self._write_back = WriteBack(write_back)
        self._mode = mode
        self._work_dir = work_dir
        self._mounted = mounted
        self._languages = languages
        self._split_streams = split_streams
        self._delete_tmp_files = delete_tmp_files
        self._init_command = init_command
        self._functions_source = functions_source
        self._functions_failed = "the functions failed to load"
        self._functions_module = functions_module
        self._policy = Policy(allow_domains)
        self._allow_domains = tuple(allow_domains)
        self._tools = ExecutorTools(tools, tool_limits, approve_tool)
        self._pool = pool
        self._sandbox: RunnerClient | None = None
        self._workspace: Workspace | None = None
        self._scratch: Scratch | None = None
        self._temporary: TemporaryFolder | None = None
        self._stopped = False
        self._died, self._starts, self._unrecorded = False, 0, 0
        self._lifecycle = Turns()
        self._calls = Turns()

    def tool_settings(self) -> dict[str, Any]:
        """What the runner is told of the host tools when it starts."""
        return self._tools.settings()

    @abstractmethod
    def _new_sandbox(self) -> RunnerClient:
        """Make a sandbox that has not been started."""

    def _new_gateway(self) -> Gateway | None:
        """A new sandbox's way out, where it has one."""
        return Gateway(Outside(self._policy, self.resolve_name)) if self._allow_domains else None

    @property
    def timeout(self) -> float:
        """Wall-clock seconds that a block may take."""
        return self._timeout

    @property
    def mode(self) -> str:
        """`process` or `session`."""
        return self._mode

    @property
    def starts(self) -> int:
        """How many sandboxes it has had; another number than before means that what lived in the last one is gone."""
        return self._starts

    @property
    def unrecorded(self) -> int:
        """How many blocks this sandbox has run, and how often it was rolled back, without an agent that keeps a journal."""
        return self._unrecorded

    @property
    def work_dir(self) -> Path:
        """The folder on the host whose files are exchanged with the workspace.

        Raises:
            SandboxNotStarted: It is a temporary one and the executor has not been started.
        """
        if self._work_dir is not None:
            return self._work_dir
        if self._mounted is not None:
            return self._mounted
        if self._temporary is None:
            raise SandboxNotStarted("Working directory not properly initialized: pass work_dir=, or call start() first")
        return self._temporary.path

    def add_tools(self, tools: Sequence[ToolLike], approve_tool: ApproveTool | None = None) -> None:
        """Let the code call more functions of the host, from the next block on; agents give their `tools` so.

        A config keeps only what the constructor was given: agents keep theirs in their own.

        Args:
            tools: As for the constructor; what is there already is left alone.
            approve_tool: Asked before each call to any tool.

        Raises:
            TypeError: Something is no tool.
            ValueError: A tool can't be used, or somebody else approves already.
        """
        self._tools.add(tools, approve_tool)

    def offer_tool(self, tool: HostTool) -> None:
        """Let the code call a function that belongs to an agent itself: it is not listed, and its calls need no approval.

        Raises:
            ValueError: Another tool has its name.
        """
        self._tools.offer(tool)

    @property
    def known_tools(self) -> tuple[HostTool, ...] | None:
        """The functions of the host that the code can call; None where there are workbenches that don't run yet."""
        return self._tools.known

    async def list_tools(self) -> tuple[HostTool, ...]:
        """List the functions of the host that the code can call; starts the workbenches that don't run yet, not the sandbox.

        Raises:
            Exception: What a workbench raised.
        """
        async with self._lifecycle:
            return await self._tools.start()

    async def start(self) -> None:
        """Start the sandbox; does nothing where it runs already.

        Raises:
            SandboxError: It did not come up; nothing is left of it.
        """
        async with self._lifecycle:
            self._stopped = False
            await self._running()

    async def stop(self) -> None:
        """Stop the sandbox and everything in it; repeated calls, also before `start`, are harmless."""
        async with self._lifecycle:
            self._stopped = True
            self._died = False
            try:
                await self._stop()
            finally:
                await self._tools.stop()

    async def restart(self) -> None:
        """Start afresh: a new sandbox, with the files of `work_dir` and nothing else of before."""
        async with self._lifecycle:
            await self._stop(keep_folder=True)
            self._stopped = self._died = False
            await self._tools.start()
            await self._start()

    async def _start(self) -> RunnerClient:
        fresh = self._work_dir is None and self._mounted is None and self._temporary is None
        if fresh:
            self._temporary = TemporaryFolder()
        try:
            if self._mounted is None:
                self._workspace = self._new_workspace(self.work_dir)
                await in_thread(self._workspace.prepare)
            sandbox = await self._pool.acquire() if self._pool is not None else self._new_sandbox()
            self._moved_into(sandbox)
            if self._pool is None:
                await sandbox.start()
            self._tools.started(sandbox.settings.tools)
            try:
                await self._furnish(sandbox)
            except BaseException:
                await sandbox.stop()
                raise
            self._sandbox = sandbox
            self._starts, self._unrecorded = self._starts + 1, 0
        except BaseException:
            # What earlier blocks have left in it must survive an engine that is away for a moment.
            if fresh:
                await self._drop_folder()
            raise
        return sandbox

    async def bare_sandbox(self) -> RunnerClient:
        """Start a sandbox as this executor needs it, with nothing of its own in it yet; the caller stops it.

        Raises:
            SandboxError: It did not come up; nothing is left of it.
        """
        sandbox = self._new_sandbox()
        await sandbox.start()
        return sandbox

    def _moved_into(self, sandbox: RunnerClient) -> None:
        """Take note of the sandbox that blocks will run in; it may not have been started."""

    def _opening(self) -> str | None:
        """What blocks reach outside the sandbox past this process, as a sentence with a place for `{blocks}`, or None."""
        if self._workspace is not None:
            return None
        return (
            "its workspace is a folder of the host (bind_dir), which its {blocks} could change if they were run again; give the "
            "agent an executor with work_dir instead to have it rebuilt"
        )

    def _new_workspace(self, root: Path) -> Workspace:
        return Workspace(root, write_back=self._write_back)

    async def _furnish(self, sandbox: RunnerClient) -> None:
        """Put in place what blocks expect to find."""
        if self._workspace is not None:
            # In place of one that has died there must be a new one, even where files have come to need too much room.
            notes = await sync.push(self._workspace, sandbox, self._limits, all_of_them=not self._died)
            self._workspace.note(*notes)
        if self._functions_source is not None:
            await sandbox.write_file(f"{self._functions_module}.py", 0o644, [self._functions_source.encode()])
            await self._must_run(sandbox, "python", f"import {self._functions_module}", self._functions_failed)
        if self._init_command is not None:
            reply = await self._must_run(sandbox, "sh", self._init_command, "init_command failed")
            if self._workspace is not None:
                await sync.pull(self._workspace, sandbox, reply)

    async def _must_run(self, sandbox: RunnerClient, language: str, code: str, complaint: str) -> Reply:
        request = self._request(CodeBlock(code=code, language=language))
        assert isinstance(request, BlockRequest)
        scan = self._workspace is not None and language == "sh"  # not what an import writes, such as __pycache__
        message = {**request.message, "scan": scan, "delete": request.filename is not None}
        reply = await sandbox.run(message, request.code, INIT_TIMEOUT_S)
        result = to_result(reply, split_streams=self._split_streams, code_file=None, artifacts=(), notes=())
        if result.exit_code != 0:
            raise SandboxStartError(f"{complaint} (exit code {result.exit_code}): {result.output.strip()}")
        return reply

    async def _stop(self, *, keep_folder: bool = False) -> None:
        sandbox, self._sandbox = self._sandbox, None
        try:
            if sandbox is not None:
                await sandbox.stop()
        finally:
            workspace, self._workspace = self._workspace, None
            if workspace is not None:
                await sync.close(workspace, let_finish=keep_folder)
            if not keep_folder:
                await self._drop_folder()

    async def _drop_folder(self) -> None:
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            await temporary.remove()

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> ExecutionResult:
        """Run blocks one after the other, up to the first that fails.

        The sandbox is started where it has not been yet.

        Args:
            code_blocks: The blocks, at least one.
            cancellation_token: Cancelling it kills the running block with everything that it started.

        Returns:
            One result for all of them; what the code did is never an exception.

        Raises:
            ValueError: There are no blocks.
            SandboxError: Something around the code broke.
            asyncio.CancelledError: It was cancelled; the block is dead by then.
        """
        return await self.run_blocks(code_blocks, cancellation_token)

    async def run_blocks(
        self, code_blocks: Sequence[CodeBlock], cancellation_token: CancellationToken, context: RunContext = NO_CONTEXT
    ) -> ExecutionResult:
        """Run blocks as `execute_code_blocks` does, for a caller that adds something to them.

        Args:
            code_blocks: The blocks, at least one.
            cancellation_token: Cancelling it kills the running block with everything that it started.
            context: What the caller adds. Default: nothing.

        Returns:
            One result for all of them.

        Raises:
            ValueError: There are no blocks.
            SandboxError: Something around the code broke.
            asyncio.CancelledError: It was cancelled; the block is dead by then.
        """
        if not code_blocks:
            raise ValueError("No code blocks to execute.")
        with CancelledBy(cancellation_token):
            return as_execution_result(await self._execute(list(code_blocks), context))

    async def execute_stream(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken, context: RunContext = NO_CONTEXT
    ) -> AsyncGenerator[OutputChunk | ExecutionResult, None]:
        """Run blocks as `execute_code_blocks` does, and yield their output while they write it.

        The chunks together are the result's output, including the line after a timeout. If it is long, the head (half of
        `limits.output`) comes while it is written, and the tail when the block has ended. Closing the stream kills the block.

        Args:
            code_blocks: The blocks, at least one.
            cancellation_token: Cancelling it kills the running block with everything that it started.
            context: What the caller adds to the blocks. Default: nothing.

        Yields:
            An `OutputChunk` for each piece of output, and at last the `ExecutionResult`.

        Raises:
            ValueError: There are no blocks.
            SandboxError: Something around the code broke.
            asyncio.CancelledError: It was cancelled; the block is dead by then.
        """
        if not code_blocks:
            raise ValueError("No code blocks to execute.")
        chunks = OutputChunks(parse_size(self._limits.output))
        running = asyncio.ensure_future(self._execute(list(code_blocks), context, chunks))
        running.add_done_callback(lambda _: chunks.close())
        cancellation_token.link_future(running)
        try:
            async for chunk in chunks:
                yield chunk
            yield as_execution_result(await running)
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait({running})

    async def _execute(
        self, code_blocks: Sequence[CodeBlock], context: RunContext, chunks: OutputChunks | None = None
    ) -> Result:
        # Blocks of one call follow each other in a session, whoever else calls.
        async with self._calls if self._mode == "session" else contextlib.nullcontext():
            return await self._execute_all(code_blocks, context, chunks)

    async def _execute_all(
        self, code_blocks: Sequence[CodeBlock], context: RunContext, chunks: OutputChunks | None
    ) -> Result:
        sandbox = await self._ready()
        results: list[Result] = []
        for number, block in enumerate(code_blocks):
            listener = chunks.listener(number) if chunks is not None else None
            # It stays to be said until a result has said it.
            notes = (LOST,) if self._died else ()
            try:
                results.append(await self._execute_one(sandbox, block, context, notes, listener))
                if chunks is not None:
                    chunks.finish(number, results[-1])
            except SandboxError as error:
                error.tool_calls = (*(call for result in results for call in result.tool_calls), *error.tool_calls)
                raise
            self._died = self._died and not notes
            if results[-1].exit_code != 0:
                break
        return combine(results)

    async def _ready(self) -> RunnerClient:
        """The running sandbox: that of before, or a new one where it has ended."""
        sandbox = self._sandbox
        if sandbox is not None and sandbox.alive and not self._stopped and self._tools.known is not None:
            return sandbox
        async with self._lifecycle:
            if self._stopped:
                raise SandboxNotStarted("the executor has been stopped: call start() before running more code")
            return await self._running()

    async def _running(self) -> RunnerClient:
        sandbox = self._sandbox
        await self._tools.start()
        if sandbox is None or not sandbox.alive:
            self._died = self._died or sandbox is not None
            await self._stop(keep_folder=True)
            sandbox = await self._start()
        return sandbox

    def _request(self, block: CodeBlock) -> BlockRequest | Result:
        return make_request(
            block.code, block.language, session=self._mode == "session", workspace=WORKSPACE, languages=self._languages
        )

    async def _execute_one(  # noqa: C901, PLR0912 - replaced by AsyncSandbox in the next commit
        self,
        sandbox: RunnerClient,
        block: CodeBlock,
        context: RunContext,
        notes: tuple[str, ...] = (),
        listener: Listener | None = None,
    ) -> Result:
        request = self._request(block)
        if isinstance(request, Result):
            return _marked_lost(replace(request, notes=notes))
        scratch = self._scratch
        self._unrecorded += not context.journalled
        workspace = self._workspace if scratch is None else None
        mark = sandbox.gateway.begin_block(shut=scratch is not None) if sandbox.gateway is not None else 0
        kept: list[sync.Kept] = []
        message = {**request.message, "scan": self._workspace is not None, "cpu_seconds": self._limits.cpu_seconds}
        if workspace is not None:
            await sync.before_block(workspace, sandbox, self._limits)
        files_before = None
        if context.journalled and workspace is not None:
            with contextlib.suppress(SandboxFileError):
                files_before = await manifest_of(workspace, sandbox)
        if request.filename is not None:
            message["hide"] = request.message["path"]
            message["delete"] = self._delete_tmp_files and not request.named
        calls = None
        if message["command"] is None:
            calls, message["tool_sources"] = self._tools.block(block, context), self._tools.later()
        code = None if message.get("delete") else request.code
        keep = partial(sync.keep_code, kept, workspace or self._mounted, request.filename, code)
        try:
            reply = await sandbox.run(message, request.code, self._timeout, listener, calls, meanwhile=keep)
        except SandboxError as error:
            error.tool_calls = calls.ledger if calls is not None else ()
            raise
        finally:
            if calls is not None:
                await calls.close()
        artifacts: tuple[Artifact, ...] = ()
        if scratch is not None:
            await scratch.take(reply, request.filename)
        if workspace is not None:
            artifacts = await sync.after_block(workspace, sandbox, reply)
        code_file = await kept[0] if isinstance(kept[0], asyncio.Future) else kept[0]
        if workspace is not None:
            notes += workspace.take_notes()
        result = to_result(
            reply, split_streams=self._split_streams, code_file=code_file, artifacts=artifacts, notes=notes
        )
        if calls is not None:
            result = replace(result, tool_calls=calls.ledger, notes=(*result.notes, *calls.notes))
        result.files_before = files_before
        if sandbox.gateway is not None:
            add_connections(result, sandbox.gateway, mark)
        return _marked_lost(result)


def _marked_lost(result: Result) -> Result:
    return replace(result, state="lost") if LOST in result.notes else result
