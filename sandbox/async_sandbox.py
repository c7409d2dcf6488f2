"""A sandbox: code in, results out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from autogen_codeact.sandbox.backends import select
from autogen_codeact.sandbox.egress.gateway import Gateway
from autogen_codeact.sandbox.egress.outside import Outside, Resolver, resolve_by_system
from autogen_codeact.sandbox.egress.policy import Policy
from autogen_codeact.sandbox.errors import SandboxError, SandboxFileError, SandboxNotStarted, SandboxStartError
from autogen_codeact.sandbox.files import sync, transfers
from autogen_codeact.sandbox.files.manifest import manifest_of
from autogen_codeact.sandbox.files.protected import WriteBack
from autogen_codeact.sandbox.files.temporary import TemporaryFolder
from autogen_codeact.sandbox.files.workspace import Workspace
from autogen_codeact.sandbox.host.block_reply import add_connections, combine, to_result
from autogen_codeact.sandbox.host.block_request import make_request
from autogen_codeact.sandbox.host.chunks import OutputChunk, OutputChunks
from autogen_codeact.sandbox.host.client import RunnerClient
from autogen_codeact.sandbox.host.connection import Listener, Reply
from autogen_codeact.sandbox.host.languages import merge
from autogen_codeact.sandbox.host.loops import in_thread
from autogen_codeact.sandbox.host.turns import Turns
from autogen_codeact.sandbox.limits import parse_size, parse_timeout
from autogen_codeact.sandbox.options import OPTIONS, DockerOptions, SandboxOptions, parse_options
from autogen_codeact.sandbox.result import Result
from autogen_codeact.sandbox.run_context import NO_CONTEXT, Block, CodeAndLanguage, RunContext
from autogen_codeact.sandbox.tools.approval import ApproveTool
from autogen_codeact.sandbox.toolset import FunctionTools, Tool, Toolset

BackendName = Literal["auto", "docker", "bubblewrap"]

PREPARE_TIMEOUT_S = 60.0
WORKSPACE = "/workspace"
LOST = (
    "The sandbox had ended since the last block; this block ran in a new one: variables and files made there are lost."
)


class AsyncSandbox:
    """Runs code in a hardened sandbox.

    Use it with `async with`, or with `start` and `stop`. If it has not been started, the first block starts it. Cancelling the
    task that awaits a block kills the block with everything that it started. It works in any event loop.

    Args:
        backend: "docker", "bubblewrap", or "auto" (the default): Docker where an engine answers, else bubblewrap. Or the
            options of a sandbox: `DockerOptions(...)`, `BubblewrapOptions(...)`.
        tools: Functions of this process that the code can call: typed functions, sync or async (docs/tools.md).
        approve_tool: Asked before each call to a tool. A call is made only if it approves.
        progress: Called with a line for each step that takes long, such as a pull. By default it goes to standard error.
        options: Fields of `DockerOptions` or `BubblewrapOptions`, such as `timeout=10`. Default of `mode`: "session".

    Raises:
        TypeError: An option is unknown or has a wrong type.
        ValueError: A value can't be right; the message says which.
    """

    resolve_name: Resolver = staticmethod(resolve_by_system)
    """Finds the addresses of the hosts in `allow_domains`, in a thread."""

    def __init__(
        self,
        backend: BackendName | SandboxOptions = "auto",
        *,
        tools: Sequence[Tool] | Toolset = (),
        approve_tool: ApproveTool | None = None,
        progress: Callable[[str], None] | None = None,
        **options: Any,
    ) -> None:
        self._given = {"mode": "session", **options}
        self._choose = backend == "auto"
        self.options = _parse(backend, options, self._given)
        self.timeout = self.options.timeout
        """Wall-clock seconds that a block may take."""
        self.starts = 0
        """Number of sandboxes started. If it has changed, what the last one contained is gone."""
        self.unrecorded = 0
        """Number of blocks run and rollbacks made in this sandbox by callers that keep no journal."""
        self.client: RunnerClient | None = None
        """The client of the running sandbox's runner."""
        self.name: str | None = None
        """Name of the last sandbox."""
        self._tools = (
            tools if isinstance(tools, Toolset) else FunctionTools(tools, self.options.tool_limits, approve_tool)
        )
        self._progress = progress
        self._languages = merge(self.options.languages)
        self._workspace: Workspace | None = None
        self._temporary: TemporaryFolder | None = None
        self._stopped = False
        self._lost = False
        self._lifecycle = Turns()
        self._session = Turns()

    # Life cycle

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the sandbox; do nothing if it is running.

        Raises:
            SandboxError: It did not come up; nothing is left of it.
        """
        async with self._lifecycle:
            self._stopped = False
            await self._running()

    async def stop(self) -> None:
        """Stop the sandbox and everything in it; repeated calls, also before `start`, are harmless.

        With `stop_container=False` the container is kept for the next `start`.
        """
        async with self._lifecycle:
            self._stopped = True
            try:
                if not isinstance(self.options, DockerOptions) or self.options.stop_container:
                    self._lost = False
                    await self._stop()
            finally:
                await self._tools.stop()

    async def restart(self) -> None:
        """Start a new sandbox, with the files of `work_dir` and nothing else of the last one.

        Raises:
            SandboxError: It did not come up.
        """
        async with self._lifecycle:
            await self._stop(keep_folder=True)
            self._stopped = self._lost = False
            await self._tools.start()
            await self._start()

    @property
    def work_dir(self) -> Path:
        """The folder on the host whose files are exchanged with the workspace.

        Raises:
            SandboxNotStarted: It is a temporary one and the sandbox has not been started.
        """
        folder = self.options.work_dir or self.options.bind_dir
        if folder is not None:
            return Path(folder)
        if self._temporary is None:
            raise SandboxNotStarted("Working directory not properly initialized: pass work_dir=, or call start() first")
        return self._temporary.path

    async def list_tools(self) -> tuple[Any, ...]:
        """List the host tools; starts their sources, not the sandbox."""
        async with self._lifecycle:
            return await self._tools.start()

    async def bare_client(self) -> RunnerClient:
        """Start a sandbox with these options and nothing of this object's own in it; the caller stops it.

        Raises:
            SandboxError: It did not come up; nothing is left of it.
        """
        client = self.new_client()
        await client.start()
        return client

    def new_client(self) -> RunnerClient:
        """Make the client of a sandbox with these options that has not been started."""
        domains = self.options.allow_domains
        gateway = Gateway(Outside(Policy(domains), self.resolve_name)) if domains else None
        return select.make_client(self.options, self._tools.settings(), gateway, self._progress)

    async def _ready(self) -> RunnerClient:
        """Return the running sandbox, or a new one if it has ended."""
        client = self.client
        if client is not None and client.alive and not self._stopped and self._tools.known is not None:
            return client
        async with self._lifecycle:
            if self._stopped:
                raise SandboxNotStarted("the executor has been stopped: call start() before running more code")
            return await self._running()

    async def _running(self) -> RunnerClient:
        client = self.client
        await self._tools.start()
        if client is None or not client.alive:
            self._lost = self._lost or client is not None
            await self._stop(keep_folder=True)
            client = await self._start()
        return client

    async def _start(self) -> RunnerClient:
        await self._choose_backend()
        fresh = self.options.work_dir is None and self.options.bind_dir is None and self._temporary is None
        if fresh:
            self._temporary = TemporaryFolder()
        try:
            if self.options.bind_dir is None:
                self._workspace = Workspace(self.work_dir, write_back=WriteBack(self.options.write_back))
                await in_thread(self._workspace.prepare)
            client = self.new_client()
            self.name = client.name
            await client.start()
            self._tools.started(client.settings.tools)
            try:
                await self._prepare(client)
            except BaseException:
                await client.stop()
                raise
        except BaseException:
            # A folder of earlier blocks must survive an engine that is unavailable for a moment.
            if fresh:
                await self._drop_folder()
            raise
        self.client = client
        self.starts, self.unrecorded = self.starts + 1, 0
        return client

    async def _choose_backend(self) -> None:
        if self._choose:
            found = await asyncio.to_thread(select.find_backend, select.only_for_docker(self._given))
            self.options = parse_options(OPTIONS[found], self._given)
            self._choose = False

    async def _prepare(self, client: RunnerClient) -> None:
        """Send files and functions, and run `init_command`."""
        options = self.options
        if self._workspace is not None:
            # A sandbox that replaces one that has died must start even if the files have become too large for it.
            notes = await sync.push(self._workspace, client, options.limits, all_of_them=not self._lost)
            self._workspace.note(*notes)
        if options.functions_source is not None:
            module = options.functions_module
            await client.write_file(f"{module}.py", 0o644, [options.functions_source.encode()])
            failed = "the functions failed to load"
            if options.functions_packages and not isinstance(options, DockerOptions):
                needed = ", ".join(options.functions_packages)
                failed += f"; they need {needed}: install that for the Python that the sandbox runs, or use Docker"
            await self._run_first(client, "python", f"import {module}", failed)
        if options.init_command is not None:
            reply = await self._run_first(client, "sh", options.init_command, "init_command failed")
            if self._workspace is not None:
                await sync.pull(self._workspace, client, reply)

    async def _run_first(self, client: RunnerClient, language: str, code: str, failed: str) -> Reply:
        """Run code without which the sandbox can't be used.

        Raises:
            SandboxStartError: It failed.
        """
        request = self._request(code, language)
        assert not isinstance(request, Result)
        scan = self._workspace is not None and language == "sh"  # not for an import, which writes __pycache__
        message = {**request.message, "scan": scan, "delete": request.filename is not None}
        reply = await client.run(message, request.code, PREPARE_TIMEOUT_S)
        split = self.options.split_streams
        result = to_result(reply, split_streams=split, code_file=None, artifacts=(), notes=())
        if result.exit_code != 0:
            raise SandboxStartError(f"{failed} (exit code {result.exit_code}): {result.output.strip()}")
        return reply

    async def _stop(self, *, keep_folder: bool = False) -> None:
        client, self.client = self.client, None
        try:
            if client is not None:
                await client.stop()
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
            asyncio.CancelledError: The task was cancelled; the code is dead by then.
        """
        return await self.run_blocks((Block(code, language),), timeout=timeout)

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
            An `OutputChunk` for each piece of output, and at last the `Result`.

        Raises:
            ValueError: The timeout is not a positive number.
            SandboxError: Something around the code broke.
            asyncio.CancelledError: The task was cancelled; the code is dead by then.
        """
        return self.stream_blocks((Block(code, language),), timeout=timeout)

    async def stream_blocks(
        self,
        blocks: Sequence[CodeAndLanguage],
        context: RunContext = NO_CONTEXT,
        *,
        timeout: float | None = None,
        on_start: Callable[[asyncio.Future[Any]], object] | None = None,
    ) -> AsyncGenerator[OutputChunk | Result, None]:
        """Run blocks as `run_blocks` does, and yield their output while it is written.

        Args:
            blocks: The blocks, at least one.
            context: What the caller adds to the blocks. Default: nothing.
            timeout: Wall-clock seconds for each block. Default: the sandbox's `timeout`.
            on_start: Called with the task that runs the blocks, which may be cancelled.

        Yields:
            An `OutputChunk` for each piece of output, and at last the `Result`.
        """
        chunks = OutputChunks(parse_size(self.options.limits.output))
        running = asyncio.ensure_future(self.run_blocks(blocks, context, timeout=timeout, chunks=chunks))
        running.add_done_callback(lambda _: chunks.close())
        if on_start is not None:
            on_start(running)
        try:
            async for chunk in chunks:
                yield chunk
            yield await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait({running})

    async def run_blocks(
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
        limit = parse_timeout(timeout) if timeout is not None else self.timeout
        # In a session no other call's block runs between the blocks of one call.
        async with self._session if self.options.mode == "session" else contextlib.nullcontext():
            client = await self._ready()
            results: list[Result] = []
            for number, block in enumerate(blocks):
                listener = chunks.listener(number) if chunks is not None else None
                lost = self._lost
                try:
                    result = await self._run_block(client, block, context, limit, listener)
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

    def _request(self, code: str, language: str) -> Any:
        session = self.options.mode == "session"
        return make_request(code, language, session=session, workspace=WORKSPACE, languages=self._languages)

    async def _run_block(
        self,
        client: RunnerClient,
        block: CodeAndLanguage,
        context: RunContext,
        timeout: float,
        listener: Listener | None = None,
    ) -> Result:
        options, workspace, gateway = self.options, self._workspace, client.gateway
        request = self._request(block.code, block.language)
        if isinstance(request, Result):
            return request
        self.unrecorded += not context.journalled
        mark = gateway.begin_block(shut=False) if gateway is not None else 0
        message = {**request.message, "scan": workspace is not None, "cpu_seconds": options.limits.cpu_seconds}
        files_before = None
        if workspace is not None:
            await sync.before_block(workspace, client, options.limits)
            if context.journalled:
                with contextlib.suppress(SandboxFileError):
                    files_before = await manifest_of(workspace, client)
        if request.filename is not None:
            message["hide"] = request.message["path"]
            message["delete"] = options.delete_tmp_files and not request.named
        calls = None
        if message["command"] is None:
            calls, message["tool_sources"] = self._tools.block(block, context), self._tools.later()
        kept: list[sync.Kept] = []
        code = None if message.get("delete") else request.code
        folder = workspace if workspace is not None else Path(str(options.bind_dir))
        keep = partial(sync.keep_code, kept, folder, request.filename, code)
        try:
            reply = await client.run(message, request.code, timeout, listener, calls, meanwhile=keep)
        except SandboxError as error:
            error.tool_calls = calls.ledger if calls is not None else ()
            raise
        finally:
            if calls is not None:
                await calls.close()
        artifacts = await sync.after_block(workspace, client, reply) if workspace is not None else ()
        code_file = await kept[0] if isinstance(kept[0], asyncio.Future) else kept[0]
        notes = workspace.take_notes() if workspace is not None else ()
        result = to_result(
            reply, split_streams=options.split_streams, code_file=code_file, artifacts=artifacts, notes=notes
        )
        if calls is not None:
            result.tool_calls, result.notes = calls.ledger, (*result.notes, *calls.notes)
        if gateway is not None:
            add_connections(result, gateway, mark)
        result.files_before = files_before
        return result

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

    async def read(self, name: str) -> bytes:
        """Read a file of the workspace.

        Args:
            name: Its path relative to the workspace.

        Raises:
            ValueError: The name could leave the workspace.
            SandboxFileError: It does not exist, is not a regular file, or is too large for memory.
        """
        return await transfers.read(await self._ready(), name)

    async def list_files(self) -> list[str]:
        """List the regular files in the workspace."""
        return [entry["name"] for entry in await (await self._ready()).list_files()]

    # The session's memory

    async def checkpoint(self) -> None:
        """Save the session's memory, until the next call or `stop`.

        Raises:
            ValueError: There is no session, or a block is running.
        """
        await (await self._ready_session()).command(b"P", {})

    async def rollback(self) -> None:
        """Restore the session's memory to the last `checkpoint()`; can be repeated.

        Files, file offsets, threads and subprocesses are not restored.

        Raises:
            ValueError: There is no session or no checkpoint, or a block is running.
        """
        await (await self._ready_session()).command(b"R", {})
        self.unrecorded += 1

    async def _ready_session(self) -> RunnerClient:
        if self.options.mode != "session":
            raise ValueError("there is no session to checkpoint in process mode: use mode='session'")
        return await self._ready()


def _parse(
    backend: BackendName | SandboxOptions, options: Mapping[str, Any], given: Mapping[str, Any]
) -> SandboxOptions:
    if isinstance(backend, SandboxOptions):
        if options:
            raise TypeError(f"{', '.join(options)}: options are given either as {type(backend).__name__} or by name")
        return backend
    if backend not in ("auto", *OPTIONS):
        raise ValueError(f"backend must be 'auto', 'docker' or 'bubblewrap', not {backend!r}")
    if backend == "auto":
        # The start finds out which one. Until then the errors are those of the one that has all these options.
        bubblewrap_only = options.keys() - DockerOptions.model_fields.keys()
        backend = (
            "bubblewrap"
            if bubblewrap_only and bubblewrap_only <= OPTIONS["bubblewrap"].model_fields.keys()
            else "docker"
        )
    return parse_options(OPTIONS[backend], given, "AsyncSandbox")
