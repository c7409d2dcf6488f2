"""Files and folders of the host that the code can read below /data and /skills, and never write."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from codeact_sandbox.files.service import FileService
from codeact_sandbox.types.errors import SandboxFileError, SandboxStartError
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
    for option, path, target in entries:
        try:
            await service.ask("check", target)
        except SandboxFileError as error:
            shown, reason = printable(path), f"in the sandbox: {error.strerror}"
            if error.errno == errno.EACCES:
                reason = f"by the sandbox's user: let all users read it (`chmod -R a+rX {shown}`)"
            raise SandboxStartError(f"{option}={shown!r} can't be read {reason}") from error
