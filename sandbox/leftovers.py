"""Removal of what killed processes have left on this machine, in the background of the next start."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time

from autogen_codeact.sandbox.backends.bubblewrap import cgroups
from autogen_codeact.sandbox.files.temporary_folder import abandoned_folders, remove_abandoned, temporary_place

logger = logging.getLogger("autogen_codeact")

FOLDERS_TIMEOUT_S = 5.0
GROUPS_TIMEOUT_S = 10.0
_checked: set[tuple[int, str]] = set()
_checked_lock = threading.Lock()


def remove_leftovers_in_background() -> None:
    """Remove control groups and, once per process, temporary folders of killed processes in a thread of limited time."""
    key = (os.getpid(), temporary_place())
    with _checked_lock:
        first = key not in _checked
        _checked.add(key)
    threading.Thread(target=_remove_all, args=(first,), name="codeact-leftovers", daemon=True).start()


def _remove_all(folders: bool) -> None:
    if folders:
        _remove_folders(time.monotonic() + FOLDERS_TIMEOUT_S)
    with contextlib.suppress(OSError):  # there are no control groups here
        cgroups.remove_orphans(time.monotonic() + GROUPS_TIMEOUT_S)


def _remove_folders(until: float) -> None:
    for path in abandoned_folders(until):
        try:
            remove_abandoned(path, until - time.monotonic())
        except OSError as error:
            logger.info("the temporary folder of a process that has ended stays: %s", error)
