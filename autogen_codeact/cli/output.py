"""Safe output: text of models, code, files and errors must not control the terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TextIO

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
        """Write text, escaped."""
        with clear_status(self.unfiltered, text):
            self.unfiltered.write(printable(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several texts, escaped."""
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
