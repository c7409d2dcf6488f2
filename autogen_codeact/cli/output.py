"""What a command prints, safely for a terminal, and how it exits: its status, its error in one line, and Ctrl-C."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

import typer

if TYPE_CHECKING:
    from autogen_agentchat.base import TaskResult

EXIT_ERROR = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_TERMINATED = 128 + signal.SIGTERM
_EXPECTED = frozenset({"CommandError", "BatchError", "RunError", "LogLocked", "SandboxError", "ViewerError"})
"""Errors whose message says what to do. By name: to import them takes a second."""
_NOISE = ("Pydantic serializer warnings", "Resolved model mismatch", "Missing required field")
"""Beginnings of warnings of AutoGen's OpenAI client that need no action."""


_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_FLAGS = {
    "allow_domains": "--allow-domain",
    "allow_pip": "--allow-pip",
    "data": "--data",
    "environment": "--env",
    "exclude": "--exclude",
    "include": "--include",
    "packages": "--package",
    "secrets": "--secret",
    "skills": "--skills",
    "timeout": "--timeout",
    "work_dir": "--work-dir",
}
_CALL = re.compile(r"^\w+\(([a-z_]+)=…\)")
_VALUE = re.compile(r"^([a-z_]+)(?==')")
_ARGUMENT = re.compile(r"""(?<![\w/.'"-])(?:--option )?([a-z_]+)=(?![\w'"(\[{…])""")
_NAME = re.compile(r"""(?<![\w/.'"-])(work_dir|allow_domains|allow_pip)\b(?![=/])""")


def in_options(text: str) -> str:
    """Return a message of the library with options of the command line in the place of arguments of Python."""

    def option(match: re.Match[str]) -> str:
        return _FLAGS.get(match[1], f"--option {match[1]}")

    def argument(match: re.Match[str]) -> str:
        return _FLAGS.get(match[1], f"--option {match[1]}=")

    text = _VALUE.sub(option, _CALL.sub(option, text))
    return _NAME.sub(option, _ARGUMENT.sub(argument, text))


class CommandError(Exception):
    """The command can't do what its options request; the message says what to change. Exit status 2."""


class Interrupted(Exception):
    """A signal has ended the command."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, in a command that has something to do before it ends."""


def end_by_exception() -> None:
    """Have SIGTERM raise `Terminated` from now on."""

    def terminate(*_: object) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, terminate)


def say(line: str) -> None:
    """Write a message of the command to standard error."""
    with suppress(OSError):  # a closed standard error must not fail the command
        sys.stderr.write(f"codeact: {line}\n")
        sys.stderr.flush()


class _LogPrinter(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(in_options(record.getMessage()))


_printer = _LogPrinter(logging.WARNING)


def say_warnings() -> None:
    """Print the warnings of both libraries as messages of this command."""
    for name in ("autogen_codeact", "codeact_sandbox"):
        logging.getLogger(name).addHandler(_printer)  # which does nothing the second time


def silence_libraries() -> None:
    """Hide what libraries log and warn about: an error that matters is raised, and printed as one line."""
    for name in ("autogen_core", "autogen_agentchat", "autogen_ext", "openai"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    for message in _NOISE:
        warnings.filterwarnings("ignore", message=message, category=UserWarning)


@contextmanager
def clean_exit() -> Iterator[None]:
    """Turn expected errors into a message and an exit status; escape unprintable output."""
    guard_streams()
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt as error:
        say("interrupted")
        raise typer.Exit(EXIT_TERMINATED if isinstance(error, Terminated) else EXIT_INTERRUPTED) from None
    except Exception as error:
        message = str(error)
        if isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None:
            message = f"the output can't be written: {error.strerror}"
        elif not _EXPECTED.intersection(kind.__name__ for kind in type(error).__mro__):
            raise
        say(in_options("\ncodeact: ".join([message, *getattr(error, "__notes__", ())])))
        raise typer.Exit(EXIT_ERROR) from None
    finally:
        discard_unwritable()


def run_until_interrupted(
    work: Coroutine[Any, Any, int],
    on_leave: Callable[[int], None] | None = None,
    *,
    on_interrupt: Callable[[], bool] | None = None,
) -> int:
    """Run a command's coroutine. The first SIGINT or SIGTERM cancels it and waits for its clean-up; the second exits at once.

    `on_interrupt` is called at each SIGINT before that, and returns whether it has handled it; SIGHUP then counts as SIGTERM.
    """
    import asyncio  # noqa: PLC0415 - `codeact --help` must not wait for it

    cancelled_by: list[int] = []

    async def supervise() -> int:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)

        def receive(number: int) -> None:
            if cancelled_by:
                if on_leave is not None:
                    on_leave(number)
                with clear_status(sys.stderr):
                    os._exit(128 + number)  # the sandbox reads the end of its stream, and ends by itself
            if number != signal.SIGINT or on_interrupt is None or not on_interrupt():
                cancelled_by.append(number)
                say("stopping; Ctrl-C again ends at once")
                task.cancel()

        numbers = [signal.SIGINT, signal.SIGTERM]
        if on_interrupt is not None and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, receive, int(number))
        try:
            status = await task
        except asyncio.CancelledError:
            if not cancelled_by:
                raise
        return 128 + cancelled_by[0] if cancelled_by else status

    return asyncio.run(supervise())


