"""Frames between the host and a runner: docs/protocol.md."""

from __future__ import annotations

import codecs
import json
import struct
from collections.abc import Mapping
from enum import Enum
from typing import Any

from codeact_sandbox.types.errors import SandboxProtocolError
from codeact_sandbox.types.json_nesting import check_nesting
from codeact_sandbox.types.limits import MAX_PAYLOAD


class Frame(bytes, Enum):
    """Types of the frames between the host and the supervisor."""

    # Host to supervisor
    CONFIGURATION = b"C"
    RUN_BLOCK = b"X"
    KILL_BLOCK = b"K"
    FILE_REQUEST = b"F"
    TAKE_CHECKPOINT = b"P"
    ROLL_BACK = b"R"
    KEEP_ALIVE = b"L"
    RESET = b"Z"
    # Supervisor to host
    HELLO = b"H"
    STDOUT = b"O"
    STDERR = b"E"
    DISPLAY = b"V"
    BLOCK_RESULT = b"D"
    ANSWER = b"A"
    CANCEL_CALL = b"U"
    FATAL_ERROR = b"!"
    # In both directions
    COMPILED_MODULES = b"M"
    MODULE_SOURCES = b"B"
    TOOL_CALL = b"T"
    TOOL_ANSWER = TOOL_CALL
    CHANNEL = b"N"


VERSION = 1
# Of a message without the bytes after it; the runner's longest is a file list of 1 MiB.
MAX_MESSAGE = 2 * 1024 * 1024
_HEADER = struct.Struct("!cII")
DECODED_BYTES = 64 * 1024
MAX_NESTING = 32  # the runner uses five levels
_from_json = json.JSONDecoder().decode
_to_json = json.JSONEncoder(separators=(",", ":")).encode
_PREFIX = struct.Struct("!I")


def pack(kind: bytes, ident: int, message: Mapping[str, Any] | None, data: bytes = b"") -> bytes:
    """Make a frame of a message and bytes."""
    payload = data
    if message is not None:
        head = _to_json(message).encode("ascii")
        payload = _PREFIX.pack(len(head)) + head + data
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a request of {len(payload):,} bytes exceeds the {MAX_PAYLOAD:,} that fit into one frame")
    return _HEADER.pack(kind, ident, len(payload)) + payload


def unpack(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """Split a payload into its message and its bytes."""
    size = int.from_bytes(payload[: _PREFIX.size], "big")
    end = _PREFIX.size + size
    if size > MAX_MESSAGE:
        raise SandboxProtocolError(f"the sandbox sent a message of {size:,} bytes; {MAX_MESSAGE:,} are allowed")
    try:
        head = payload[_PREFIX.size : end]
        check_nesting(head, MAX_NESTING)
        message = _from_json(head.decode())
    except (ValueError, RecursionError) as error:
        raise SandboxProtocolError(f"the sandbox sent a malformed message: {error}") from None
    if not isinstance(message, dict) or end > len(payload):
        raise SandboxProtocolError("the sandbox sent a message that is not an object, or longer than its frame")
    return message, payload[end:]


def decoded(data: bytes) -> str:
    """Return UTF-8 of a sandbox as text. Invalid bytes take long; between the pieces, other threads of this program run."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = [decoder.decode(data[at : at + DECODED_BYTES]) for at in range(0, len(data), DECODED_BYTES)]
    return "".join([*pieces, decoder.decode(b"", final=True)])


class Parser:
    """Splits a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, int, bytes]]:
        """Add bytes."""
        self._buffer += data
        frames = []
        start = 0
        while len(self._buffer) - start >= _HEADER.size:
            kind, ident, length = _HEADER.unpack_from(self._buffer, start)
            if length > MAX_PAYLOAD:
                raise SandboxProtocolError(
                    f"the sandbox announced a frame of {length:,} bytes; {MAX_PAYLOAD:,} are allowed"
                )
            end = start + _HEADER.size + length
            if len(self._buffer) < end:
                break
            frames.append((kind, ident, bytes(self._buffer[start + _HEADER.size : end])))
            start = end
        del self._buffer[:start]
        return frames
