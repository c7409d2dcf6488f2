"""What killed processes have left on this machine, and its removal in the background of the next start."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
from functools import partial

from codeact_sandbox.backends.bubblewrap.cgroups import leftover_groups
from codeact_sandbox.backends.owner import Leftover
from codeact_sandbox.files.temporary_folder import (
    abandoned_folders,
    owner_of,
    remove_abandoned,
)
from codeact_sandbox.host.threads import start_thread
from codeact_sandbox.types.errors import SandboxError

logger = logging.getLogger("codeact_sandbox")

_checked: set[tuple[int, str]] = set()
_checked_lock = threading.Lock()


def local_leftovers(*, kill: bool = True) -> list[Leftover]:
    """List control groups and temporary folders of dead processes; without `kill`, the processes of groups end by themselves."""
    groups = leftover_groups(kill=kill) if sys.platform == "linux" else []
    folders = [
        Leftover(
            kind="folder",
            name=str(path),
            state="files of work_dir",
            owner=f"process {owner_of(path)}",
            owner_state="dead",
            remove=partial(remove_abandoned, path),
        )
        for path in abandoned_folders()
    ]
    return groups + folders


def remove_leftovers_in_background() -> None:
    """Remove control groups and temporary folders of dead processes in a thread, once per process; Docker's are its own."""
    key = (os.getpid(), tempfile.gettempdir())
    with _checked_lock:
        first = key not in _checked
        _checked.add(key)
    if first:
        start_thread("codeact-leftovers", _remove_all)


def _remove_all() -> None:
    for item in local_leftovers(kill=False):
        try:
            if item.orphan:
                item.remove()
        except (OSError, SandboxError) as error:
            logger.info("what a process that has ended has left stays: %s", error)
