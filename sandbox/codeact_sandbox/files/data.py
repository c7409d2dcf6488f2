"""Files and folders of the host that the code can read below /data and /skills, and never write."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from codeact_sandbox.files.service import FileService, unreadable
from codeact_sandbox.types.errors import SandboxStartError
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.host_paths import DataEntry
from codeact_sandbox.types.skills import FILE, find_skills

if TYPE_CHECKING:
    from codeact_sandbox.types.options import SandboxOptions


def data_sources(options: SandboxOptions) -> dict[str, Path]:
    """Return what a sandbox has in /data and /skills at its start: the paths on the host, by those in it."""
    try:
        data = {entry.target: entry.source() for entry in map(DataEntry, options.data)}
        return {**data, **{skill.target: skill.folder for skill in find_skills(options.skills)}}
    except ValueError as error:
        raise SandboxStartError(str(error)) from None


async def check_data(service: FileService, options: SandboxOptions) -> None:
    """Check that the sandbox's user can read what is mounted at /data and /skills."""
    entries = [("data", str(entry.path), entry.target) for entry in map(DataEntry, options.data)]
    if options.skills:
        entries += [("skills", str(each.folder), f"{each.target}/{FILE}") for each in find_skills(options.skills)]
    if not entries:
        return
    found = await service.ask("check", "/data", paths=[target for _, _, target in entries])
    if not isinstance(found, list) or len(found) != len(entries):
        raise unreadable("/data")
    for (option, path, _), number in zip(entries, found, strict=True):
        shown = printable(path)
        if number == errno.EACCES:
            raise SandboxStartError(
                f"{option}={shown!r} can't be read by the sandbox's user: let everybody read it (`chmod -R a+rX {shown}`)"
            )
        if number:
            raise SandboxStartError(f"{option}={shown!r} can't be read in the sandbox: {os.strerror(number)}")
