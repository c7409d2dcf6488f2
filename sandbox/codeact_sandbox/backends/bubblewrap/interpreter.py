"""The Python of a bubblewrap sandbox, the folders of this machine that it needs, and the user that runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from codeact_sandbox.backends.bubblewrap.mounts import NOBODY
from codeact_sandbox.types.errors import SandboxUnavailable

PROBE_TIMEOUT_S = 20.0
# A folder that contains one of these is not an installation of Python alone.
PRIVATE = ("/etc", "/home", "/root", "/tmp", "/var")  # noqa: S108 - only compared
SYSTEM_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
_PROBE = """\
import json, sys
folders = sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix
print(json.dumps(folders))
"""


@dataclass(frozen=True)
class HostUser:
    """The user of this machine that a sandbox's processes belong to."""

    uid: int
    gid: int
    changed: bool

    def popen_options(self) -> dict[str, Any]:
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.changed else {}


@dataclass(frozen=True)
class Interpreter:
    path: Path  # its path, in the sandbox as on the host
    folders: tuple[Path, ...]  # folders without which it does not run, a virtual environment's among them
    note: str = ""  # why it is not the running one; empty if it is

    def identity(self) -> tuple[str, ...]:
        """Return what changes if another interpreter is installed at this path."""
        real = self.path.resolve()
        file = real.stat()
        return (str(self.path), str(real), f"{file.st_dev}:{file.st_ino}", str(file.st_size), str(file.st_mtime_ns))


def host_user(bind_dir: Path | None = None) -> HostUser:
    """Return the user of this machine that the sandbox's processes belong to: never root.

    As root, user id 0 of a namespace would still be the host's root: files of mode 0600 could be read.
    """
    if os.geteuid() != 0 or not _mapped(NOBODY):
        return HostUser(os.geteuid(), os.getegid(), changed=False)
    if bind_dir is not None and bind_dir.exists() and bind_dir.stat().st_uid != 0:
        owner = bind_dir.stat()
        return HostUser(owner.st_uid, owner.st_gid or NOBODY, changed=True)
    return HostUser(NOBODY, NOBODY, changed=True)


def _mapped(ident: int) -> bool:
    """Return whether this user and group id exist in this namespace; root may be the only one."""
    for name in ("uid_map", "gid_map"):
        ranges = [list(map(int, line.split())) for line in Path("/proc/self", name).read_text().splitlines()]
        if not any(first <= ident < first + count for first, _, count in ranges):
            return False
    return True


def find_interpreter(requested: str | None, user: HostUser) -> Interpreter:
    """Find the interpreter: the requested one; else the running one, if the sandbox's user can run it; else the system's."""
    problems: list[str] = []
    for candidate in [requested] if requested is not None else [sys.executable, *SYSTEM_PYTHONS]:
        path = Path(shutil.which(candidate) or candidate).absolute()
        if ".." in path.parts:  # the sandbox need not have the folders before it
            path = path.parent.resolve() / path.name
        found = _examine(path, user) if os.path.lexists(path) else "there is no such file"
        if isinstance(found, Interpreter):
            if not problems:
                return found
            note = (
                f"the sandbox runs {path}, without the packages of this program's Python ({problems[0]}); to have them, install "
                "that Python where every user can read it, or name another one with python="
            )
            return replace(found, note=note)
        problems.append(f"{candidate}: {found}")
    raise SandboxUnavailable(
        f"there is no Python that the sandbox could run ({'; '.join(problems)}): install python3, or pass python= with "
        "another one"
    )


@cache
def _examine(path: Path, user: HostUser) -> Interpreter | str:
    """Run an interpreter as the user to find its folders; return a text with the problem if that fails."""
    try:
        done = subprocess.run(
            [path, "-I", "-c", _PROBE],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PROBE_TIMEOUT_S,
            cwd="/",
            env={"LANG": "C.UTF-8"},
            check=True,
            **user.popen_options(),
        )
        folders = [Path(folder) for folder in json.loads(done.stdout)]
    except subprocess.CalledProcessError as error:
        return f"it does not run: {error.stderr.decode(errors='replace').strip()[-300:]}"
    except (OSError, subprocess.SubprocessError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        return f"user {user.uid}, which runs the sandbox, can't run it: {why}"
    except (ValueError, TypeError) as error:
        return f"it is not Python: {error}"
    for folder in folders:
        private = _private_part(folder)
        if private is not None:
            return f"it is installed in {folder}, and showing that to the sandbox would show {private} too"
    return Interpreter(path, tuple(dict.fromkeys(folders)))


def _private_part(folder: Path) -> Path | None:
    real = folder.resolve()
    private = (Path.home().resolve(), *map(Path, PRIVATE))
    return next((path for path in private if path.is_relative_to(real) and not real.is_relative_to("/usr")), None)
