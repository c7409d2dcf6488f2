"""Checks of what a sandbox says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autogen_codeact.sandbox.errors import SandboxProtocolError, SandboxStartError
from autogen_codeact.sandbox.host import protocol


def check_hello(hello: Mapping[str, Any]) -> None:
    """See that the place is as it has to be, by the runner's first message."""
    if hello.get("protocol") != protocol.VERSION:
        raise SandboxProtocolError(f"the runner speaks protocol {hello.get('protocol')!r}, not {protocol.VERSION}")
    if not isinstance(hello.get("preload"), dict):
        raise SandboxProtocolError("the runner's first message does not say what became of `preload`")
    if hello["preload"]:
        problems = "; ".join(f"{name}: {text}" for name, text in hello["preload"].items())
        raise SandboxStartError(f"preload failed in the sandbox ({problems}): correct `preload` or add `packages`")
    if hello.get("tools"):
        raise SandboxStartError(f"the source of host tools failed in the sandbox: {hello['tools']}")
    if not hello.get("workspace_writable"):
        raise SandboxStartError(
            f"the workspace is not writable for user {hello.get('uid')} in the sandbox: change the folder's owner or "
            "permissions, or with Docker pass `user=`"
        )


def checked_entries(files: Any) -> list[dict[str, Any]]:
    """What a sandbox says of files.

    Args:
        files: The list from its message.

    Returns:
        Entries with `name`, `size`, `mode` and perhaps `inline`.

    Raises:
        SandboxProtocolError: It is no such list.
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
    """A number in a message, not below 0.

    Raises:
        SandboxProtocolError: It is not there.
    """
    value = message.get(key)
    if not isinstance(value, int) or value < 0:
        raise SandboxProtocolError(f"the sandbox sent {value!r} where a number is due ({key})")
    return value
