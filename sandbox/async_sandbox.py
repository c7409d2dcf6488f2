"""`AsyncSandbox`: runs code in a sandbox and returns results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from autogen_codeact.sandbox import backend_selection as select
from autogen_codeact.sandbox.facts import SandboxFacts, facts_of, known_facts
from autogen_codeact.sandbox.files import display_files, sync, transfers
from autogen_codeact.sandbox.files.manifest import manifest_of
from autogen_codeact.sandbox.files.workspace import Workspace
from autogen_codeact.sandbox.host.blocks import BlockRequest, combine, make_request, to_result
from autogen_codeact.sandbox.host.chunks import OutputChunk, OutputChunks
from autogen_codeact.sandbox.host.client import RunnerClient
from autogen_codeact.sandbox.host.connection import OutputCallback
from autogen_codeact.sandbox.host.display_frames import Displays
from autogen_codeact.sandbox.host.protocol import Frame
from autogen_codeact.sandbox.host.waiting import in_thread
from autogen_codeact.sandbox.lifecycle import STOPPED, SandboxLifecycle
from autogen_codeact.sandbox.replay import EMPTY_BLOCK, ExternalEffectsError, ReplayWorkspace
from autogen_codeact.sandbox.tools.broker import BlockCalls
from autogen_codeact.sandbox.types.errors import SandboxError, SandboxFileError, SandboxNotStarted
from autogen_codeact.sandbox.types.limits import parse_size, parse_timeout
from autogen_codeact.sandbox.types.observers import BlockFinished, BlockId, BlockStarted, notify
from autogen_codeact.sandbox.types.paths import WORKSPACE
from autogen_codeact.sandbox.types.result import Result
from autogen_codeact.sandbox.types.run_context import NO_CONTEXT, Block, CodeAndLanguage, RunContext, check_block

LOST = (
    "The sandbox had ended since the last block; this block ran in a new one: variables and files made there are lost."
)


class AsyncSandbox(SandboxLifecycle):
    """Runs code in a hardened sandbox.

    Use it with `async with`, or with `start` and `stop`. If it has not been started, the first block starts it. Cancelling the
    task that awaits a block kills the block with everything that it started. It works in any event loop.

    Args:
        backend: "docker", "bubblewrap", or "auto" (the default): Docker if an engine answers, else bubblewrap. Or the
            options of a sandbox: `DockerOptions(...)`, `BubblewrapOptions(...)`.
        tools: Functions of this process that the code can call: typed functions, sync or async (docs/tools.md).
        approve_tool: Called before each call to a tool. The call is made only if it approves.
        progress: Called with a line for each step that takes long, such as a pull. By default it goes to standard error.
        recorder: Keeps a record of the calls to host tools; it is awaited before a tool runs and before the code sees its result.
        observers: Notified of starts, stops, blocks and calls; see `Observer`.
        pool: A pool of sandboxes with the same options: the start takes one of them.
        options: Fields of `DockerOptions` or `BubblewrapOptions`, such as `timeout=10`. Default of `mode`: "session".

    Raises:
        TypeError: An option is unknown or has a wrong type.
        ValueError: A value is invalid; the message says which.
    """

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
        return await self.run_all((Block(code, language),), timeout=timeout)

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

    async def stream_all(
        self,
        blocks: Sequence[CodeAndLanguage],
        context: RunContext = NO_CONTEXT,
        *,
        timeout: float | None = None,
        on_start: Callable[[asyncio.Future[Any]], object] | None = None,
    ) -> AsyncGenerator[OutputChunk | Result, None]:
        """Run blocks as `run_all` does, and yield their output while it is written.

        Args:
            blocks: The blocks, at least one.
            context: What the caller adds to the blocks. Default: nothing.
            timeout: Wall-clock seconds for each block. Default: the sandbox's `timeout`.
            on_start: Called with the task that runs the blocks, which may be cancelled.

        Yields:
            An `OutputChunk` for each piece of output, and finally the `Result`.
        """
        chunks = OutputChunks(parse_size(self.options.limits.output))
        running = asyncio.ensure_future(self.run_all(blocks, context, timeout=timeout, chunks=chunks))
        running.add_done_callback(lambda _: chunks.close())
        if on_start is not None:
            on_start(running)
        try:
            async for chunk in chunks:
                yield chunk
            yield await running
        except asyncio.CancelledError as error:
            running.cancel()
            try:
                await running
            except asyncio.CancelledError as cancelled:
                error.result = getattr(cancelled, "result", None)  # type: ignore[attr-defined]
            raise
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait({running})
            if not running.cancelled():
                running.exception()  # asyncio would log it if nobody had asked

    async def run_all(
        self,
        blocks: Sequence[CodeAndLanguage],
        context: RunContext = NO_CONTEXT,
        *,
        timeout: float | None = None,
        chunks: OutputChunks | None = None,
    ) -> Result:
        """Run blocks one after the other, up to the first that fails.

        Args:
            blocks: The blocks, at least one.
            context: What the caller adds to the blocks. Default: nothing.
            timeout: Wall-clock seconds for each block. Default: the sandbox's `timeout`.
            chunks: Gets their output while it is written. Default: nobody.

        Returns:
            One result for all of them.

        Raises:
            ValueError: There are no blocks, or the timeout is not a positive number.
            SandboxError: Something around the code broke.
            asyncio.CancelledError: The task was cancelled; the block is dead by then.
        """
        if not blocks:
            raise ValueError("No code blocks to execute.")
        for block in blocks:
            check_block(block)
        limit = parse_timeout(timeout) if timeout is not None else self.timeout
        # In a session no other call's block runs between the blocks of one call.
        async with self._session if self.options.mode == "session" else contextlib.nullcontext():
            client = await self._ready()
            run_one = self._run_observed if self.attachments.current else self._run_block
            results: list[Result] = []
            for number, block in enumerate(blocks):
                listener = chunks.listener(number) if chunks is not None else None
                lost = self._lost
                try:
                    result = await run_one(client, block, context, limit, listener=listener)
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
            return results[0] if len(results) == 1 else combine(results)

    async def _ready(self) -> RunnerClient:
        """Return the running sandbox, or a new one if it has ended."""
        client = self.client
        if client is not None and client.alive and not self._stopped and self.tools.known is not None:
            return client
        async with self._lifecycle:
            if self._stopped:
                raise SandboxNotStarted(STOPPED)
            return await self._running()

    def interrupt(self) -> bool:
        """Stop the blocks that run; the session stays as it was before them.

        Whoever awaits such a block gets its result: the outcome `crashed`, the exit code 130 and an error of type `Stopped`.

        Returns:
            Whether a block was running.
        """
        client = self.client
        return client is not None and client.interrupt()

    async def start_if_needed(self) -> None:
        """Start the sandbox if it is not running, as a block does.

        Raises:
            SandboxError: It did not start.
        """
        await self._ready()

    async def run_in_new_process(self, code: str, timeout: float) -> str:
        """Run Python code in a new process: it sees no variables of the session, and does not count as a block.

        Args:
            code: The code; it can't call host tools.
            timeout: Wall-clock seconds that it may take.

        Returns:
            What it wrote to standard output and standard error.

        Raises:
            SandboxError: It failed, or something around it broke.
        """
        async with self._session if self.options.mode == "session" else contextlib.nullcontext():
            client = await self._ready()
            python = client.hello.executable if client.hello is not None else "python3"
            message = {"path": None, "command": [python, "-I", "{file}"], "keep_state": False}
            more = {"scan": False, "cpu_seconds": None, "delete": False, "aside": True}
            reply = await client.run({**message, **more}, code.encode(), timeout)
        result = to_result(reply, split_streams=False)
        if result.exit_code != 0:
            raise SandboxError(f"a program in the sandbox failed: {result.output[-500:]}")
        return result.output

    async def _run_observed(
        self, client: RunnerClient, block: CodeAndLanguage, context: RunContext, timeout: float, **others: Any
    ) -> Result:
        attached = self.attachments.current
        started = BlockStarted(client.name, self.blocks + 1, block.language, block.code)
        notify(attached, "block_started", started)
        result: Result | None = None
        failed: str | None = None
        try:
            result = await self._run_block(client, block, context, timeout, **others)
        except BaseException as error:
            failed = f"{type(error).__name__}: {error}"
            raise
        finally:
            notify(attached, "block_finished", BlockFinished(started, result, failed))
        return result

    async def _run_block(
        self,
        client: RunnerClient,
        block: CodeAndLanguage,
        context: RunContext,
        timeout: float,
        *,
        listener: OutputCallback | None = None,
        replay: ReplayWorkspace | None = None,
    ) -> Result:
        options, gateway = self.options, client.gateway
        workspace = self._workspace if replay is None else None
        request = make_request(
            block.code,
            block.language,
            session=options.mode == "session",
            workspace=WORKSPACE,
            languages=self._languages,
            scan=self._workspace is not None,
            cpu_seconds=options.limits.cpu_seconds,
            delete_unnamed=options.delete_tmp_files,
        )
        if isinstance(request, Result):
            return request
        self.unrecorded += not context.journalled
        self.blocks += 1
        ident = BlockId(client.name, self.blocks)  # other blocks can begin during each await below
        mark = gateway.begin_block(shut=replay is not None) if gateway is not None else 0
        files_before = None
        if workspace is not None and (client.undelivered or not workspace.unchanged(most=sync.QUICK_STATS)):
            await sync.push_changes(workspace, client, options.limits)
        if workspace is not None and context.journalled:
            with contextlib.suppress(SandboxFileError):
                files_before = await manifest_of(workspace, client)
        has_tools = self.tools.broker.tools and request.message["command"] is None
        accept = partial(self._accept_calls, workspace=workspace, ident=ident)
        calls = accept(request, block, context, client) if has_tools else None
        folder = Path(options.bind_dir) if options.bind_dir is not None else workspace
        kept: list[sync.Kept] = [None]
        keep = partial(sync.keep_code, kept, folder, request) if request.filename is not None and folder else None
        try:
            reply = await client.run(request.message, request.code, timeout, listener, calls, on_sent=keep)
        except SandboxError as error:
            error.tool_calls = calls.log if calls is not None else ()
            raise
        finally:
            if calls is not None:
                await calls.close()
        if replay is not None:
            await replay.take(reply, request.filename)
        result = to_result(reply, split_streams=options.split_streams)
        result.files_before = files_before
        if workspace is not None and (reply.message.get("files") or client.undelivered):
            result.artifacts = await sync.pull(workspace, client, reply)
        result.code_file = await kept[0] if isinstance(kept[0], asyncio.Future) else kept[0]
        if reply.displays.count:
            await self._add_displays(result, reply.displays, client, folder if replay is None else None)
        if workspace is not None and workspace.notes:
            result.notes = (*workspace.take_notes(), *result.notes)
        if calls is not None:
            result.tool_calls, result.notes = calls.log, (*result.notes, *calls.notes)
        if gateway is not None:
            gateway.add_connections(result, mark)
        return result

    def _accept_calls(
        self,
        request: BlockRequest,
        block: CodeAndLanguage,
        context: RunContext,
        client: RunnerClient,
        *,
        workspace: Workspace | None,
        ident: BlockId,
    ) -> BlockCalls:
        """Let a block call the host tools."""
        request.message["tool_sources"] = self.tools.added_sources()
        calls = self.tools.block(block, context, ident)
        calls.sandbox, calls.work_dir = client, workspace.root if workspace is not None else None
        return calls

    async def _add_displays(
        self, result: Result, displays: Displays, client: RunnerClient, folder: Workspace | Path | None
    ) -> None:
        """Store what a block has shown, and add it to its result."""
        shown = await in_thread(display_files.store, result.displays, folder)
        result.artifacts, result.displays = (
            display_files.merged(result.artifacts, shown.artifacts),
            tuple(shown.displays),
        )
        result.notes = (*shown.notes, *displays.notes(), *result.notes)
        if isinstance(folder, Workspace) and shown.artifacts and client.alive:
            await sync.push_changes(folder, client, self.options.limits)  # the code can read them, too

    @property
    def known_facts(self) -> SandboxFacts:
        """What code finds in the sandbox, as far as it follows from the options."""
        return known_facts(self.options)

    async def facts(self) -> SandboxFacts:
        """Return what code finds in the sandbox, such as versions and files; the sandbox is started if it is not running.

        If the sandbox can't be asked, or does not answer within 5 s, the result contains only what follows from the options.
        """
        return await facts_of(self, self.start_if_needed, self.run_in_new_process)

    # Files

    async def put(self, source: Path | str, name: str | None = None) -> None:
        """Copy a file from the host into the workspace.

        Args:
            source: The file on the host.
            name: Its path relative to the workspace. Default: its own name.

        Raises:
            ValueError: The name could leave the workspace.
            SandboxFileError: It can't be read, or the sandbox can't store it.
        """
        source = Path(source)
        await transfers.put(await self._ready(), source, name if name is not None else source.name)

    async def get(self, name: str, target: Path | str) -> Path:
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
        return await transfers.get(await self._ready(), name, Path(target))

    async def write(self, name: str, data: bytes | str) -> None:
        """Write a file into the workspace; text is encoded as UTF-8.

        Args:
            name: Its path relative to the workspace.
            data: Its content.

        Raises:
            ValueError: The name could leave the workspace.
            SandboxFileError: The sandbox can't store it.
        """
        await transfers.write(await self._ready(), name, data)

    async def read(self, name: str, max_bytes: int = transfers.MAX_READ_BYTES) -> bytes:
        """Read a file of the workspace.

        Args:
            name: Its path relative to the workspace.
            max_bytes: How many bytes it may have. Default: 256 MiB.

        Raises:
            ValueError: The name could leave the workspace.
            SandboxFileError: It does not exist, is not a regular file, or is too large for memory.
        """
        return await transfers.read(await self._ready(), name, max_bytes)

    async def list_files(self) -> list[str]:
        """List the regular files in the workspace."""
        return [entry["name"] for entry in await (await self._ready()).list_files()]

    # The session's memory

    async def checkpoint(self) -> None:
        """Save the session's memory, until the next call or `stop`.

        Raises:
            ValueError: There is no session, or a block is running.
        """
        await (await self._ready_session()).command(Frame.TAKE_CHECKPOINT, {})

    async def rollback(self) -> None:
        """Restore the session's memory to the last `checkpoint()`; can be repeated.

        Files, file offsets, threads and subprocesses are not restored.

        Raises:
            ValueError: There is no session or no checkpoint, or a block is running.
        """
        await (await self._ready_session()).command(Frame.ROLL_BACK, {})
        self.unrecorded += 1

    async def _ready_session(self) -> RunnerClient:
        if self.options.mode != "session":
            raise ValueError("there is no session to checkpoint in process mode: use mode='session'")
        return await self._ready()

    # Replay

    @contextlib.asynccontextmanager
    async def replaying(self, known_marks: Iterable[str]) -> AsyncIterator[ReplayWorkspace]:
        """Let the session run blocks without effects outside it; at the end its workspace has the host's files again.

        All processes and threads of the blocks are ended. If that fails, the sandbox is stopped. Other calls wait.

        Args:
            known_marks: Marks of the files that the blocks need.

        Raises:
            ExternalEffectsError: They could have an effect outside the sandbox.
            SandboxError: Something around the blocks broke.
        """
        async with self._session:
            client = await self._ready()
            if (reason := select.external_effects(self.options)) is not None:
                raise ExternalEffectsError(reason)
            assert self._workspace is not None
            # Files made by the start are stored on the host after the first block, as in every session.
            await self._run_block(client, EMPTY_BLOCK, RunContext(journalled=True), self.timeout)

            def run_block(block: CodeAndLanguage, context: RunContext, replay: ReplayWorkspace) -> Awaitable[Result]:
                return self._run_block(client, block, context, self.timeout, replay=replay)

            replay = ReplayWorkspace(client, self._workspace, run_block)
            try:
                if client.gateway is not None:
                    client.gateway.shut()
                await replay.begin(set(known_marks))
                yield replay
                await replay.end()
            except BaseException:
                await asyncio.shield(asyncio.ensure_future(self._discard(client)))
                raise
