"""Files and folders of the host that the code can read below /data, and never write."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autogen_codeact.sandbox.backends import DATA
from autogen_codeact.sandbox.errors import SandboxFileError, SandboxStartError
from autogen_codeact.sandbox.files.filenames import printable, safe_name
from autogen_codeact.sandbox.limits import parse_names

if TYPE_CHECKING:
    from autogen_codeact.sandbox.host.client import RunnerClient

MAX_ENTRIES = 100
# They describe or control the whole machine, also if nothing in them can be written.
SYSTEM_FOLDERS = tuple(map(Path, ("/dev", "/proc", "/run", "/sys")))


@dataclass(frozen=True)
class DataEntry:
    """A file or folder of the host, and its place in the sandbox.

    Args:
        path: Its path on the host, as given.
    """

    path: Path | str

    @property
    def name(self) -> str:
        """Its name below /data: its own on the host, also if it is a symbolic link."""
        return os.path.basename(os.path.abspath(self.path))

    @property
    def target(self) -> str:
        """Its path in the sandbox."""
        return f"{DATA}/{self.name}"

    def source(self) -> Path:
        """Return its path on the host, without symbolic links."""
        shown = f"data={printable(str(self.path))!r}"
        try:
            path = Path(self.path).resolve(strict=True)
            mode = path.stat().st_mode
        except FileNotFoundError:
            raise ValueError(f"{shown}: there is no such file or folder") from None
        except (OSError, RuntimeError) as error:  # RuntimeError: symbolic links in a circle, before Python 3.13
            raise ValueError(f"{shown} can't be read: {getattr(error, 'strerror', None) or error}") from None
        if path == Path("/") or any(path.is_relative_to(folder) for folder in SYSTEM_FOLDERS):
            raise ValueError(f"{shown} can't be shown to the sandbox: it describes or controls this machine")
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise ValueError(f"{shown} is neither a file nor a folder")
        return path


def parse_data(value: Iterable[Path | str]) -> list[str]:
    """Check the files and folders for /data, and return their paths as given."""
    if isinstance(value, os.PathLike):
        raise TypeError(f"data is one path: give a list, [{os.fspath(value)!r}]")
    paths = [os.fspath(each) for each in parse_names("data", value)]  # type: ignore[arg-type]
    if len(paths) > MAX_ENTRIES:
        raise ValueError(
            f"data= has {len(paths):,} entries, and at most {MAX_ENTRIES} are allowed: give a folder of them"
        )
    found: dict[str, DataEntry] = {}
    for entry in map(DataEntry, paths):
        if not isinstance(entry.path, str) or "\0" in entry.path:
            raise ValueError(f"data={entry.path!r} is not a path")
        entry.source()
        try:
            safe_name(entry.name)
        except ValueError as error:
            raise ValueError(f"data={printable(str(entry.path))!r}: {error}") from None
        other = found.setdefault(entry.name, entry)
        if other is not entry:
            first, second = printable(str(other.path)), printable(str(entry.path))
            raise ValueError(
                f"data= has two entries that would be {entry.target}: {first!r} and {second!r}. Rename one, or give a folder "
                "with both"
            )
    return paths


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
        await sandbox.file_request({"op": "read", "name": path, "size": 1})
    except SandboxFileError as error:
        if error.errno != errno.EINVAL:
            raise
        if not path.endswith("/."):
            await _read_first_byte(sandbox, f"{path}/.")
