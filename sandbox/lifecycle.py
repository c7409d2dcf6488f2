"""Start, stop and replacement of the sandbox in which an `AsyncSandbox` runs code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, Unpack

from autogen_codeact.sandbox import backend_selection as select
from autogen_codeact.sandbox.egress.connector import Resolver, resolve_by_system
from autogen_codeact.sandbox.files import sync
from autogen_codeact.sandbox.files.data import check_data
from autogen_codeact.sandbox.files.private_folders import mount
from autogen_codeact.sandbox.files.temporary_folder import TemporaryFolder
from autogen_codeact.sandbox.files.workspace import Workspace
from autogen_codeact.sandbox.host.blocks import make_request, to_result
from autogen_codeact.sandbox.host.client import RunnerClient
from autogen_codeact.sandbox.host.connection import Reply
from autogen_codeact.sandbox.host.waiting import CrossLoopSemaphore, in_thread
from autogen_codeact.sandbox.leftovers import remove_leftovers_in_background
from autogen_codeact.sandbox.pool import SandboxPool
from autogen_codeact.sandbox.tools.approval import ApproveTool
from autogen_codeact.sandbox.toolset import Tool, Toolset
from autogen_codeact.sandbox.types.errors import SandboxError, SandboxNotStarted, SandboxStartError
from autogen_codeact.sandbox.types.keyword_model import check_names
from autogen_codeact.sandbox.types.languages import merge
from autogen_codeact.sandbox.types.observers import Observer, Recorder, SandboxStarted, SandboxStopped, notify
from autogen_codeact.sandbox.types.option_types import SandboxKeywords
from autogen_codeact.sandbox.types.options import (
    OPTIONS,
    DockerOptions,
    Mode,
    SandboxOptions,
    merge_options,
    parse_options,
    session_by_default,
)
from autogen_codeact.sandbox.types.paths import WORKSPACE
from autogen_codeact.sandbox.types.protected_names import ProtectedNames
from autogen_codeact.sandbox.types.result import Result
from autogen_codeact.sandbox.types.tool import HostTool

BackendName = Literal["auto", "docker", "bubblewrap"]

PREPARE_TIMEOUT_S = 60.0
STOPPED = "the sandbox has been stopped: call start() before running more code"


class SandboxLifecycle:
    """Keeps one sandbox running, and replaces it when it has ended; the arguments are those of `AsyncSandbox`."""

    resolve_name: Resolver = staticmethod(resolve_by_system)
    """Finds the addresses of the hosts in `allow_domains`, in a thread."""
    timeout = 60.0
    """Wall-clock seconds that a block may take."""
    starts = 0
    """Number of sandboxes started. If it has changed, what the last one contained is gone."""
    unrecorded = 0
    """Number of blocks run and rollbacks made in this sandbox by callers that keep no journal."""

    def __init__(
        self,
        backend: BackendName | SandboxOptions = "auto",
        *,
        tools: Sequence[Tool] | Toolset = (),
        approve_tool: ApproveTool | None = None,
        recorder: Recorder | None = None,
        observers: Sequence[Observer] = (),
        progress: Callable[[str], None] | None = None,
        pool: SandboxPool | None = None,
        **options: Unpack[SandboxKeywords],
    ) -> None:
        given: Mapping[str, Any] = options
        if pool is not None and backend == "auto":
            given = merge_options(pool.options.given(), given)
            backend = pool.options.backend
        self.options = self._parse(backend, given)
        self.timeout = self.options.timeout
        self._undecided = given if backend == "auto" and isinstance(self.options, DockerOptions) else None
        self.blocks = 0
        """Number of blocks run in this sandbox."""
        self.client: RunnerClient | None = None
        """The client of the running sandbox's runner."""
        self.name: str | None = None
        """Name of the last sandbox."""
        self.tools: Toolset = (
            tools if isinstance(tools, Toolset) else Toolset(tools, self.options.tool_limits, approve_tool)
        )
        self.attachments = self.tools.broker.attachments
        """The recorders and observers."""
        if recorder is not None or observers:
            self.attach(recorder=recorder, observers=observers)
        self._progress = progress
        self._pool = pool
        if pool is not None:
            pool.check(self.options, self.tools)
        self._languages = merge(self.options.languages)
        self._workspace: Workspace | None = None
        self._temporary: TemporaryFolder | None = None
        self._unmount: Callable[[], None] | None = None
        self._stopped = False
        self._lost = False
        self._lifecycle = CrossLoopSemaphore()
        self._session = CrossLoopSemaphore()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the sandbox; do nothing if it is running.

        Raises:
            SandboxError: It did not start; nothing is left of it.
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
                await self.tools.stop()

    async def restart(self) -> None:
        """Start a new sandbox, with the files of `work_dir` and nothing else of the last one.

        Raises:
            SandboxError: It did not start.
        """
        async with self._lifecycle:
            await self._stop(keep_folder=True)
            self._stopped = self._lost = False
            await self.tools.start()
            await self._start()

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
        return self.attachments.attach(recorder, observers)

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

    @property
    def engine(self) -> str | None:
        """Name of the Docker engine that runs the sandbox, if one was chosen with `hosts` or `docker_host`; else None."""
        return self.client.engine if self.client is not None else None

    @property
    def facts_of_pool(self) -> dict[Hashable, dict[str, Any]] | None:
        """What its pool knows of sandboxes in which no code has run; None without a pool, with `data`, and once code has run."""
        return self._pool.facts if self._pool is not None and not self.options.data and not self.blocks else None

    @property
    def mode(self) -> Mode:
        """`process` or `session`."""
        return self.options.mode

    # Host tools

    def add_tools(self, tools: Sequence[Any], approve_tool: ApproveTool | None = None) -> None:
        """Let the code call more functions of the host, from the next block on; those that it has already are ignored.

        Args:
            tools: As for the constructor.
            approve_tool: Called before each call to any tool. The call is made only if it approves.

        Raises:
            TypeError: Something is not a tool.
            ValueError: A tool can't be used, or the calls already have another `approve_tool`.
        """
        self.tools.add(tools, approve_tool)

    def offer_tool(self, tool: HostTool) -> None:
        """Let the code call a function that belongs to its caller itself: it is not listed, and its calls need no approval.

        Raises:
            ValueError: Another tool has its name.
        """
        self.tools.offer(tool)

    @property
    def known_tools(self) -> tuple[HostTool, ...] | None:
        """The functions of the host that the code can call; None if there are sources of tools that have not been started."""
        return self.tools.known

    async def list_tools(self) -> tuple[HostTool, ...]:
        """List the host tools; starts their sources, not the sandbox."""
        async with self._lifecycle:
            return await self.tools.start()

    def new_client(self) -> RunnerClient:
        """Make the client of a sandbox with these options that has not been started."""
        remove_leftovers_in_background()
        return select.make_client(self.options, self.tools.settings(), self._progress, self.resolve_name)

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
        await self._choose_backend()
        fresh = self.options.work_dir is None and self.options.bind_dir is None and self._temporary is None
        if fresh:
            self._temporary = TemporaryFolder()
        try:
            if self.options.bind_dir is None:
                self._workspace = self._new_workspace(self.work_dir)
                await in_thread(self._workspace.prepare)
            else:
                self._unmount = await in_thread(mount, Path(self.options.bind_dir))
            self.blocks = 0
            client = await self._pool.acquire() if self._pool is not None else self.new_client()
            self.name = client.name
            if self._pool is None:
                await client.start()
            self.tools.started(client.settings.tools)
            try:
                await self._prepare(client)
            except BaseException:
                await client.stop()
                raise
        except BaseException:
            # A folder of earlier blocks must survive an engine that is unavailable for a moment.
            if fresh:
                await self._drop_folder()
            self._release_mount()
            raise
        self.client = client
        self.starts, self.unrecorded = self.starts + 1, 0
        duration_s = time.monotonic() - began
        started = SandboxStarted(client.name, self.options.backend, duration_s)
        notify(self.attachments.current, "sandbox_started", started)
        return client

    def _new_workspace(self, root: Path) -> Workspace:
        return Workspace(root, protected=ProtectedNames(self.options.write_back))

    async def _choose_backend(self) -> None:
        if self._undecided is not None:
            found = await asyncio.to_thread(select.choose_backend, self._undecided)
            self.options = self._parse(found, self._undecided)
            self._undecided = None

    async def _prepare(self, client: RunnerClient) -> None:
        """Send files and functions, and run `init_command`."""
        options = self.options
        await check_data(client, options.data)
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
        session = self.options.mode == "session"
        scan = self._workspace is not None and language == "sh"  # not for an import, which writes __pycache__
        request = make_request(
            code,
            language,
            session=session,
            workspace=WORKSPACE,
            languages=self._languages,
            scan=scan,
            delete_unnamed=True,
        )
        assert not isinstance(request, Result)
        self.blocks += 1
        reply = await client.run(request.message, request.code, PREPARE_TIMEOUT_S)
        result = to_result(reply, split_streams=self.options.split_streams)
        if result.exit_code != 0:
            raise SandboxStartError(f"{failed} (exit code {result.exit_code}): {result.output.strip()}")
        return reply

    async def _stop(self, *, keep_folder: bool = False, reusable: bool = True) -> None:
        client, self.client = self.client, None
        reasons: list[SandboxError] = []
        began = time.monotonic()
        try:
            if client is not None:
                if not client.alive:
                    client.when_ended(reasons.append)
                await (client.end_use() if reusable else client.stop())
        finally:
            workspace, self._workspace = self._workspace, None
            if workspace is not None:
                await sync.close(workspace, let_finish=keep_folder)
            if not keep_folder:
                await self._drop_folder()
            self._release_mount()
            if client is not None:
                error = str(reasons[0]) if reasons else None
                stopped = SandboxStopped(client.name, error, time.monotonic() - began)
                notify(self.attachments.current, "sandbox_stopped", stopped)

    def _release_mount(self) -> None:
        if self._unmount is not None:
            self._unmount()
            self._unmount = None

    async def _drop_folder(self) -> None:
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            await temporary.remove()

    async def _discard(self, client: RunnerClient) -> None:
        """Stop a sandbox with a partly rebuilt session; the next block gets another one."""
        async with self._lifecycle:
            if self.client is client:
                self._lost = True
                await self._stop(keep_folder=True, reusable=False)

    def _parse(self, backend: BackendName | SandboxOptions, options: Mapping[str, Any]) -> SandboxOptions:
        if isinstance(backend, SandboxOptions):
            if options:
                raise TypeError(
                    f"{', '.join(options)}: options are given either as {type(backend).__name__} or by name"
                )
            return session_by_default(backend)
        if backend not in ("auto", *OPTIONS):
            raise ValueError(f"backend must be 'auto', 'docker' or 'bubblewrap', not {backend!r}")
        if backend == "auto":
            # An option that only bubblewrap has means bubblewrap. Otherwise the start finds out; Docker has all the others.
            bubblewrap_only = OPTIONS["bubblewrap"].model_fields.keys() - OPTIONS["docker"].model_fields.keys()
            backend = "bubblewrap" if bubblewrap_only & options.keys() else "docker"
        check_names(type(self), options, {kind: model.names() for kind, model in OPTIONS.items()}, backend)
        return parse_options(OPTIONS[backend], {"mode": "session", **options}, type(self))
