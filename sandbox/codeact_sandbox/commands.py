"""Commands in a sandbox, beside its blocks: `exec` and jobs, as methods of `AsyncSandbox`."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import signal as signals
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from codeact_sandbox.files import sync
from codeact_sandbox.files.work_folder import WorkFolder
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.processes import Command, Input, Kept, OnOutput, Process
from codeact_sandbox.host.protocol import decoded
from codeact_sandbox.host.waiting import CrossLoopSemaphore, wait_for
from codeact_sandbox.types.errors import SandboxDied, SandboxError, Unsupported
from codeact_sandbox.types.limits import parse_seconds, parse_timeout
from codeact_sandbox.types.options import SandboxOptions
from codeact_sandbox.types.result import Artifact, CommandOutput, ExecResult, Result

MAX_ENDED_JOBS = 32  # jobs that have ended and whose output is kept
Words = Sequence[str] | str


class HasCommands(Protocol):
    options: SandboxOptions
    timeout: float
    replaying_now: bool
    _folder: WorkFolder
    started_jobs: list[Job]
    open_branch: object
    client: RunnerClient | None
    _session: CrossLoopSemaphore
    _lost: bool

    @property
    def _run_block(self) -> Callable[..., Awaitable[Result]]:
        """Runs a block."""

    async def _discard(self, client: RunnerClient) -> None:
        """Stop a sandbox with a partly rebuilt session; the next block gets another one."""

    async def ready(self) -> RunnerClient:
        """Return the running sandbox, or a new one if it has ended."""


async def run_command(
    sandbox: HasCommands,
    command: Words,
    *,
    stdin: Input | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    on_output: OnOutput | None = None,
    user: str | None = None,
) -> ExecResult:
    """Run a command beside the blocks, and wait for its end; the sandbox is started if it is not running.

    Args:
        command: Program and arguments, or a line for `/bin/sh -c`.
        stdin: What it reads: bytes, text, or pieces of bytes. Default: nothing.
        cwd: Its directory: absolute, or relative to the workspace. Default: the workspace.
        env: Variables besides the sandbox's own.
        timeout: Wall-clock seconds after which it is killed. Default: the sandbox's `timeout`.
        on_output: Called with "stdout" or "stderr" and bytes, as they come; the command waits for it. It gets all of the
            output, while the result has head and tail (`limits.output`). It may be async.
        user: None; there is no other user than the sandbox's.

    Returns:
        What it did. After a timeout the exit code is 124. A program that is not found is the exit code 127.

    Raises:
        ValueError: An argument is invalid.
        Unsupported: A `user` was given.
        SandboxFileError: `cwd` is not a directory there.
        SandboxError: Something around the command broke, or 64 commands run already.
        asyncio.CancelledError: The task was cancelled; the command is dead by then. The exception's `result` has its output.
    """
    given = _checked(command, cwd, env, user)
    limit = parse_timeout(timeout) if timeout is not None else sandbox.timeout
    given = {**given, "stdin": stdin is not None, "stream": on_output is not None, "timeout": limit}
    client = await prepared(sandbox)
    checked = Command(**given, cpu_seconds=sandbox.options.limits.cpu_seconds)
    process = client.processes.open(checked)
    try:
        await process.run(stdin, on_output, limit)
    except asyncio.CancelledError as error:
        with contextlib.suppress(SandboxError):
            error.result = _result(process, (), ())  # type: ignore[attr-defined]
        raise
    return await _finished(sandbox, client, process)


async def start_job(
    sandbox: HasCommands,
    command: Words,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bool = False,
) -> Job:
    """Start a command in the background: see `AsyncSandbox.start`."""
    given = _checked(command, cwd, env, None)
    client = await prepared(sandbox)
    cpu_seconds = sandbox.options.limits.cpu_seconds
    process = client.processes.open(Command(**given, stdin=stdin, stream=False, cpu_seconds=cpu_seconds))
    try:
        await process.started()
    except asyncio.CancelledError:
        await process.kill()
        raise
    job = Job(sandbox, client, process)
    jobs = sandbox.started_jobs
    jobs.append(job)
    for ended in [each for each in jobs if each.exit_code is not None][:-MAX_ENDED_JOBS]:
        jobs.remove(ended)
    return job


@dataclass(frozen=True, eq=False)
class Job:
    """A command in the background, which the sandbox owns: it outlives blocks, their timeouts and restored checkpoints.

    It ends with its first process, when it is killed, or with the sandbox.
    """

    _sandbox: HasCommands
    _client: RunnerClient
    _process: Process

    @property
    def id(self) -> int:
        """Its number in the sandbox."""
        return self._process.ident

    @property
    def command(self) -> Words:
        return self._process.command.words

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs.

        Raises:
            SandboxDied: The sandbox has ended before it.
        """
        return self._process.end().exit_code if self._process.reply.done() else None

    async def wait(self, timeout: float | None = None) -> ExecResult:
        """Wait for its end.

        Args:
            timeout: Seconds to wait at most; the job goes on. Default: no limit.

        Raises:
            SandboxTimeout: It has not ended by then.
            SandboxDied: The sandbox has ended, or was stopped.
        """
        if timeout is None:
            await self._process.wait()
        else:
            late = f"the job {self.id} still runs after {timeout:g} s"
            await wait_for(self._process.reply, parse_seconds("timeout", timeout), late)
        return await _finished(self._sandbox, self._client, self._process)

    async def output(self) -> CommandOutput:
        """Return its output so far; its head and tail, if it is more than `limits.output`."""
        ended = self._process.reply.done()
        kept = self._process.whole() if ended else await self._process.output()
        exit_code = self.exit_code
        duration = time.monotonic() - self._process.began if exit_code is None else self._process.end().duration_s
        return CommandOutput(exit_code, duration_s=duration, **_streams(*kept))

    async def signal(self, number: int) -> None:
        """Send its processes a signal: its process group; `SIGKILL` is `kill`. Nothing happens if it has ended."""
        if number not in set(signals.Signals):
            raise ValueError(f"{number!r} is not a signal: use signal.SIGTERM, for example")
        if number == signals.SIGKILL:
            await self.kill()
        elif self.exit_code is None:
            self._process.signal(number)

    async def kill(self) -> None:
        """Kill it with everything that it has started, and wait for its end."""
        await self._process.kill()

    async def write(self, data: bytes | str) -> None:
        """Write to its standard input (`stdin=True`), as fast as it reads.

        Raises:
            SandboxFileError: It has no standard input, has closed it, or has ended.
        """
        await self._process.write(data.encode() if isinstance(data, str) else data)

    async def close_stdin(self) -> None:
        """Close its standard input, after what was written."""
        await self._process.close_stdin()


