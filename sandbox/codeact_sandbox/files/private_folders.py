"""Folders of the host that code must not reach through its workspace: logs of runs, batches, and what is kept for the user."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from itertools import count
from pathlib import Path

from codeact_sandbox.types.errors import SandboxFileError

Identity = tuple[int, int]  # device and inode
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY
_lock = threading.Lock()
_numbers = count()
_private: dict[int, tuple[list[Identity], bool]] = {}
_mounted: dict[int, Identity] = {}


def state_folder() -> Path:
    """Return the folder of what this package keeps for the user; it may not exist yet."""
    return _state_folder(os.environ.get("XDG_STATE_HOME"), os.environ.get("HOME"))


@lru_cache(maxsize=1)  # each file that is stored asks for it
def _state_folder(given: str | None, _home: str | None) -> Path:
    return Path(given or Path.home() / ".local" / "state") / "autogen-codeact"


def keep_private(folder: int, *, with_workspaces: bool = False) -> Callable[[], None]:
    """Have an open folder left out of all workspaces around it; returns what ends that.

    With `with_workspaces`, folders in it can be workspaces; else they are refused. A PermissionError says that the folder is in
    one that is mounted in a sandbox, where nothing can be left out.
    """
    with _lock:
        places = _with_parents(folder)
        if not set(_mounted.values()).isdisjoint(places):
            raise PermissionError(
                errno.EPERM, "it is in a folder that is mounted in a sandbox (bind_dir=): use another one"
            )
        number = next(_numbers)
        _private[number] = places, with_workspaces
    return lambda: _private.pop(number, None) and None


def private_folders(*, around: bool = False) -> frozenset[Identity]:
    """Return the folders that are left out; with `around`, only those in which no folder can be a workspace."""
    with _lock:
        found = {places[0] for places, with_workspaces in _private.values() if not (around and with_workspaces)}
    with suppress(OSError, RuntimeError):
        status = os.stat(state_folder())
        found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def is_in(folder: int, others: frozenset[Identity]) -> bool:
    return not others.isdisjoint(_with_parents(folder))


def mount(folder: Path) -> Callable[[], None]:
    """Note a folder that is mounted in a sandbox, where code can write to all of it; returns what ends that."""
    try:
        descriptor = os.open(folder, _FOLDER)
    except OSError:
        return lambda: None  # the sandbox will not start, either
    try:
        identity = identity_of(descriptor)
        refused = is_in(descriptor, private_folders(around=True))
        with suppress(OSError, RuntimeError):
            state = os.open(state_folder(), _FOLDER)
            try:
                refused = refused or is_in(state, frozenset([identity]))
            finally:
                os.close(state)
    finally:
        os.close(descriptor)
    with _lock:
        refused = refused or any(identity in places for places, _ in _private.values())
        number = next(_numbers)
        if not refused:
            _mounted[number] = identity
    if refused:
        raise SandboxFileError(
            f"bind_dir={str(folder)!r} can't be mounted: logs of runs, or what is kept in {state_folder()}, would be open to the "
            "code. Use a folder beside them, or work_dir=, which leaves them out."
        )
    return lambda: _mounted.pop(number, None) and None


def identity_of(descriptor: int) -> Identity:
    """Return what a folder is, whatever it is called."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _with_parents(folder: int) -> list[Identity]:
    """Return a folder and those around it, up to the root."""
    found: list[Identity] = []
    descriptor = os.dup(folder)
    try:
        while (identity := identity_of(descriptor)) not in found:  # the root is in itself
            found.append(identity)
            above = os.open("..", _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = above
    finally:
        os.close(descriptor)
    return found
