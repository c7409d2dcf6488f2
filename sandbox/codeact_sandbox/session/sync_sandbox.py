"""The sandbox for code without an event loop of its own: scripts, notebooks, threads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, wait
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from codeact_sandbox.commands import Job as AsyncJob
from codeact_sandbox.commands import Words
from codeact_sandbox.host.chunks import OutputChunk
from codeact_sandbox.host.threads import start_thread
from codeact_sandbox.session.async_sandbox import AsyncSandbox
from codeact_sandbox.session.branches import AsyncBranch
from codeact_sandbox.session.pool import Pool
from codeact_sandbox.session.ports import Forward as AsyncForward
from codeact_sandbox.tools.approval import ApproveTool
from codeact_sandbox.tools.toolset import Tool
from codeact_sandbox.types.errors import SandboxDied
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.observers import Observer, Recorder
from codeact_sandbox.types.option_types import SandboxKeywords
from codeact_sandbox.types.options import BackendName, SandboxOptions
from codeact_sandbox.types.result import Result

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger("codeact_sandbox")
STOP_TIMEOUT_S = 60.0
CANCEL_TIMEOUT_S = 30.0
CANCEL_GRACE_S = 1.0
MAX_SHOWN_OUTPUT = 2_000


def _waiting(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return the method that runs one of the asynchronous object inside, and waits for it."""

    @wraps(method)
    def wait_for_it(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = self._wait(method(self._inner, *args, **kwargs))
        return found

    return wait_for_it


class Sandbox:
    """Runs code in a hardened sandbox, like `AsyncSandbox`, with methods that wait.

    Use it with `with`, or with `start` and `stop`, from any thread, also while an event loop is running in it (notebooks).
    An interrupt (Ctrl-C) kills the running block and keeps the session. Host tools run in the sandbox's own thread.

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

    def __init__(
        self,
        backend: BackendName | SandboxOptions = "auto",
        *,
        tools: Sequence[Tool] = (),
        approve_tool: ApproveTool | None = None,
        recorder: Recorder | None = None,
        observers: Sequence[Observer] = (),
        progress: Callable[[str], None] | None = None,
        pool: Pool | None = None,
        **options: Unpack[SandboxKeywords],
    ) -> None:
        self._inner = AsyncSandbox(
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
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        # What other threads wait for.
        self._outcomes: set[Future[Any]] = set()

    exec = _waiting(AsyncSandbox.exec)
    restart = _waiting(AsyncSandbox.restart)
    put = _waiting(AsyncSandbox.put)
    get = _waiting(AsyncSandbox.get)
    write = _waiting(AsyncSandbox.write)
    read = _waiting(AsyncSandbox.read)
    list_files = _waiting(AsyncSandbox.list_files)
    ls = _waiting(AsyncSandbox.ls)
    stat = _waiting(AsyncSandbox.stat)
    glob = _waiting(AsyncSandbox.glob)
    grep = _waiting(AsyncSandbox.grep)
    mkdir = _waiting(AsyncSandbox.mkdir)
    remove = _waiting(AsyncSandbox.remove)
    edit = _waiting(AsyncSandbox.edit)
    snapshot = _waiting(AsyncSandbox.snapshot)
    facts = _waiting(AsyncSandbox.facts)
    list_tools = _waiting(AsyncSandbox.list_tools)
    checkpoint = _waiting(AsyncSandbox.checkpoint)
    rollback = _waiting(AsyncSandbox.rollback)

    def forward(self, port: int) -> Forward:
        """Let this machine connect to a port in the sandbox: see `AsyncSandbox.forward`."""
        return Forward(self, self._wait(self._inner.forward(port)))

    def branch(self) -> Branch:
        """Return a branch of the session, for `with`: see `AsyncSandbox.branch`."""
        return Branch(self, self._inner.branch())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @overload
    def start(self) -> None: ...

    @overload
    def start(
        self, command: Words, *, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> Job: ...

    def start(
        self,
        command: Words | None = None,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
    ) -> Job | None:
        """Start the sandbox, or a command in the background: see `AsyncSandbox.start`."""
        if command is None:
            return self._wait(self._inner.start())
        return Job(self, self._wait(self._inner.start(command, cwd=cwd, env=env, stdin=stdin)))

    @property
    def jobs(self) -> list[Job]:
        """The jobs of this sandbox: those that run, and the last 32 that have ended."""
        return [Job(self, job) for job in self._inner.jobs]

    def stop(self) -> None:
        """Stop the sandbox and everything in it; repeated calls, also before `start`, are harmless."""
        self._check_thread()
        if os.getpid() != self._process:
            return  # a forked child has neither the thread nor the sandbox
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            outcomes, self._outcomes = self._outcomes, set()
        if loop is None or thread is None:
            return
        stopping = asyncio.run_coroutine_threadsafe(_shut_down(self._inner, outcomes), loop)
        stopping.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
        try:
            stopping.result()
        finally:
            # After an interrupt, too: it must not leave the sandbox running.
            thread.join(STOP_TIMEOUT_S)

    def attach(self, *, recorder: Recorder | None = None, observers: Sequence[Observer] = ()) -> Callable[[], None]:
        """Attach a recorder and observers, which are called in the sandbox's own thread: see `AsyncSandbox.attach`."""
        return self._inner.attach(recorder=recorder, observers=observers)

    def add_tools(self, tools: Sequence[Tool]) -> None:
        """Let the code call more host tools, from the next block on: see `AsyncSandbox.add_tools`."""
        self._inner.add_tools(tools)

    @property
    def work_dir(self) -> Path:
        """The folder on the host whose files are exchanged with the workspace; a temporary one is known after the start."""
        return self._inner.work_dir

    def run(self, code: str, language: str = "python", timeout: float | None = None) -> Result:
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
            KeyboardInterrupt: It was interrupted. The code has been killed, and the session is kept. The exception has a `result`
                with the output so far; the traceback shows the last lines of it.
        """
        try:
            return self._wait(self._inner.run(code, language, timeout))
        except KeyboardInterrupt as interrupt:
            result: Result | None = getattr(interrupt, "result", None)
            if result is not None and result.output:
                shown = printable(result.output[-MAX_SHOWN_OUTPUT:], keep="\n\t")
                interrupt.add_note(f"Output until then:\n{shown}")
            raise

    def stream(
        self, code: str, language: str = "python", timeout: float | None = None
    ) -> Generator[OutputChunk | Result, None, None]:
        """Run code and yield its output while it is written, and finally the `Result`: see `AsyncSandbox.stream`."""
        items = self._inner.stream(code, language, timeout)
        loop = self._running_loop()
        try:
            while (item := self._wait(_next(items), loop)) is not None:
                yield item
        finally:
            self._close(items, loop)

    def _wait(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None = None) -> T:
        """Run a coroutine, which may have begun in a loop, in the sandbox's thread; an interrupt cancels it first."""
        outcome: Future[T] = Future()
        try:
            self._check_thread()
            with self._lock_of_this_process():
                loop = self._running_loop_locked(loop)
                running = asyncio.run_coroutine_threadsafe(_report(work, outcome), loop)
                self._outcomes.add(outcome)
        except BaseException:
            work.close()
            raise
        outcome.add_done_callback(self._outcomes.discard)
        try:
            return outcome.result()
        except BaseException as error:
            running.cancel()
            if wait([outcome], CANCEL_TIMEOUT_S).done and isinstance(error, KeyboardInterrupt):
                error.result = getattr(outcome.exception(), "result", None)  # type: ignore[attr-defined]
            raise

    def _close(self, items: AsyncGenerator[Any, None], loop: asyncio.AbstractEventLoop) -> None:
        """Close a stream, unless `stop` has ended it or nothing runs it any more."""
        if loop is not self._loop or os.getpid() != self._process or sys.is_finalizing():
            return
        if threading.current_thread() is self._thread:  # by the garbage collector
            asyncio.run_coroutine_threadsafe(_aclose(items), loop)
        else:
            self._wait(_aclose(items))

    def _check_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError("a host tool can't use the Sandbox that calls it: use another Sandbox")

    def _lock_of_this_process(self) -> threading.Lock:
        if os.getpid() != self._process:
            raise RuntimeError("this Sandbox belongs to the process that has forked this one: make another one here")
        return self._lock

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock_of_this_process():
            return self._running_loop_locked()

    def _running_loop_locked(self, begun: asyncio.AbstractEventLoop | None = None) -> asyncio.AbstractEventLoop:
        if begun is not None and begun is not self._loop:
            raise SandboxDied("the sandbox was stopped")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = start_thread("codeact-sandbox", _run_loop, self._loop)
        return self._loop


class _Part:
    """Something in a sandbox whose methods run in the sandbox's thread, as long as it is the same sandbox."""

    def __init__(self, sandbox: Sandbox, inner: Any) -> None:
        self._sandbox = sandbox
        self._inner = inner
        self._loop = sandbox._loop

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._sandbox._wait(work, self._loop)


class Job(_Part):
    """A command in the background, like `AsyncJob`, with methods that wait; an interrupt (Ctrl-C) ends the waiting only."""

    def __init__(self, sandbox: Sandbox, job: AsyncJob) -> None:
        super().__init__(sandbox, job)
        self.id = job.id
        """Its number in the sandbox."""
        self.command = job.command
        """The command."""

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        found: int | None = self._inner.exit_code
        return found

    wait = _waiting(AsyncJob.wait)
    output = _waiting(AsyncJob.output)
    signal = _waiting(AsyncJob.signal)
    kill = _waiting(AsyncJob.kill)
    write = _waiting(AsyncJob.write)
    close_stdin = _waiting(AsyncJob.close_stdin)


class Forward(_Part):
    """A port of a sandbox that this machine can reach, until `close` or the end of the sandbox; for `with`."""

    def __init__(self, sandbox: Sandbox, forward: AsyncForward) -> None:
        super().__init__(sandbox, forward)
        self.port = forward.port
        """The port in the sandbox."""
        self.socket = forward.socket
        """A Unix socket for any protocol, in a folder that only this user can open."""
        self.url = forward.url
        """An address on loopback for browsers and curl (HTTP, WebSocket), whose random host name is the key to it."""

    def close(self) -> None:
        """Close it, with its connections; repeated calls are harmless."""
        if self._sandbox._loop is self._loop:  # else the sandbox has been stopped
            self._wait(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Branch(_Part):
    """A branch of a session, like `AsyncBranch`, with methods that wait; an interrupt (Ctrl-C) kills its running block."""

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._sandbox._wait(work)  # it can be left after a stop

    def __enter__(self) -> Self:
        self._wait(self._inner.__aenter__())
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._wait(self._inner.__aexit__(kind))

    run = _waiting(AsyncBranch.run)
    keep = _waiting(AsyncBranch.keep)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        while True:
            try:
                loop.run_forever()
                break
            except (SystemExit, KeyboardInterrupt):
                # From a task that a host tool has started. Other threads wait for this loop.
                logger.exception("a task in the thread of the sandbox ended with an exception")
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


async def _shut_down(sandbox: AsyncSandbox, outcomes: set[Future[Any]]) -> None:
    """Stop a sandbox, and answer all that wait for it."""
    try:
        await sandbox.stop()
    finally:
        if ended := [asyncio.ensure_future(_ended(each)) for each in tuple(outcomes)]:
            await asyncio.wait(ended, timeout=CANCEL_TIMEOUT_S)
            await sandbox.stop()  # a start may have waited for the first stop
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=CANCEL_GRACE_S)
        for each in tuple(outcomes):
            if not each.done():
                each.set_exception(SandboxDied("the sandbox was stopped"))


async def _ended(outcome: Future[Any]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    outcome.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
    await ended.wait()


async def _aclose(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()


async def _next(items: AsyncGenerator[T, None]) -> T | None:
    return await anext(items, None)


async def _report(work: Coroutine[Any, Any, T], outcome: Future[T]) -> None:
    try:
        result = await work
    except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
        with contextlib.suppress(InvalidStateError):  # `stop` has given up waiting
            outcome.set_exception(error)
    else:
        with contextlib.suppress(InvalidStateError):
            outcome.set_result(result)
