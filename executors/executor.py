"""AutoGen's `CodeExecutor` on top of a sandbox."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor

from autogen_codeact.executors.arguments import ExecutorArguments
from autogen_codeact.executors.cancellation import cancel_scope
from autogen_codeact.executors.functions_module import build_functions_source, required_packages
from autogen_codeact.executors.result import ExecutionResult
from autogen_codeact.executors.tools.host_tools import HostTools, ToolLike
from autogen_codeact.sandbox.async_sandbox import LOST, AsyncSandbox
from autogen_codeact.sandbox.backends import WORKSPACE
from autogen_codeact.sandbox.facts import SandboxFacts, facts_of, known_facts
from autogen_codeact.sandbox.host.chunks import OutputChunk
from autogen_codeact.sandbox.observers import Observer, Recorder
from autogen_codeact.sandbox.options import Mode, SandboxOptions
from autogen_codeact.sandbox.replay import ReplayWorkspace
from autogen_codeact.sandbox.run_context import NO_CONTEXT, RunContext
from autogen_codeact.sandbox.tools.approval import ApproveTool
from autogen_codeact.sandbox.tools.tool import HostTool

__all__ = ["LOST", "WORKSPACE", "SandboxCodeExecutor"]


class SandboxCodeExecutor(CodeExecutor):
    """Base class of the executors: runs AutoGen's code blocks in an `AsyncSandbox`, with cancellation tokens and tools.

    Args:
        options: Options of the sandbox.
        arguments: The other arguments of the constructor.
    """

    def __init__(self, options: SandboxOptions, arguments: ExecutorArguments) -> None:
        if arguments.functions:
            module = {
                "functions_source": build_functions_source(arguments.functions),
                "functions_packages": required_packages(arguments.functions),
            }
            options = options.model_copy(update=module)
        self._tools = HostTools(arguments.tools, options.tool_limits, arguments.approve_tool)
        self.sandbox = AsyncSandbox(options, tools=self._tools, progress=arguments.progress, pool=arguments.pool)
        """The sandbox."""

    @property
    def timeout(self) -> float:
        """Wall-clock seconds that a block may take."""
        return self.sandbox.timeout

    @property
    def mode(self) -> Mode:
        """`process` or `session`."""
        return self.sandbox.options.mode

    @property
    def engine(self) -> str | None:
        """Name of the Docker engine that runs the sandbox, if one was chosen with `hosts` or `docker_host`; else None."""
        return self.sandbox.engine

    @property
    def starts(self) -> int:
        """Number of sandboxes started. If it has changed, what the last one contained is gone."""
        return self.sandbox.starts

    @property
    def unrecorded(self) -> int:
        """Number of blocks run and rollbacks made in this sandbox without an agent that keeps a journal."""
        return self.sandbox.unrecorded

    @property
    def work_dir(self) -> Path:
        """The folder on the host whose files are exchanged with the workspace.

        Raises:
            SandboxNotStarted: It is a temporary one and the executor has not been started.
        """
        return self.sandbox.work_dir

    def add_tools(self, tools: Sequence[ToolLike], approve_tool: ApproveTool | None = None) -> None:
        """Let the code call more functions of the host, from the next block on; agents add their `tools` in this way.

        A config contains only what the constructor was given: agents write their own tools into their config.

        Args:
            tools: As for the constructor; those that it already has are ignored.
            approve_tool: Called before each call to any tool. The call is made only if it approves.

        Raises:
            TypeError: Something is not a tool.
            ValueError: A tool can't be used, or the calls already have another `approve_tool`.
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
        """The functions of the host that the code can call; None if there are workbenches that have not been started."""
        return self._tools.known

    async def list_tools(self) -> tuple[HostTool, ...]:
        """List the functions of the host that the code can call; starts the workbenches, not the sandbox.

        Raises:
            Exception: What a workbench raised.
        """
        return await self.sandbox.list_tools()

    async def start(self) -> None:
        """Start the sandbox; do nothing if it is running.

        Raises:
            SandboxError: It did not start; nothing is left of it.
        """
        await self.sandbox.start()

    async def stop(self) -> None:
        """Stop the sandbox and everything in it; repeated calls, also before `start`, are harmless."""
        await self.sandbox.stop()

    async def restart(self) -> None:
        """Start a new sandbox, with the files of `work_dir` and nothing else of the last one."""
        await self.sandbox.restart()

    def attach(self, *, recorder: Recorder | None = None, observers: Sequence[Observer] = ()) -> Callable[[], None]:
        """Attach a recorder and observers, beside those that are attached already.

        They stay attached while the sandbox is stopped, restarted or leased from a pool. Any thread may attach and detach; it
        counts from the next block, start or stop on: a block that runs is not reported to them.

        Args:
            recorder: Keeps a record of the calls to host tools. Several are awaited in the order in which they were attached.
            observers: Notified of starts, stops, blocks and calls.

        Returns:
            Detaches them, at once, in the middle of a block, too; repeated calls are harmless.
        """
        return self.sandbox.attach(recorder=recorder, observers=observers)

    async def execute_code_blocks(
        self, code_blocks: Sequence[CodeBlock], cancellation_token: CancellationToken, context: RunContext = NO_CONTEXT
    ) -> ExecutionResult:
        """Run blocks one after the other, up to the first that fails.

        The sandbox is started if it is not running.

        Args:
            code_blocks: The blocks, at least one.
            cancellation_token: Cancelling it kills the running block with everything that it started.
            context: What the caller adds to the blocks. Default: nothing.

        Returns:
            One result for all of them; what the code did is never an exception.

        Raises:
            ValueError: There are no blocks.
            SandboxError: Something around the code broke.
            asyncio.CancelledError: It was cancelled; the block is dead by then.
        """
        with cancel_scope(cancellation_token):
            result = await self.sandbox.run_blocks(tuple(code_blocks), context)
        return ExecutionResult(**vars(result))

    run_blocks = execute_code_blocks  # the name in `ToolExecutor`: AutoGen's method has no `context`

    async def execute_stream(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken, context: RunContext = NO_CONTEXT
    ) -> AsyncGenerator[OutputChunk | ExecutionResult, None]:
        """Run blocks as `execute_code_blocks` does, and yield their output while it is written.

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
        link: Callable[[Any], Any] = cancellation_token.link_future
        async with aclosing(self.sandbox.stream_blocks(tuple(code_blocks), context, on_start=link)) as items:
            async for item in items:
                yield item if isinstance(item, OutputChunk) else ExecutionResult(**vars(item))

    @property
    def known_facts(self) -> SandboxFacts:
        """What code finds in the sandbox, as far as it follows from the options."""
        return known_facts(self.sandbox.options)

    async def facts(self) -> SandboxFacts:
        """Return what code finds in the sandbox, such as versions and files; the sandbox is started if it is not running.

        If the sandbox can't be asked, or does not answer within 5 s, the result contains only what follows from the options.
        """
        return await facts_of(self.sandbox)

    def interrupt(self) -> bool:
        """Stop the blocks that run; the session stays as it was before them.

        Whoever awaits such a block gets its result: the outcome `crashed`, the exit code 130 and an error of type `Stopped`.

        Returns:
            Whether a block was running.
        """
        return self.sandbox.interrupt()

    async def upload(self, source: Path | str, name: str | None = None) -> None:
        """Copy a file from the host into the workspace.

        Args:
            source: The file on the host.
            name: Its path relative to the workspace. Default: its own name.

        Raises:
            ValueError: The name could leave the workspace.
            SandboxFileError: It can't be read, or the sandbox can't store it.
        """
        await self.sandbox.put(source, name)

    async def download(self, name: str, target: Path | str) -> Path:
        """Copy a file from the workspace to the host.

        Args:
            name: Its path relative to the workspace.
            target: The file on the host; it is replaced if it exists.

        Returns:
            The file on the host.

        Raises:
            ValueError: The name could leave the workspace.
            SandboxFileError: It does not exist, is not a regular file, or is too large, or the host can't write it.
        """
        return await self.sandbox.get(name, target)

    async def list_files(self) -> list[str]:
        """List the regular files in the workspace."""
        return await self.sandbox.list_files()

    async def checkpoint(self) -> None:
        """Save the session's memory, until the next call or `stop`.

        Raises:
            ValueError: There is no session, or a block is running.
        """
        await self.sandbox.checkpoint()

    async def rollback(self) -> None:
        """Restore the session's memory to the last `checkpoint()`; can be repeated.

        Files, file offsets, threads and subprocesses are not restored.

        Raises:
            ValueError: There is no session or no checkpoint, or a block is running.
        """
        await self.sandbox.rollback()

    def replaying(self, known_marks: Iterable[str]) -> AbstractAsyncContextManager[ReplayWorkspace]:
        """Let the session run blocks without effects outside it; at the end its workspace has the host's files again.

        Args:
            known_marks: Marks of the files that the blocks need.

        Raises:
            ExternalEffectsError: They could have an effect outside the sandbox.
            SandboxError: Something around the blocks broke.
        """
        return self.sandbox.replaying(known_marks)
