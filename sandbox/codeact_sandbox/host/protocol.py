"""Frames between the host and a runner (docs/protocol.md), and messages and values, validated before anything else reads them."""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from codeact_sandbox.runner.shared import wire
from codeact_sandbox.runner.worker import values
from codeact_sandbox.types.errors import SandboxProtocolError, SandboxStartError
from codeact_sandbox.types.text import check_nesting, check_parts

VERSION = 1
# Of a message without the bytes after it; the runner's longest is a file list of 1 MiB.
MAX_MESSAGE = 2 * 1024 * 1024
DECODED_BYTES = 64 * 1024
MAX_NESTING = 32  # the runner uses five levels
MAX_PARTS = 200_000  # the runner's longest list has half as many
MAX_FACTS = 100
MAX_FACT_CHARS = 200
_from_json = json.JSONDecoder().decode
pack: Callable[..., bytes] = wire.pack  # one kind of frame from end to end
_encode_value: Callable[[Any], str | None] = values.encode
MAX_VALUE_NESTING = 64
MAX_EQUAL_HASHES = 50  # sets and dicts of keys with the same hash take time that grows with the square of their number
_LONE_SURROGATE = re.compile(r"(?<!\\)(?:\\\\)*\\u[dD]")  # the sandbox escapes no character that can be encoded


def unpack(payload: bytes) -> tuple[dict[str, Any], bytes]:
    size = int.from_bytes(payload[: wire.PREFIX.size], "big")
    end = wire.PREFIX.size + size
    if size > MAX_MESSAGE:
        raise SandboxProtocolError(f"the sandbox sent a message of {size:,} bytes; {MAX_MESSAGE:,} are allowed")
    try:
        head = payload[wire.PREFIX.size : end]
        check_parts(head, b"[{,", MAX_PARTS)
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


@dataclass(frozen=True)
class RunnerSettings:
    mode: str  # `process` or `session`
    workspace: str  # the working directory in the sandbox
    preload: tuple[str, ...]  # modules that are imported before any code runs
    output_limit: int  # bytes of output kept of each stream of a block
    checkpoint: bool  # whether a session is checkpointed before each block
    memory_bytes: int | None  # the sandbox's memory limit, or None
    # resource limits of everything in the sandbox but the supervisor, by the name behind `RLIMIT_`
    rlimits: Mapping[str, int] = field(default_factory=dict)
    # further resource limits, for a sandbox that no control group limits
    rlimit_without_cgroup: Mapping[str, int] = field(default_factory=dict)
    concurrency: int = 32  # blocks that run at the same time in process mode; further blocks wait
    # settings of the supervisor's proxy (`Gateway.settings`), or None for no network at all
    proxy: Mapping[str, Any] | None = None
    no_index: str | None = None  # what pip shows where it has neither a network nor an index; None where it has one
    # host tools for the code: `sources` of their stubs by name, `in_flight` and `call_bytes`; None for none
    tools: Mapping[str, Any] | None = None
    # variables for the code. They are sent over the stream: an engine, a process list or a log would show them
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    find_packages: tuple[str, ...] = ()  # packages whose versions are looked up at the start
    find_commands: tuple[str, ...] = ()  # commands that are looked for at the start


@dataclass(frozen=True)
class Hello:
    """The runner's first message. What it tells of Python, packages and commands is not trustworthy."""

    user: int  # Id of the user that the code runs as
    workspace_writable: bool  # whether that user may write to the workspace
    preload: Mapping[str, str]  # modules that could not be imported, each with the reason
    tools: Mapping[str, str]  # sources of host tools that could not be run, each with the reason
    memory: int = 0  # the memory limit in bytes, 0 if the runner does not say
    python: str | None = None  # version of Python
    # versions of those packages of `find_packages` that are installed
    packages: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()  # those of `find_commands` that are there

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> Hello:
        if message.get("protocol") != VERSION:
            raise SandboxProtocolError(f"the runner speaks protocol {message.get('protocol')!r}, not {VERSION}")
        preload, tools = message.get("preload"), message.get("tools", {})
        if not isinstance(preload, dict) or not isinstance(tools, dict):
            raise SandboxProtocolError("the runner's first message does not say what became of `preload` and `tools`")
        memory = number_of({"memory": message.get("memory") or 0}, "memory")
        writable = message.get("workspace_writable") is True
        python, packages, commands = (message.get(name) for name in ("python", "packages", "commands"))
        return cls(
            number_of(message, "uid"),
            writable,
            preload,
            tools,
            memory,
            python=python[:MAX_FACT_CHARS] if isinstance(python, str) else None,
            packages={
                name[:MAX_FACT_CHARS]: version[:MAX_FACT_CHARS]
                for name, version in islice(packages.items() if isinstance(packages, dict) else (), MAX_FACTS)
                if isinstance(version, str)
            },
            commands=tuple(
                name[:MAX_FACT_CHARS]
                for name in (commands[:MAX_FACTS] if isinstance(commands, list) else ())
                if isinstance(name, str)
            ),
        )

    def check(self) -> None:
        if self.preload:
            problems = "; ".join(f"{name}: {text}" for name, text in self.preload.items())
            raise SandboxStartError(
                f"preload failed in the sandbox ({problems}): correct `preload=`, or let the sandbox have the module (with "
                "Docker: packages=)"
            )
        if self.tools:
            raise SandboxStartError(f"the source of host tools failed in the sandbox: {dict(self.tools)}")
        if not self.workspace_writable:
            raise SandboxStartError(
                f"the workspace is not writable for user {self.user} in the sandbox: change the folder's owner or "
                "permissions, or with Docker pass `user=`"
            )


