"""`run_in_background`: a host tool by which code starts jobs of its own sandbox, those of `AsyncSandbox.start`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from codeact_sandbox.commands import HasCommands, Job, start_job
from codeact_sandbox.types.errors import SandboxError, SandboxTimeout
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.limits import ToolLimits
from codeact_sandbox.types.text import apply_carriage_returns
from codeact_sandbox.types.tool import ToolAnswer, ToolArgumentError

RUN_IN_BACKGROUND = "run_in_background"
MAX_JOBS = 16
MAX_NEWS_CHARS = 4_000
"""Of the new output of one job that the model is shown, the last."""
MAX_ALL_NEWS_CHARS = 16_000
"""The same of all jobs together."""
MAX_OUTPUT_CHARS = 200_000
"""Of what code gets as the output of a job, the last."""
MAX_COMMAND_CHARS = 200
WAIT_S = 20.0
END_S = 10.0
GONE = "the job has ended with its sandbox, or was ended at the end of an earlier turn"
LOST = "[The background jobs of before have ended with their sandbox.]"
TOO_MANY = f"{MAX_JOBS} background jobs run already: wait for one, or stop one"

STUB = '''
class _BackgroundJob:
    """A command in the background."""

    def __init__(self, id, command):
        self.id, self.command = id, command

    def __repr__(self):
        return "<job %s: %s>" % (self.id.partition("-")[0], self.command)

    def _ask(self, op, **more):
        return _call("run_in_background", dict(more, op=op, job=self.id))

    @property
    def exit_code(self):
        """Its exit code; None while it runs."""
        return self._ask("wait", seconds=0)

    def wait(self, timeout=None):
        """Wait for its end, at most some seconds; return its exit code, or None if it still runs."""
        import time

        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = 20 if until is None else until - time.monotonic()
            code = self._ask("wait", seconds=max(0, min(20, left)))
            if code is not None or (until is not None and time.monotonic() >= until):
                return code

    def output(self):
        """Return what it has written so far."""
        return self._ask("output")

    def stop(self):
        """End it with everything that it has started; return its exit code."""
        return self._ask("stop")


def run_in_background(command):
    """Start a command that goes on beside the code, and return it as a job."""
    import os

    words = command if isinstance(command, str) else list(map(str, command))
    return _BackgroundJob(_call("run_in_background", {"op": "start", "command": words, "cwd": os.getcwd()}), words)
'''
_LINE = ["/bin/sh", "-c", 'exec 2>&1; eval "$1"', "sh"]
_WORDS = ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh"]


@dataclass
class _Started:
    """A job, and how much of its output the model has been shown."""

    job: Job
    command: str
    shown: int = 0
    told_end: bool = False


@dataclass(frozen=True)
class JobNews:
    """What is new of the jobs: a text for the model, and those that run."""

    text: str = ""
    running: list[str] = field(default_factory=list)


class BackgroundJobs:
    """The host tool, and the jobs that one caller's code has started with it."""

    name = RUN_IN_BACKGROUND
    signature = "(command: str | list[str])"
    description = "Start a command that goes on beside the code, and return it as a job."
    source = STUB

    def __init__(self, sandbox: HasCommands | None = None) -> None:
        self._sandbox = sandbox
        self._jobs: dict[str, _Started] = {}
        self._count = self._starting = 0
        self._forgotten = 0
        """Jobs that have ended and were forgotten before the model was told."""
        self.lost = False
        """Whether an earlier process has started jobs, which its sandbox has ended."""

    def __eq__(self, other: object) -> bool:
        # Several callers may share a sandbox; the function there is the same.
        return isinstance(other, BackgroundJobs)

    def __hash__(self) -> int:
        return hash(self.name)

    async def run(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Start a job, wait for its end, stop it, or return its output."""
        match arguments:
            case {"op": "start", "command": str() as line, "cwd": str(cwd)} if line.strip():
                return ToolAnswer(await self._start([*_LINE, line], line, cwd))
            case {"op": "start", "command": [str(), *_] as words, "cwd": str(cwd)} if all(
                isinstance(each, str) for each in words
            ):
                return ToolAnswer(await self._start([*_WORDS, *words], " ".join(words), cwd))
            case {"op": "wait", "job": str(name), "seconds": int() | float() as seconds}:
                job = self._job(name).job
                with suppress(SandboxTimeout):
                    await job.wait(min(max(seconds, 0.001), self._longest_wait))
                return ToolAnswer(job.exit_code)
            case {"op": "stop", "job": str(name)}:
                job = self._job(name).job
                await job.kill()
                return ToolAnswer(job.exit_code)
            case {"op": "output", "job": str(name)}:
                output = await self._job(name).job.output()
                return ToolAnswer(output.stdout[-MAX_OUTPUT_CHARS:])
        raise ToolArgumentError("use run_in_background(command), and the methods of the job that it returns")

    @property
    def _longest_wait(self) -> float:
        """What one call may take, in seconds."""
        limits = self._sandbox.options.tool_limits if self._sandbox is not None else None
        return min(WAIT_S, (limits or ToolLimits()).seconds / 2)

    def _job(self, name: str) -> _Started:
        if name not in self._jobs:
            raise ValueError(GONE)
        return self._jobs[name]

    async def _start(self, words: list[str], text: str, cwd: str) -> str:
        if self._sandbox is None:
            raise ValueError("nobody here starts jobs")
        if self._starting + sum(each.job.exit_code is None for each in self._jobs.values()) >= MAX_JOBS:
            raise ValueError(TOO_MANY)
        ended = [name for name, each in self._jobs.items() if each.job.exit_code is not None]
        for name in ended[: -MAX_JOBS + 1]:
            self._forgotten += not self._jobs.pop(name).told_end
        self._starting += 1
        try:
            job = await start_job(self._sandbox, words, cwd=cwd, env={"PYTHONUNBUFFERED": "1"})
        finally:
            self._starting -= 1
        self._count += 1
        # An old job of a session that was rebuilt must not be taken for a new one.
        name = f"{self._count}-{secrets.token_hex(4)}"
        self._jobs[name] = _Started(job, printable(" ".join(text.split())[:MAX_COMMAND_CHARS]))
        return name

    async def news(self) -> JobNews:
        """Return what is new since the last call; jobs that have ended are in it for the last time."""
        texts = [LOST] if self.lost else []
        if self._forgotten:
            texts.append(f"[{self._forgotten:,} further jobs have ended]")
        running: list[str] = []
        self.lost, self._forgotten, left = False, 0, MAX_ALL_NEWS_CHARS
        for name, each in list(self._jobs.items()):
            if each.told_end:
                continue
            label = f"job {name.partition('-')[0]} ({each.command})"
            try:
                new, exit_code = await _new_output(each, left), each.job.exit_code
                left -= len(new)
            except SandboxError:
                del self._jobs[name]
                texts.append(f"[{label} has ended with its sandbox]")
                continue
            each.told_end = exit_code is not None
            state = "runs" if exit_code is None else f"has ended with exit code {exit_code}"
            texts.append(f"[{label} {state}; {'its new output:' if new else 'no new output'}]{new and chr(10)}{new}")
            running += [label] if exit_code is None else []
        return JobNews("\n".join(texts), running)

    async def end(self) -> None:
        """End the jobs that run, and forget all; their files go to the host."""
        jobs, self._jobs = list(self._jobs.values()), {}
        for each in jobs:
            with suppress(SandboxError):
                if each.job.exit_code is None:
                    await each.job.kill()
                    await each.job.wait(END_S)


async def _new_output(each: _Started, left: int) -> str:
    """Return the last part of what a job has written since the last call, as far as there is room left for it."""
    output = await each.job.output()
    written = len(output.stdout_bytes) + output.stdout_dropped
    new, each.shown = written - each.shown, written
    text = output.stdout_bytes[-new:].decode("utf-8", "replace") if new else ""
    text = printable(apply_carriage_returns(text).rstrip("\n"), keep="\n\t")
    most = min(MAX_NEWS_CHARS, max(left, 0))
    return f"[…]\n{text[len(text) - most :]}" if len(text) > most else text
