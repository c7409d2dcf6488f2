"""Checks of the files and folders of the host that code may read: the options `data` and `readable`."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codeact_sandbox.types.filenames import printable, safe_name
from codeact_sandbox.types.limits import parse_names
from codeact_sandbox.types.paths import DATA, PACKAGES, WORKSPACE

MAX_ENTRIES = 100
# They describe or control the whole machine, also if nothing in them can be written.
SYSTEM_FOLDERS = tuple(map(Path, ("/dev", "/proc", "/run", "/sys")))
# Each sandbox has its own, so folders of the host can't be shown there.
OWN_FOLDERS = ("/dev", "/proc", "/sys", PACKAGES, WORKSPACE)


@dataclass(frozen=True)
class DataEntry:
    path: Path | str  # its path on the host, as given

    @property
    def name(self) -> str:
        """Its name below /data: its own on the host, also if it is a symbolic link."""
        return os.path.basename(os.path.abspath(self.path))

    @property
    def target(self) -> str:
        return f"{DATA}/{self.name}"

    def source(self) -> Path:
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


def parse_path(option: str, value: object) -> str:
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{option} must be a path, such as 'project', not {value!r:.50}")
    path = os.fsdecode(value)
    if not path:
        raise ValueError(f"{option}='' is not a path: give one such as 'project', or leave {option} out")
    if path.startswith("~"):
        # A folder of that name would be made, and removing it by `rm -r ~` would remove the home folder.
        raise ValueError(f"{option}={path!r}: only a shell expands `~`; give os.path.expanduser({path!r})")
    return path


def parse_data(value: Sequence[Path | str]) -> list[str]:
    paths = [parse_path("data", path) for path in parse_names("data", value)]
    if len(paths) > MAX_ENTRIES:
        raise ValueError(
            f"data= has {len(paths):,} entries, and at most {MAX_ENTRIES} are allowed: give a folder of them"
        )
    found: dict[str, DataEntry] = {}
    for entry in map(DataEntry, paths):
        if "\0" in str(entry.path):
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


def check_readable(folder: Path) -> Path:
    for path in (Path(os.path.abspath(folder)), Path(os.path.realpath(folder))):
        if path == Path("/") or path in map(Path, ("/etc", "/tmp", "/usr")):  # noqa: S108 - paths in the sandbox
            raise ValueError(
                f"readable={str(folder)!r} can't be shown to the sandbox as a whole: name folders below it"
            )
        if any(path.is_relative_to(own) for own in OWN_FOLDERS):
            raise ValueError(f"readable={str(folder)!r} can't be shown: the sandbox has a {path.parts[1]} of its own")
    return folder
