"""How a command ends: its exit status, and one clear line instead of a traceback."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer

from autogen_codeact.cli.output import guard_streams

UNUSABLE = 2
INTERRUPTED = 128 + signal.SIGINT


class CommandError(Exception):
    """What the user asked for can't be done; the message says what to do. Exit status 2."""


def say(line: str) -> None:
    """Write a line for the user to standard error."""
    with suppress(OSError):  # nobody reads it any more, which is no reason to fail
        sys.stderr.write(f"codeact: {line}\n")
        sys.stderr.flush()


@contextmanager
def clean_exit() -> Iterator[None]:
    """Report expected errors as a line on standard error and an exit status; escape unprintable output.

    Raises:
        typer.Exit: With 2 for something that the user can put right, with 130 after Ctrl-C.
    """
    guard_streams()
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except CommandError as error:
        say(str(error))
        raise typer.Exit(UNUSABLE) from None
    except Exception as error:
        # Only now: importing it takes AutoGen along.
        from autogen_codeact.sandbox.errors import SandboxError  # noqa: PLC0415

        if not isinstance(error, SandboxError):
            raise
        say(str(error))
        raise typer.Exit(UNUSABLE) from None


def run_until_interrupted(work: Coroutine[Any, Any, int]) -> int:
    """Run a command's work on an event loop; Ctrl-C cancels it and waits for its tidying up, twice leaves at once.

    Args:
        work: Returns the exit status.

    Returns:
        The exit status, 130 after Ctrl-C and 143 after SIGTERM.
    """
    import asyncio  # noqa: PLC0415 - `codeact --help` does without

    return asyncio.run(_supervised(work))


async def _supervised(work: Coroutine[Any, Any, int]) -> int:
    import asyncio  # noqa: PLC0415 - as above

    loop = asyncio.get_running_loop()
    running = asyncio.ensure_future(work)
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        if len(received) > 1:
            os._exit(128 + number)  # the sandbox reads the end of its stream, and ends by itself
        say("stopping (again to leave at once)")
        running.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # on Windows, where KeyboardInterrupt does
            loop.add_signal_handler(number, stop, int(number))
    try:
        status = await running
    except asyncio.CancelledError:
        if not received:
            raise
        status = 0
    return 128 + received[0] if received else status
