"""The files of displays in the host's folder. Their names are chosen here, and no file of the user is replaced."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from codeact_sandbox.files.workspace import Workspace
from codeact_sandbox.types.displays import Display, Forms, file_type
from codeact_sandbox.types.errors import SandboxFileError
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.result import Artifact

OTHER_NAME = "What is shown as {} is in the file {}: there is another file with that name."
MAX_NAMES = 1000
MAX_NOTES = 5


@dataclass
class Stored:
    displays: list[Display] = field(default_factory=list)  # the displays, with their files
    artifacts: list[Artifact] = field(default_factory=list)  # their files
    notes: list[str] = field(default_factory=list)  # what the user has to know about them


def store(displays: Iterable[Display], folder: Workspace | None) -> Stored:
    """Write the files of displays; call it in a thread."""
    stored = Stored()
    renamed = 0
    for display in displays:
        kind = file_type(display.data)
        if kind is None or folder is None or "." not in display.name:
            stored.displays.append(display)
            continue
        content = _content(display, kind)
        size, media_type = len(content), kind
        try:
            path = _store(folder, display.name, content)
        except (SandboxFileError, OSError) as error:
            reason = printable(str(error.strerror or error))
            stored.displays.append(display)
            stored.artifacts.append(Artifact(display.name, size, media_type, note=f"not copied: {reason}"))
            continue
        if path.name != display.name:
            renamed += 1
            if renamed <= MAX_NOTES:
                stored.notes.append(OTHER_NAME.format(display.name, path.name))
        stored.displays.append(replace(display, name=path.name, path=path))
        stored.artifacts.append(Artifact(path.name, size, media_type, path))
    if renamed > MAX_NOTES:
        stored.notes.append(f"{renamed - MAX_NOTES} more files of displays have other names than the output says.")
    return stored


def merged(artifacts: Sequence[Artifact], of_displays: Sequence[Artifact]) -> tuple[Artifact, ...]:
    """Return the files of a block with those of its displays after them."""
    names = {item.name for item in of_displays}
    return (*(item for item in artifacts if item.name not in names), *of_displays)


def _content(display: Display, kind: str) -> bytes:
    value = display.data.raw[kind] if isinstance(display.data, Forms) else display.data[kind]
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")


def _store(folder: Workspace, name: str, content: bytes) -> Path:
    """Write a file under its name, or the next one that is free."""
    stem, _, end = name.partition(".")
    for number in range(1, MAX_NAMES):
        free = name if number == 1 else f"{stem}-{number}.{end}"
        if not os.path.lexists(folder.root / free):
            path = folder.store(free, 0o644, [content])
            folder.send(free)  # the sandbox gets it with the next block
            return path
    raise OSError(f"there are {MAX_NAMES} files with names like {name}")
