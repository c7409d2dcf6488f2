"""Files and folders of the host that the code can read below /data, and never write."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from codeact_sandbox.types.errors import SandboxFileError, SandboxStartError
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.host_paths import DataEntry

if TYPE_CHECKING:
    from codeact_sandbox.host.client import RunnerClient


def data_sources(paths: Iterable[Path | str]) -> dict[str, Path]:
    """Return the files and folders for /data at the start of a sandbox: their paths on the host, by their paths in it."""
    try:
        return {entry.target: entry.source() for entry in map(DataEntry, paths)}
    except ValueError as error:
        raise SandboxStartError(str(error)) from None


async def check_data(sandbox: RunnerClient, paths: Iterable[Path | str]) -> None:
    """Check that the sandbox's user can read what is mounted at /data."""
    for entry in map(DataEntry, paths):
        shown = printable(str(entry.path))
        try:
            await _read_first_byte(sandbox, entry.target)
        except SandboxFileError as error:
            if error.errno == errno.EACCES:
                raise SandboxStartError(
                    f"data={shown!r} can't be read by the sandbox's user: let everybody read it (`chmod -R a+rX {shown}`)"
                ) from None
            raise SandboxStartError(f"data={shown!r} can't be read in the sandbox: {error.strerror}") from None


async def _read_first_byte(sandbox: RunnerClient, path: str) -> None:
    """Read a file, or find an entry in a folder, which the sandbox reports as "not a regular file" if it can be read."""
    try:
        await sandbox.requests.file_request({"op": "read", "name": path, "size": 1})
    except SandboxFileError as error:
        if error.errno != errno.EINVAL:
            raise
        if not path.endswith("/."):
            await _read_first_byte(sandbox, f"{path}/.")
