"""Checks of the names of files in the workspace, which must be safe on the host and in the sandbox."""

from __future__ import annotations

import unicodedata

MAX_COMPONENT_BYTES = 255
MAX_NAME_BYTES = 4000  # stays under PATH_MAX (4096) with `/workspace/` in front
MAX_DEPTH = 64  # a scan of the workspace has one descriptor open per level
PART_PREFIX = ".codeact-part-"
"""Files that are being written on the host have such names until they are complete."""


def safe_name(name: str) -> str:
    """Check a file name that came from a model or from the sandbox.

    Args:
        name: Path relative to the workspace, with forward slashes.

    Returns:
        The same path without `.` components and doubled slashes.

    Raises:
        ValueError: The name could leave the workspace, or programs could not handle it; the message says why.
    """
    if not name.strip():
        raise ValueError("The file name is empty; give a name such as `script.py`.")
    shown = printable(name if len(name) <= 80 else name[:77] + "...")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"The file name `{shown}` is not valid Unicode; use plain letters and digits.") from None
    if not name.isprintable() and any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for character in name):
        raise ValueError(f"The file name `{shown}` has a control character in it; leave it out.")
    if name.startswith("/"):
        raise ValueError(f"The file name `{shown}` is absolute; give one relative to the workspace.")
    if name.endswith(("/", "/.")):
        raise ValueError(f"The file name `{shown}` names a folder; add a file name.")
    if size > MAX_NAME_BYTES:
        raise ValueError(f"The file name `{shown}` is {size} bytes long; at most {MAX_NAME_BYTES} are allowed.")
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if not parts:
        raise ValueError(f"The file name `{shown}` is the workspace itself; give the name of a file in it.")
    if len(parts) > MAX_DEPTH:
        raise ValueError(f"The file name `{shown}` is {len(parts)} levels deep; at most {MAX_DEPTH} are allowed.")
    for part in parts:
        _check_component(part, shown)
    return "/".join(parts)


def _check_component(part: str, shown: str) -> None:
    if part == "..":
        raise ValueError(f"The file name `{shown}` has `..` in it, which could leave the workspace.")
    if part.startswith("-"):
        raise ValueError(f"The file name `{shown}` has a part that begins with `-`, which commands take for an option.")
    if "\\" in part:
        raise ValueError(f"The file name `{shown}` has a backslash in it; use forward slashes.")
    if part.startswith(PART_PREFIX):
        raise ValueError(f"The file name `{shown}` has a part that begins with `{PART_PREFIX}`, which is reserved.")
    if len(part.encode()) > MAX_COMPONENT_BYTES:
        raise ValueError(f"The file name `{shown}` has a part of more than {MAX_COMPONENT_BYTES} bytes; shorten it.")


def printable(text: str, keep: str = "") -> str:
    """Make untrusted text safe for any terminal, log or model, as one line.

    Controls, line ends, bidirectional and zero-width characters, tags, unassigned characters and lone surrogates become escapes.

    Args:
        text: A name, or other text.
        keep: Characters that are not escaped. Default: none.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