def _checked(command: Words, cwd: str | None, env: Mapping[str, str] | None, user: str | None) -> dict[str, Any]:
    if user is not None:
        raise Unsupported("a sandbox has no capabilities to change the user: leave user=None")
    words = [command] if isinstance(command, str) else list(command)
    texts = [*words, *([cwd] if cwd is not None else ()), *(env or {}), *(env or {}).values()]
    if not words or not all(isinstance(text, str) for text in texts):
        raise ValueError("a command is a string, or a list of at least one string; cwd and env are strings, too")
    if not words[0] or any("\0" in text for text in texts):
        raise ValueError("a command must not be empty, and neither it nor cwd and env may contain a NUL character")
    if any(not name or "=" in name for name in env or {}):
        raise ValueError("the name of a variable (env) must not be empty or contain '='")
    return {"words": command if isinstance(command, str) else words, "cwd": cwd, "env": dict(env or {})}


async def live_client(sandbox: HasCommands) -> RunnerClient:
    """Return the running sandbox, unless its session is being rebuilt."""
    client = await sandbox.ready()
    if sandbox.replaying_now:
        raise SandboxError("the session is being rebuilt: run the command when that is done")
    return client


async def prepared(sandbox: HasCommands) -> RunnerClient:
    """Return the running sandbox, with what has changed on the host."""
    client = await live_client(sandbox)
    if sandbox.open_branch is not None:  # the host gets its files later, if at all, and it has no network
        return client
    if client.gateway is not None:
        client.gateway.begin_block(shut=False)
    workspace = sandbox._folder.workspace
    if workspace is not None:
        await sync.push_changes(workspace, client, sandbox.options.limits)
        if await live_client(sandbox) is not client:  # it also refuses what a branch has begun meanwhile
            raise SandboxDied("the sandbox was replaced meanwhile")
    return client


async def _finished(sandbox: HasCommands, client: RunnerClient, process: Process) -> ExecResult:
    process.end()
    workspace = sandbox._folder.workspace
    if workspace is None or not client.alive:
        return _result(process, (), ())
    artifacts = await sync.pull_changed(workspace, client)
    problem = workspace.take_not_stored()
    result = _result(process, artifacts, (*workspace.take_notes(), *filter(None, [problem])))
    return replace(result, exit_code=1) if problem and result.exit_code == 0 else result


def _result(process: Process, artifacts: tuple[Artifact, ...], notes: tuple[str, ...]) -> ExecResult:
    end = process.end()
    return ExecResult(
        end.exit_code,
        duration_s=end.duration_s,
        timed_out=end.timed_out,
        artifacts=artifacts,
        notes=(*notes, *end.notes),
        **_streams(*process.whole()),
    )


def _streams(stdout: Kept, stderr: Kept) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, kept in (("stdout", stdout), ("stderr", stderr)):
        fields[name], fields[f"{name}_bytes"] = _text(kept), bytes(kept.head + kept.tail)
        fields[f"{name}_dropped"] = kept.dropped
    return fields


def _text(kept: Kept) -> str:
    """Return what is kept as text, in which no character is cut in two."""
    if not kept.dropped:
        return decoded(bytes(kept.head + kept.tail))
    head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(kept.head))
    start = next((at for at, byte in enumerate(kept.tail[:3]) if byte & 0xC0 != 0x80), 0)
    return f"{head}\n[... {kept.dropped:,} bytes dropped ...]\n{decoded(bytes(kept.tail[start:]))}"
