"""What killed processes have left on this machine, and its removal in the background of the next start."""

from __future__ import annotations

import sys
import tempfile
from functools import partial

from codeact_sandbox.backends.bubblewrap.cgroups import leftover_groups
from codeact_sandbox.backends.owner import Leftover, remove_once
from codeact_sandbox.files.temporary_folder import (
    abandoned_folders,
    owner_of,
    remove_abandoned,
)


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
    remove_once(tempfile.gettempdir(), partial(local_leftovers, kill=False))