class LastJsonLine:
    """Prints the last line of `--json` however the command ends; a context manager around the command."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.advice: str | None = None
        """What to do after an error or a signal, if the run's folder does not say it."""
        self.run: Path | None = None  # the run's folder
        self._result: dict[str, Any] | None = None
        self._printed = not enabled

    def __enter__(self) -> Self:
        if self.enabled:
            end_by_exception()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        status = error.exit_code if isinstance(error, typer.Exit) else None
        if status is not None:
            error = None
        if error is None and self._result is not None:
            self._print(self._result)
        elif isinstance(error, Terminated) or status == EXIT_TERMINATED:
            self.cancelled(signal.SIGTERM)
        elif error is None or isinstance(error, KeyboardInterrupt):
            self.cancelled(signal.SIGINT)
        else:
            self._print(error_object(error, self.run, self.advice))

    def finish(self, result: TaskResult, answer: str | None) -> None:
        end = {"type": "TaskResult", "stop_reason": result.stop_reason, "outcome": "completed", "answer": answer}
        self.end_with({**end, "run": absolute(self.run)})

    def end_with(self, value: dict[str, Any]) -> None:
        """Keep an object, to be printed at the end."""
        self._result = value

    def cancelled(self, number: int) -> None:
        """Print that the run was ended by a signal."""
        stopped = Interrupted(f"stopped by {signal.Signals(number).name}")
        self._print(error_object(stopped, self.run, self.advice, outcome="cancelled"))

    def _print(self, value: dict[str, Any]) -> None:
        if not self._printed:
            self._printed = True
            with suppress(OSError):
                print_json(value)


def error_object(
    error: BaseException, run: Path | None = None, advice: str | None = None, *, outcome: str = "failed"
) -> dict[str, Any]:
    """Return the last line of a command that has failed."""
    of_model = str(error).startswith("The run failed.") and error.__cause__ is not None
    message = error.format_message() if hasattr(error, "format_message") else str(error)  # of click
    details = {
        "class": type(error.__cause__ if of_model else error).__name__,
        "message": message,
        "advice": resume_advice(run) or advice,
    }
    return {"type": "error", "outcome": outcome, "error": details, "run": absolute(run)}


def resume_advice(run: Path | None) -> str | None:
    """Return how a run is continued, if it has a log."""
    from autogen_codeact.runs.store import has_log, run_name  # noqa: PLC0415 - not needed for --help

    return f"`codeact resume {run_name(run)}` continues the run" if run is not None and has_log(run) else None


def absolute(path: Path | None) -> str | None:
    return os.path.abspath(path) if path is not None else None


# Text for a terminal

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def printable(text: str, *, overwrites: bool = False) -> str:
    """Make text safe for a terminal: control and invisible characters are shown as escapes."""
    from codeact_sandbox.types.filenames import printable_text  # noqa: PLC0415 - `codeact --help` must not wait for it

    text = _COLOURS.sub("", text).replace("\r\n", "\n")
    return printable_text(text, "\r") if overwrites else printable_text(text.replace("\r", "\n"))


_status: Callable[[TextIO, str], AbstractContextManager[None]] | None = None


def show_status(cleared: Callable[[TextIO, str], AbstractContextManager[None]] | None) -> None:
    """Let a line about what is happening give way to all other output."""
    global _status  # noqa: PLW0603 - the terminal is one, too
    _status = cleared


def clear_status(stream: TextIO, text: str = "") -> AbstractContextManager[None]:
    """Return a context in which no line about what is happening is on the terminal."""
    return nullcontext() if _status is None else _status(stream, text)


def can_erase() -> bool:
    """Return whether the terminal, if there is one, knows escape sequences, and the user wants more than plain lines."""
    return os.environ.get("TERM", "dumb").lower() not in ("dumb", "unknown", "") and not os.environ.get("CODEACT_PLAIN")


def unfiltered(stream: TextIO) -> TextIO:
    """Return a stream without the escaping of this module, for callers that write escape sequences of their own."""
    found: TextIO = getattr(stream, "unfiltered", stream)
    return found


class PrintableStream:
    """A text stream that escapes all unprintable text, from `print`, logging and tracebacks."""

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream
        """The stream itself, for callers that write escape sequences and escape the text between them."""

    def write(self, text: str) -> int:
        with clear_status(self.unfiltered, text):
            self.unfiltered.write(printable(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)


def guard_streams() -> None:
    """Escape all unprintable text on standard output and standard error from now on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, PrintableStream):
            setattr(sys, name, PrintableStream(stream))


def print_json(value: object) -> None:
    """Write a line of JSON in plain ASCII to standard output."""
    # The `json` module does not escape U+007F.
    print(json.dumps(value).replace("\x7f", "\\u007f"), flush=True)  # noqa: T201 - it is the output


def discard_unwritable() -> None:
    """Have the interpreter not complain when it ends that output can't be written because its reader or terminal is gone."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
