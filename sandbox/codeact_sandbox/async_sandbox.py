"""`AsyncSandbox`: runs code in a sandbox and returns results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from codeact_sandbox.branches import AsyncBranch
from codeact_sandbox.commands import Job as AsyncJob
from codeact_sandbox.commands import Words
from codeact_sandbox.host.chunks import OutputChunk
from codeact_sandbox.managed_sandbox import ManagedSandbox
from codeact_sandbox.pool import SandboxPool
from codeact_sandbox.tools.approval import ApproveTool
from codeact_sandbox.toolset import Tool
from codeact_sandbox.types.observers import Observer, Recorder
from codeact_sandbox.types.option_types import SandboxKeywords
from codeact_sandbox.types.options import BackendName, SandboxOptions
from codeact_sandbox.types.result import Result
from codeact_sandbox.types.run_context import Block
from codeact_sandbox.types.skills import Skill

P = ParamSpec("P")
T = TypeVar("T")


def _of_managed(
    method: Callable[Concatenate[ManagedSandbox, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[AsyncSandbox, P], Coroutine[Any, Any, T]]:
    """Return the method of `AsyncSandbox` that is one of `ManagedSandbox`."""

    @wraps(method)
    def call(self: AsyncSandbox, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return method(self._managed, *args, **kwargs)

    return call


class AsyncSandbox:
    """Runs code in a hardened sandbox.

    Use it with `async with`, or with `start` and `stop`. If it has not been started, the first block starts it. Cancelling the
    task that awaits a block kills the block with everything that it started. It works in any event loop.

    The arguments and errors are those of `Sandbox`.
    """

    def __init__(
        self,
        backend: BackendName | SandboxOptions = "auto",
        *,
        tools: Sequence[Tool] = (),
        approve_tool: ApproveTool | None = None,
        recorder: Recorder | None = None,
        observers: Sequence[Observer] = (),
        progress: Callable[[str], None] | None = None,
        pool: SandboxPool | None = None,
        **options: Unpack[SandboxKeywords],
    ) -> None:
        self._managed = ManagedSandbox(
            backend,
            tools=tools,
            approve_tool=approve_tool,
            recorder=recorder,
            observers=observers,
            progress=progress,
            pool=pool,
            caller=type(self),
            **options,
        )

    stop = _of_managed(ManagedSandbox.stop)
    restart = _of_managed(ManagedSandbox.restart)
    run = _of_managed(ManagedSandbox.run)
    exec = _of_managed(ManagedSandbox.exec)
    forward = _of_managed(ManagedSandbox.forward)
    put = _of_managed(ManagedSandbox.put)
    get = _of_managed(ManagedSandbox.get)
    write = _of_managed(ManagedSandbox.write)
    read = _of_managed(ManagedSandbox.read)
    list_files = _of_managed(ManagedSandbox.list_files)
    ls = _of_managed(ManagedSandbox.ls)
    stat = _of_managed(ManagedSandbox.stat)
    glob = _of_managed(ManagedSandbox.glob)
    grep = _of_managed(ManagedSandbox.grep)
    mkdir = _of_managed(ManagedSandbox.mkdir)
    remove = _of_managed(ManagedSandbox.remove)
    edit = _of_managed(ManagedSandbox.edit)
    snapshot = _of_managed(ManagedSandbox.snapshot)
    facts = _of_managed(ManagedSandbox.facts)
    list_tools = _of_managed(ManagedSandbox.list_tools)
    checkpoint = _of_managed(ManagedSandbox.checkpoint)
    rollback = _of_managed(ManagedSandbox.rollback)

    def branch(self) -> AsyncBranch:
        """Return a branch of the session, for `async with`: its blocks become the session with `keep()`, else they are undone.

        Variables and workspace are then as before. A branch has no network and calls only host tools that are `branch_safe`.
        On entry it raises `Unsupported` in process mode, in another branch, while commands run, with effects outside the sandbox
        (`network`, `bind_dir`), or if the session can't be saved (running threads, too little memory).
        """
        return self._managed.new_branch()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @overload
    async def start(self) -> None: ...

    @overload
    async def start(
        self, command: Words, *, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> AsyncJob: ...

    async def start(
        self,
        command: Words | None = None,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
    ) -> AsyncJob | None:
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
            return await self._managed.start_job(command, cwd=cwd, env=env, stdin=stdin)
        await self._managed.start()
        return None

    @property
    def jobs(self) -> list[AsyncJob]:
        """The jobs of this sandbox: those that run, and the last 32 that have ended."""
        return list(self._managed.jobs_started)

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
        return self._managed.attach(recorder=recorder, observers=observers)

    def add_tools(self, tools: Sequence[Tool]) -> None:
        """Let the code call more host tools, from the next block on. Those that it has already are ignored.

        Args:
            tools: As for the constructor.

        Raises:
            TypeError: Something is not a tool.
            ValueError: A tool can't be used; the message says why.
        """
        self._managed.add_tools(tools)

    @property
    def skills(self) -> list[Skill]:
        """The skills in /skills, as they are now on the host."""
        return self._managed.skills

    @property
    def work_dir(self) -> Path:
        """The folder on the host whose files are exchanged with the workspace.

        Raises:
            SandboxNotStarted: It is a temporary one and the sandbox has not been started.
        """
        return self._managed.work_dir

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
        return self._managed.stream_all((Block(code, language),), timeout=timeout)
