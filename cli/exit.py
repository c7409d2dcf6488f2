"""How a command exits: its status, its error message in one line instead of a traceback, and Ctrl-C."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer

from autogen_codeact.cli.output import clear_status, guard_streams

EXIT_ERROR = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_TERMINATED = 128 + signal.SIGTERM
_NOISE = ("Pydantic serializer warnings", "Resolved model mismatch", "Missing required field")
"""Beginnings of warnings of AutoGen's OpenAI client that need no action."""


class CommandError(Exception):
    """The command can't do what its options request; the message says what to change. Exit status 2."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, in a command that has something to print before it ends."""


def say(line: str) -> None:
    """Write a message of the command to standard error."""
    with suppress(OSError):  # a closed standard error must not fail the command
        sys.stderr.write(f"codeact: {line}\n")
        sys.stderr.flush()


class _LogPrinter(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


def say_warnings() -> None:
    """Print the warnings of both libraries as messages of this command."""
    for logger in map(logging.getLogger, ("autogen_codeact", "codeact_sandbox")):
        if not any(isinstance(handler, _LogPrinter) for handler in logger.handlers):
            logger.addHandler(_LogPrinter(logging.WARNING))


def silence_libraries() -> None:
    """Hide what libraries log and warn about: an error that matters is raised, and printed as one line."""
    for name in ("autogen_core", "autogen_agentchat", "autogen_ext", "openai"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    for message in _NOISE:
        warnings.filterwarnings("ignore", message=message, category=UserWarning)


def end_process(status: int) -> None:
    """End the process as the interpreter does, but without freeing its objects one by one, which takes 0.1 s and more.

    Returns without a change if the output can't be written, or if the interpreter is to report what was not closed: then its own
    end is needed.
    """
    if sys.flags.dev_mode or sys.warnoptions:
        return
    # What an interpreter does first at its end: wait for threads, then run exit handlers. `multiprocessing` does the same.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit(status)


@contextmanager
def clean_exit() -> Iterator[None]:
    """Turn expected errors into a message and an exit status; escape unprintable output."""
    guard_streams()
    try:
        yield
    except KeyboardInterrupt as error:
        say("interrupted")
        raise typer.Exit(EXIT_TERMINATED if isinstance(error, Terminated) else EXIT_INTERRUPTED) from None
    except Exception as error:
        # Imported late: it imports AutoGen.
        from autogen_codeact.batch.errors import BatchError  # noqa: PLC0415
        from autogen_codeact.runs.errors import RunError  # noqa: PLC0415
        from codeact_sandbox.types.errors import SandboxError  # noqa: PLC0415

        if not isinstance(error, (CommandError, BatchError, RunError, SandboxError)):
            raise
        say(str(error))
        raise typer.Exit(EXIT_ERROR) from None


def run_until_interrupted(
    work: Coroutine[Any, Any, int],
    on_leave: Callable[[int], None] | None = None,
    *,
    finish: Callable[[], bool] | None = None,
) -> int:
    """Run a command's coroutine. The first SIGINT or SIGTERM cancels it and waits for its clean-up; the second exits at once."""
    import asyncio  # noqa: PLC0415 - `codeact --help` must not wait for it

    async def supervise() -> int:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)
        signals = _Signals(task.cancel, on_leave, finish)
        numbers = [signal.SIGINT, signal.SIGTERM]
        if finish is not None and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        for number in numbers:
            with suppress(NotImplementedError):  # Windows, where KeyboardInterrupt is raised instead
                loop.add_signal_handler(number, signals.receive, int(number))
        try:
            status = await task
        except asyncio.CancelledError:
            if signals.cancelled_by is None:
                raise
        return 128 + signals.cancelled_by if signals.cancelled_by is not None else status

    return asyncio.run(supervise())


class _Signals:
    """What the signals of a command do, one after the other: let it finish, cancel it, exit at once."""

    def __init__(
        self,
        cancel: Callable[[], object],
        on_leave: Callable[[int], None] | None,
        finish: Callable[[], bool] | None,
    ) -> None:
        self._cancel, self._on_leave, self._finish = cancel, on_leave, finish
        self.cancelled_by: int | None = None
        """The signal that has cancelled it."""

    def receive(self, number: int) -> None:
        """Handle a signal."""
        if self.cancelled_by is not None:
            if self._on_leave is not None:
                self._on_leave(number)
            with clear_status(sys.stderr):
                os._exit(128 + number)  # the sandbox reads the end of its stream, and ends by itself
        finish, self._finish = self._finish, None
        if finish is not None and number == signal.SIGINT and finish():
            return
        self.cancelled_by = number
        say("stopping (again to leave at once)")
        self._cancel()
