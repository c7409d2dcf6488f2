"""All output of commands: text of models, code, files and errors must not control the terminal."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, TextIO

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Joiners are invisible too, but several scripts and most emoji are written with them.
_HARMLESS = "\n\t\xa0\u3000\u200c\u200d"


def printable(text: str) -> str:
    """Make multi-line text safe for a terminal: control and invisible characters are shown as escapes.

    Args:
        text: From a model or from a sandbox; neither is trusted. Colours are left out, carriage returns begin a line.
    """
    from autogen_codeact.sandbox.files.filenames import printable as escaped  # noqa: PLC0415 - `codeact --help` does without

    return escaped(_COLOURS.sub("", text).replace("\r\n", "\n").replace("\r", "\n"), keep=_HARMLESS)


class PrintableStream:
    """A text stream that escapes all unprintable text, from `print`, logging or tracebacks.

    Args:
        stream: The stream.
    """

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream
        """The stream itself, for callers that write their own escape sequences and make the text between them printable."""

    def write(self, text: str) -> int:
        """Write text, made printable."""
        self.unfiltered.write(printable(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several pieces of text."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)


def guard_streams() -> None:
    """Escape all unprintable text on standard output and standard error from now on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, PrintableStream):
            setattr(sys, name, PrintableStream(stream))


def print_json(thing: object) -> None:
    """Write a line of JSON to standard output; all of it is plain ASCII.

    Args:
        thing: What the `json` module takes.
    """
    # JSON does not escape U+007F.
    print(json.dumps(thing).replace("\x7f", "\\u007f"), flush=True)  # noqa: T201 - it is the output
