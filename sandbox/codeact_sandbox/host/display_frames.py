"""The displays of a block, from the frames of the runner. It runs in the connection's thread."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from codeact_sandbox.host.protocol import DisplayMessage, decoded
from codeact_sandbox.types.displays import IMAGES, MAX_NESTING, Display, Forms, file_name, file_type, is_json
from codeact_sandbox.types.errors import SandboxProtocolError
from codeact_sandbox.types.text import check_nesting

MAX_DISPLAYS = 100  # of a block, as the runner counts them too
MAX_BYTES = 16_000_000
MAX_LINE = 80 * 1024  # of the line of one display
# Lists and objects in the JSON of a block's displays: each can take fifty times as much memory as its text.
MAX_CONTAINERS = 300_000
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
    # By their number in the block, from 1, in the order in which they were first shown.
    kept: dict[int, Display] = field(default_factory=dict)
    cleared: int = 0  # how many were dropped because the code has asked for that
    count: int = 0  # how many have come
    _frames: int = 0
    _bytes: int = 0
    _containers: int = 0
    _left_out: list[str] = field(default_factory=list)

    def add(self, message: DisplayMessage, data: bytes) -> Display | None:
        self._frames += 1
        self._bytes += len(data) - message.line
        if self._frames > 2 * MAX_DISPLAYS or self._bytes > MAX_BYTES or message.line > MAX_LINE:
            raise SandboxProtocolError("the sandbox sent more displays than its limits allow")
        if message.clear:
            self.cleared += len(self.kept)
            self.kept.clear()
            return None
        self.count += 1
        number = message.replaces if message.replaces in self.kept else self.count
        assert number is not None
        values = self._values(message, data)
        kind = file_type(values) if message.number else None
        name = file_name(kind, message.number) if kind is not None else f"display-{number}"
        line = decoded(data[len(data) - message.line :]).removesuffix("\n")
        shown = Display(name, Forms(values), _metadata(message.metadata), None, line, message.at)
        first = self.kept.get(number, shown)
        self.kept[number] = replace(shown, output_line=first.output_line, offset=first.offset)
        return shown

    def placed(self, offset_of: Callable[[int], int | None]) -> tuple[Display, ...]:
        """Return those that are kept, with their offsets in the text of the output."""
        return tuple(replace(each, offset=offset_of(each.offset or 0)) for each in self.kept.values())

    def notes(self) -> list[str]:
        notes = []
        if self.cleared:
            dropped = f"{self.cleared} display{'s' if self.cleared > 1 else ''}"
            notes.append(f"clear_output() has dropped {dropped} shown before it: there are no files of them.")
        if self._left_out:
            kinds = ", ".join(dict.fromkeys(self._left_out))
            notes.append(
                f"Left out of what was shown: {kinds}. The JSON of a block's displays can have at most {MAX_CONTAINERS:,} lists "
                "and objects."
            )
        return notes

    def _values(self, message: DisplayMessage, data: bytes) -> dict[str, Any]:
        """Return the values that are what their MIME types say; user code can send anything."""
        values: dict[str, Any] = {}
        at = 0
        for kind, size in message.parts:
            piece, at = data[at : at + size], at + size
            if not (kind.isascii() and kind.isprintable()):
                continue
            if is_json(kind):
                count = piece.count(b"[") + piece.count(b"{")
                if self._containers + count > MAX_CONTAINERS:
                    self._left_out.append(kind)
                    continue
                self._containers += count
            try:
                values[kind] = _value(kind, piece)
            except ValueError:
                continue
        return values


def _value(kind: str, piece: bytes) -> Any:
    if kind in _BINARY:
        if not piece.startswith(_SIGNATURES[kind]):
            raise ValueError("another kind of file")
        return piece
    return piece if is_json(kind) else decoded(piece)


def _metadata(text: str) -> dict[str, Any]:
    try:
        check_nesting(text.encode("utf-8", "replace"), MAX_NESTING)
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
