"""The displays of a block, from the frames of the runner. It runs in the connection's thread."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from autogen_codeact.sandbox.displays import IMAGES, Display, file_name, file_type
from autogen_codeact.sandbox.errors import SandboxProtocolError
from autogen_codeact.sandbox.host.messages import DisplayMessage
from autogen_codeact.sandbox.host.protocol import check_nesting

MAX_DISPLAYS = 100
"""Of a block, as the runner counts them too."""
MAX_BYTES = 16_000_000
MAX_NESTING = 100
_BINARY = (*IMAGES, "application/pdf")
_SIGNATURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
    "application/pdf": (b"%PDF-",),
}


@dataclass
class Displays:
    """The displays of one block as they come."""

    kept: dict[int, Display] = field(default_factory=dict)
    """By their number in the block, from 1, in the order in which they were first shown."""
    cleared: int = 0
    """How many were dropped because the code has asked for that."""
    _frames: int = 0
    count: int = 0
    """How many have come."""
    _bytes: int = 0

    def add(self, message: DisplayMessage, data: bytes) -> Display | None:
        """Add the display of a frame.

        Returns:
            The display; None if the frame only drops earlier ones.

        Raises:
            SandboxProtocolError: There are more than the runner may send.
        """
        self._frames += 1
        self._bytes += len(data)
        if self._frames > 2 * MAX_DISPLAYS or self._bytes > MAX_BYTES:
            raise SandboxProtocolError("the sandbox sent more displays than its limits allow")
        if message.clear:
            self.cleared += len(self.kept)
            self.kept.clear()
            return None
        self.count += 1
        number = message.replaces if message.replaces in self.kept else self.count
        assert number is not None
        values = _values(message, data)
        kind = file_type(values) if message.number else None
        name = file_name(kind, message.number) if kind is not None else f"display-{number}"
        self.kept[number] = shown = Display(name, values, _metadata(message.metadata))
        return shown

    def values(self) -> list[Display]:
        """Return those that are kept."""
        return list(self.kept.values())

    def notes(self) -> list[str]:
        """Return what has to be said about them."""
        if not self.cleared:
            return []
        dropped = f"{self.cleared} display{'s' if self.cleared > 1 else ''}"
        return [f"clear_output() has dropped {dropped} shown before it: there are no files of them."]


def _values(message: DisplayMessage, data: bytes) -> dict[str, Any]:
    """Return the values that are what their MIME types say; user code can send anything."""
    values: dict[str, Any] = {}
    at = 0
    for kind, size in message.parts:
        piece, at = data[at : at + size], at + size
        try:
            values[kind] = _value(kind, piece)
        except (ValueError, RecursionError):
            continue
    return values


def _value(kind: str, piece: bytes) -> Any:
    if kind in _BINARY:
        if not piece.startswith(_SIGNATURES[kind]):
            raise ValueError("another kind of file")
        return piece
    if kind == "application/json" or kind.endswith("+json"):
        check_nesting(piece, MAX_NESTING)
        return json.loads(piece)
    return piece.decode("utf-8", "replace")


def _metadata(text: str) -> dict[str, Any]:
    try:
        check_nesting(text.encode("utf-8", "replace"), MAX_NESTING)
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
