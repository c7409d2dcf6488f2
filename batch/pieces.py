"""What is sent between the driver of a batch and a worker on another machine: pieces of bounded size, never pickled."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from autogen_codeact.sandbox.types.formatting import format_count

PIECE_BYTES = 1024 * 1024
"""Content of one piece at most."""
MAX_HEADER = 64 * 1024

Kind = Literal[
    "log", "file", "work", "removed", "input", "enter", "used", "result", "error", "budget", "cancelled", "idle"
]


class PieceError(Exception):
    """A piece, or what it is part of, is not as it has to be."""


class Header(BaseModel):
    """What a piece is.

    Args:
        kind: "log": lines of the run log. "file": content of a file of the run log, by its hash. "work": content of a file of
            the workspace. "removed": a file of the workspace is gone. "input": content of a file of the task. "enter": a model
            call wants to begin. "used": tokens that a model call has used. "result", "error", "budget", "cancelled": how the
            attempt has ended. "idle": nothing has happened for a while.
        name: Of the file, relative to its folder.
        offset: Where in the file the content begins.
        last: Whether this is the last piece of the file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    name: str = Field(default="", max_length=16 * 1024)
    offset: int = Field(default=0, ge=0)
    last: bool = True


class Piece:
    """A header with a content.

    Args:
        header: What it is.
        data: The content.
    """

    __slots__ = ("data", "header")

    def __init__(self, header: Header, data: bytes = b"") -> None:
        self.header = header
        self.data = data

    def encode(self) -> bytes:
        """Return the piece as bytes: the header as one line of JSON, then the content."""
        return to_json(self.header) + b"\n" + self.data

    @classmethod
    def decode(cls, raw: object) -> Piece:
        """Read a piece.

        Raises:
            PieceError: It is none, or too large.
        """
        if not isinstance(raw, bytes):
            raise PieceError(f"a {type(raw).__name__} was received in place of bytes")
        line, found, data = raw.partition(b"\n")
        if not found or len(line) > MAX_HEADER or len(data) > PIECE_BYTES:
            raise PieceError(f"a piece of {len(raw):,} bytes has no header, or is too large")
        try:
            return cls(Header.model_validate_json(line), data)
        except ValidationError as error:
            raise PieceError(f"a piece has a wrong header: {format_count(error.error_count(), 'error')}") from None


def cut(kind: Kind, data: bytes) -> list[Piece]:
    """Cut a content that is in memory into pieces."""
    offsets = range(0, max(len(data), 1), PIECE_BYTES)
    return [
        Piece(Header(kind=kind, offset=at, last=at + PIECE_BYTES >= len(data)), data[at : at + PIECE_BYTES])
        for at in offsets
    ]
