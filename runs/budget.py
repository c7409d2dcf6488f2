"""How much memory the values of a log take as objects, estimated before they are made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

from autogen_codeact.runs.errors import RunFileError

MAX_EVENT = 24 * 1024 * 1024
"""Bytes of memory that the large values of one event, or the files of one result, may take."""
MAX_HELD = 64 * 1024 * 1024
"""Bytes of memory that everything may take that is needed to continue a run."""
_PIECE = 64 * 1024
_BACKSLASHES = re.compile(rb"\\*")
_WIDE = re.compile(rb"[\xf0-\xff]|\\u[dD]8")
_CONTROLS = bytes(range(32))
# Measured with CPython 3.11 to 3.13, rounded up.
_COSTS = {b"{": 240, b"[": 96, b",": 48, b":": 110}
_STRING = 58


class TooLargeError(RunFileError):
    """A value of a log would take too much memory."""


@dataclass
class Budget:
    """Memory that values may still take."""

    left: int = MAX_EVENT

    def check(self, cost: int, what: str) -> None:
        """Check that there is enough for something."""
        if cost > self.left:
            raise TooLargeError(f"{what} would take too much memory: {self.left:,} bytes are left for it")

    def take(self, cost: int, what: str) -> None:
        """Use some of it; the arguments and errors are those of `check`."""
        self.check(cost, what)
        self.left -= cost


def text_cost(data: bytes) -> int:
    """Return the bytes that a text takes in memory, or as JSON."""
    return _width(data) * len(data) + 5 * (len(data) - len(data.translate(None, _CONTROLS)))


def json_cost(data: bytes, limit: int) -> int:
    """Return the bytes that a JSON text takes as objects, at most: up to 30 times its size. It ends above `limit`."""
    cost, at = 0 if data.isascii() else 2 * len(data), 0
    inside, begun, widest = 0, 0, 1  # of a string that has begun in an earlier piece
    while at < len(data) and cost <= limit:
        # Not between a backslash and what follows it.
        end = cast(re.Match[bytes], _BACKSLASHES.match(data, min(at + _PIECE, len(data)) - 1)).end() + 1
        width = _width(data[at:end])
        piece = data[at:end].replace(b"\\\\", b"..").replace(b'\\"', b"..")
        parts = piece.split(b'"')
        outside = b"".join(parts[inside::2])
        cost += width * len(piece) + _STRING * len(parts)
        cost += sum(outside.count(sign) * each for sign, each in _COSTS.items())
        if inside:  # all characters of a string are as wide as its widest
            cost += (width - widest) * begun if width > widest else (widest - width) * len(parts[0])
        inside ^= (len(parts) - 1) & 1
        if len(parts) == 1 and inside:
            begun, widest = begun + len(piece), max(width, widest)
        else:
            begun, widest = len(parts[-1]), width
        at = end
    return cost


def _width(data: bytes) -> int:
    """Return the bytes of the widest character of a text, at most, in memory; its characters may be escapes of JSON."""
    if _WIDE.search(data):
        return 4
    return 1 if data.isascii() and b"\\u" not in data else 2
