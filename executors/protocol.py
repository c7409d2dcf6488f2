"""Frames between the host and a runner (docs/protocol.md), and the runner's own source as the first of them."""

from __future__ import annotations

import importlib.util
import json
import marshal
import struct
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .errors import SandboxProtocolError

VERSION = 1
MAX_PAYLOAD = 8 * 1024 * 1024
_HEADER = struct.Struct("!cII")
_PREFIX = struct.Struct("!I")

# In the order in which they import each other.
_MODULES = [
    "wire",
    "system",
    "ipc",
    "usage",
    "output",
    "files",
    "stdio",
    "source",
    "python",
    "children",
    "calls",
    "tools",
    "worker",
    "zygote",
    "peer",
    "workers",
    "place",
    "session",
    "relay",
    "blocks",
    "proxy",
    "supervisor",
]

# Not `python3 -I`: PYTHONHASHSEED and its like are the user's to set. So the first thing is to look for modules in none of the
# places that user code can write to.
BOOT = """\
import sys
found = sys.path[:]
sys.path[:] = [entry for entry in found if entry.startswith((sys.base_prefix + "/", sys.base_exec_prefix + "/"))]
import builtins, json, os, struct, types
if sys.version_info < (3, 8):
    sys.exit("the sandbox needs Python 3.8 or later, this image has " + sys.version.split()[0])
def read(size):
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return data
def frame():
    kind, ident, size = struct.unpack("!cII", read(9))
    if size > 8388608:
        sys.exit("a frame is too large")
    return kind, ident, read(size)
package = types.ModuleType("codeact_runner")
package.__path__ = []
sys.modules[package.__name__] = package
compiled, sources = frame()[2], frame()[2]
if compiled.startswith(sys.modules["_frozen_importlib_external"].MAGIC_NUMBER):
    import marshal
    modules = marshal.loads(memoryview(compiled)[4:])
else:
    modules = [(name, compile(source, "<codeact " + name + ">", "exec")) for name, source in json.loads(sources.decode())]
for name, code in modules:
    module = types.ModuleType(package.__name__ + "." + name)
    module.__package__ = package.__name__
    module.__file__ = "<codeact " + name + ">"
    module.__builtins__ = dict(vars(builtins))
    sys.modules[module.__name__] = module
    setattr(package, name, module)
    exec(code, module.__dict__)
del compiled, sources, modules, code, name, module
sys.modules["codeact_runner.supervisor"].main(frame, found)
"""


@cache
def runner_source() -> bytes:
    """The frames that carry the runner's modules: compiled, for a Python like this one, and as source for every other.

    Compiling takes the sandbox longer than starting its interpreter.
    """
    folder = Path(__file__).parent / "runner"
    modules = [(name, (folder / f"{name}.py").read_text(encoding="utf-8")) for name in _MODULES]
    compiled = [(name, compile(source, f"<codeact {name}>", "exec", dont_inherit=True)) for name, source in modules]
    return frame(b"M", 0, importlib.util.MAGIC_NUMBER + marshal.dumps(compiled)) + frame(
        b"B", 0, json.dumps(modules).encode()
    )


def frame(kind: bytes, ident: int, payload: bytes) -> bytes:
    """Make a frame of bytes alone.

    Raises:
        ValueError: It would be larger than `MAX_PAYLOAD`.
    """
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a request of {len(payload):,} bytes exceeds the {MAX_PAYLOAD:,} that fit into one frame")
    return _HEADER.pack(kind, ident, len(payload)) + payload


def pack(kind: bytes, ident: int, message: Mapping[str, Any], data: bytes = b"") -> bytes:
    """Make a frame of a message and bytes.

    Args:
        kind: One byte that names the type.
        ident: Number of the request.
        message: What goes into JSON.
        data: Bytes after it.

    Returns:
        The frame.

    Raises:
        ValueError: It would be larger than `MAX_PAYLOAD`.
    """
    head = json.dumps(message, separators=(",", ":")).encode("ascii")
    return frame(kind, ident, _PREFIX.pack(len(head)) + head + data)


def unpack(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """Split a payload into its message and its bytes.

    Raises:
        SandboxProtocolError: It holds no well-formed message.
    """
    try:
        (size,) = _PREFIX.unpack_from(payload)
        end = _PREFIX.size + size
        message = json.loads(payload[_PREFIX.size : end])
    except (struct.error, ValueError, RecursionError) as error:
        raise SandboxProtocolError(f"the sandbox sent a malformed message: {error}") from None
    if not isinstance(message, dict) or end > len(payload):
        raise SandboxProtocolError("the sandbox sent a message that is not an object, or longer than its frame")
    return message, payload[end:]


class Parser:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, int, bytes]]:
        """Take in bytes.

        Returns:
            The frames that are now whole, as (type, id, payload).

        Raises:
            SandboxProtocolError: A frame announces more than is allowed.
        """
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
