"""Frames between the host and a runner (docs/protocol.md), and the runner's own source as the first of them."""

from __future__ import annotations

import importlib.util
import json
import marshal
import re
import struct
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from autogen_codeact.sandbox.errors import SandboxProtocolError

VERSION = 1
MAX_PAYLOAD = 8 * 1024 * 1024
# For a message without the bytes after it, because an event loop may parse it. The runner's longest is a file list of 1 MiB.
MAX_MESSAGE = 2 * 1024 * 1024
_HEADER = struct.Struct("!cII")
# What the runner sends has five.
MAX_NESTING = 32
_from_json = json.JSONDecoder().decode
_to_json = json.JSONEncoder(separators=(",", ":")).encode
_PREFIX = struct.Struct("!I")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))

# In the order in which they import each other.
_MODULES = [
    "wire",
    "system",
    "folders",
    "ipc",
    "landlock",
    "files",
    "home_folders",
    "packages",
    "code_file",
    "execution",
    "stdio",
    "tool_client",
    "tools",
    "hidden_children",
    "checkpoint_fork",
    "interpreter",
    "worker",
    "zygote",
    "session_environment",
    "block_report",
    "cpu_time",
    "output_capture",
    "tool_relay",
    "block",
    "checkpoints",
    "event_loop",
    "listener",
    "process_block",
    "process_connection",
    "proxy",
    "replay_files",
    "scheduler",
    "session",
    "session_block",
    "worker_processes",
    "supervisor",
]

# It is run by `python3 -I -S`, or after `_AGAIN` by `python3 -s -S`. First it removes all folders that user code can write to
# from the search path of modules.
BOOT = """\
import sys
found = sys.path[:]
sys.path[:] = [entry for entry in found if entry.startswith((sys.base_prefix + "/", sys.base_exec_prefix + "/"))]
import gc
gc.disable()  # nothing of what comes now is garbage; it goes on when all of it is there
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
own = dict(vars(builtins))
for name, code in modules:
    module = types.ModuleType(package.__name__ + "." + name)
    module.__package__ = package.__name__
    module.__file__ = "<codeact " + name + ">"
    module.__builtins__ = own
    sys.modules[module.__name__] = module
    setattr(package, name, module)
    exec(code, module.__dict__)
del compiled, sources, modules, own, code, name, module
sys.modules["codeact_runner.supervisor"].main(frame, found)
"""


# `-I` ignores every variable of Python, and no option replaces PYTHONHASHSEED. So the isolated interpreter replaces itself by
# another one, which sees only those variables of Python that the host has checked: a variable of the image, or one with a folder,
# could make it run files that user code has left there. The supervisor restores the image's variables for the code.
_AGAIN = """\
import sys
if sys.flags.isolated:
    import os
    variables = {"CODEACT_" + name if name.startswith("PYTHON") else name: value for name, value in os.environ.items()}
    variables.update(%r)
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().split(b"\\0")[:-1]
    words[words.index(b"-I")] = b"-s"
    os.execve(sys.executable, words, variables)
"""


def boot(variables: Mapping[str, str]) -> str:
    """Make the source that a sandbox's interpreter runs first.

    Args:
        variables: Python's variables that it reads at its start, checked (`environment.interpreter_variables`).
    """
    return (_AGAIN % dict(variables) if variables else "") + BOOT


@cache
def runner_source() -> bytes:
    """The frames that carry the runner's modules: compiled, for a Python like this one, and as source for every other.

    Compiling takes the sandbox longer than starting its interpreter.
    """
    folder = Path(__file__).parents[1] / "runner"
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
    head = _to_json(message).encode("ascii")
    return frame(kind, ident, _PREFIX.pack(len(head)) + head + data)


def unpack(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """Split a payload into its message and its bytes.

    Raises:
        SandboxProtocolError: It holds no well-formed message.
    """
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


def check_nesting(data: bytes, limit: int) -> None:
    """See that JSON is not nested deeper than it may be, before it is parsed.

    A parser would find out at the end of Python's stack, and whatever finalizer of this program the garbage collector happens
    to call there fails for want of room.

    Args:
        data: UTF-8; whether it is JSON is the parser's business.
        limit: Lists and objects in each other.

    Raises:
        ValueError: It is.
    """
    if data.count(b"[") + data.count(b"{") <= limit:
        return
    # Taking strings out costs most, and only those with brackets in them are in the way.
    if _deeper(data, limit) and _deeper(_STRING.sub(b"", data), limit):
        raise ValueError(f"lists and objects are nested deeper than {limit}, or not closed")


def _deeper(data: bytes, limit: int) -> bool:
    brackets = data.translate(_ONE_KIND, _NO_BRACKETS)
    opening, closing = b"[" * (limit + 1), b"]" * (limit + 1)
    for _ in range(limit):
        if not brackets or opening in brackets or closing in brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


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
