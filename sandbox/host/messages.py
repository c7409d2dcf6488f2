"""Messages of a runner, validated before anything else reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autogen_codeact.sandbox.errors import SandboxProtocolError, SandboxStartError
from autogen_codeact.sandbox.host.protocol import VERSION


@dataclass(frozen=True)
class Hello:
    """The runner's first message.

    Args:
        user: Id of the user that the code runs as.
        workspace_writable: Whether that user may write to the workspace.
        preload: Modules that could not be imported, each with the reason.
        tools: Sources of host tools that could not be run, each with the reason.
        executable: The interpreter, "python3" if the runner does not say.
    """

    user: int
    workspace_writable: bool
    preload: Mapping[str, str]
    tools: Mapping[str, str]
    executable: str = "python3"

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> Hello:
        """Make it of a message.

        Raises:
            SandboxProtocolError: The message is malformed, or the runner has another version of the protocol.
        """
        if message.get("protocol") != VERSION:
            raise SandboxProtocolError(f"the runner speaks protocol {message.get('protocol')!r}, not {VERSION}")
        preload, tools = message.get("preload"), message.get("tools", {})
        if not isinstance(preload, dict) or not isinstance(tools, dict):
            raise SandboxProtocolError("the runner's first message does not say what became of `preload` and `tools`")
        executable = str(message.get("executable") or "python3")
        return cls(number_of(message, "uid"), message.get("workspace_writable") is True, preload, tools, executable)

    def check(self) -> None:
        """Check that the sandbox can run code.

        Raises:
            SandboxStartError: It can't.
        """
        if self.preload:
            problems = "; ".join(f"{name}: {text}" for name, text in self.preload.items())
            raise SandboxStartError(f"preload failed in the sandbox ({problems}): correct `preload` or add `packages`")
        if self.tools:
            raise SandboxStartError(f"the source of host tools failed in the sandbox: {dict(self.tools)}")
        if not self.workspace_writable:
            raise SandboxStartError(
                f"the workspace is not writable for user {self.user} in the sandbox: change the folder's owner or "
                "permissions, or with Docker pass `user=`"
            )


@dataclass(frozen=True)
class DisplayMessage:
    """Something that a block has shown, or (`clear`) that it drops what it has shown.

    Args:
        clear: Whether the displays so far are dropped; then the other fields are empty.
        parts: MIME types and sizes of the values, in the order of the frame's bytes.
        metadata: JSON text of the code, unchecked.
        number: Number for the name of its file, 0 for no file.
        replaces: The number in the block of the display that it replaces, or None.
    """

    clear: bool
    parts: tuple[tuple[str, int], ...] = ()
    metadata: str = "{}"
    number: int = 0
    replaces: int | None = None

    @classmethod
    def parse(cls, message: Mapping[str, Any], size: int) -> DisplayMessage:
        """Make it of a message.

        Args:
            message: The message.
            size: Bytes after it.

        Raises:
            SandboxProtocolError: The message is malformed.
        """
        if message.get("clear") is True:
            return cls(clear=True)
        parts, metadata = message.get("parts"), message.get("metadata")
        if not isinstance(parts, list) or not all(isinstance(part, list) and len(part) == 2 for part in parts):
            raise SandboxProtocolError("the sandbox sent a malformed display")
        sizes = tuple((str(kind), number_of({str(kind): length}, str(kind))) for kind, length in parts)
        if sum(length for _, length in sizes) != size or not isinstance(metadata, str):
            raise SandboxProtocolError("the sandbox sent a malformed display")
        replaces = number_of(message, "replaces") if message.get("replaces") is not None else None
        return cls(False, sizes, metadata, number_of(message, "number"), replaces)


def checked_entries(files: Any) -> list[dict[str, Any]]:
    """Validate a list of files.

    Args:
        files: The list in a message.

    Returns:
        Entries with `name`, `size`, `mode` and perhaps `inline`.

    Raises:
        SandboxProtocolError: The list is malformed.
    """
    if not isinstance(files, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in files
    ):
        raise SandboxProtocolError("the sandbox sent a malformed list of files")
    for entry in files:
        for key in ("size", "mode", "inline") if entry.get("inline") is not None else ("size", "mode"):
            number_of(entry, key)
    return files


def number_of(message: Mapping[str, Any], key: str) -> int:
    """Return an integer of a message, at least 0.

    Raises:
        SandboxProtocolError: It is missing, or something else.
    """
    value = message.get(key)
    if not isinstance(value, int) or value < 0:
        raise SandboxProtocolError(f"the sandbox sent {value!r} instead of a number ({key})")
    return value