@dataclass(frozen=True)
class DisplayMessage:
    """Something that a block has shown, or (`clear`) that it drops what it has shown."""

    clear: bool  # whether the displays so far are dropped; then the other fields are empty
    parts: tuple[tuple[str, int], ...] = ()  # MIME types and sizes of the values, in the order of the frame's bytes
    metadata: str = "{}"  # JSON text of the code, unchecked
    number: int = 0  # number for the name of its file, 0 for no file
    replaces: int | None = None  # the number in the block of the display that it replaces, or None
    line: int = 0  # bytes of the line that stands for it in the output: the last ones of the frame. 0 for none
    at: int = 0  # bytes of the output before it

    @classmethod
    def parse(cls, message: Mapping[str, Any], size: int) -> DisplayMessage:
        if message.get("clear") is True:
            return cls(clear=True)
        parts, metadata = message.get("parts"), message.get("metadata")
        if not isinstance(parts, list) or not all(isinstance(part, list) and len(part) == 2 for part in parts):
            raise SandboxProtocolError("the sandbox sent a malformed display")
        sizes = tuple((str(kind), number_of({str(kind): length}, str(kind))) for kind, length in parts)
        line = number_of(message, "line")
        if sum(length for _, length in sizes) + line != size or not isinstance(metadata, str):
            raise SandboxProtocolError("the sandbox sent a malformed display")
        replaces = number_of(message, "replaces") if message.get("replaces") is not None else None
        return cls(False, sizes, metadata, number_of(message, "number"), replaces, line, number_of(message, "at"))


def checked_entries(files: Any) -> list[dict[str, Any]]:
    if not isinstance(files, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in files
    ):
        raise SandboxProtocolError("the sandbox sent a malformed list of files")
    for entry in files:
        for key in ("size", "mode", "inline") if entry.get("inline") is not None else ("size", "mode"):
            number_of(entry, key)
    return files


def number_of(message: Mapping[str, Any], key: str) -> int:
    """Return an integer of a message, at least 0."""
    value = message.get(key)
    if not isinstance(value, int) or value < 0:
        raise SandboxProtocolError(f"the sandbox sent {value!r} instead of a number ({key})")
    return value


def decode_value(text: object) -> Any:
    """Return the value of a block's last expression, from the JSON of `runner/worker/values.py`; nothing of it is evaluated.

    None if there is none, or if it is malformed, too large or nested too deeply.
    """
    if not isinstance(text, str) or len(text) > values.PLAIN_BYTES or _LONE_SURROGATE.search(text):
        return None
    try:
        check_nesting(text.encode(), MAX_VALUE_NESTING)
        return json.loads(text, object_hook=_untagged)
    except (ValueError, TypeError, KeyError, OverflowError):
        return None


def value_to_json(value: Any) -> Any:
    """Return a value as what JSON has; None if it is not plain."""
    text = _encode_value(value)
    return None if text is None else json.loads(text)


def value_of_json(value: Any) -> Any:
    """Return the value that `value_to_json` has been given; None if it is malformed."""
    try:
        return decode_value(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        return None


def _untagged(tagged: dict[str, Any]) -> Any:
    ((kind, parts),) = tagged.items()
    if not isinstance(parts, str if kind in ("bytes", "float") else list):
        raise TypeError("it has parts of a wrong type")
    return _MAKERS[kind](parts)


def _hashable(parts: list[Any]) -> list[Any]:
    if parts and max(Counter(map(hash, parts)).values()) > MAX_EQUAL_HASHES:
        raise ValueError("too many of its keys have the same hash")
    return parts


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "bytes": bytes.fromhex,
    "complex": lambda parts: complex(*parts),
    "dict": lambda parts: dict(zip(_hashable(parts[0]), parts[1], strict=True)),
    "float": float,
    "frozenset": lambda parts: frozenset(_hashable(parts)),
    "set": lambda parts: set(_hashable(parts)),
    "tuple": tuple,
}
