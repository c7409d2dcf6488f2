"""Labels of containers, above all the owner: its machine and process, so that other processes can see whether it still runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from codeact_sandbox.backends import owner
from codeact_sandbox.backends.owner import OwnerState

PREFIX = "org.autogen-codeact"
KIND = f"{PREFIX}.kind"
SANDBOX = "sandbox"
OWNER = f"{PREFIX}.owner"  # label with the owner's host name and process id, for people
LIFE = f"{PREFIX}.owner-life"  # label with the boot id, PID namespace and start time of the owner
CREATION = f"{PREFIX}.creation"
"""Label whose value is unique to a container: its id is not known where the engine's reply is lost."""
KEEP = f"{PREFIX}.keep"  # label of a container that its user wants to inspect once it has ended (`auto_remove=False`)


def owner_labels() -> dict[str, str]:
    """Return the labels of a sandbox that this process owns."""
    pid = os.getpid()
    here, started = _boot_and_namespace(), owner.start_time(pid)
    life = f"{here}/{started}" if here is not None and started is not None else "unknown"
    return {KIND: SANDBOX, OWNER: f"{socket.gethostname()}:{pid}", LIFE: life}


def owner_state(labels: Mapping[str, str]) -> OwnerState:
    """Return whether the owner of a container still runs."""
    host, _, pid = labels.get(OWNER, "").rpartition(":")
    boot_and_namespace, _, started = labels.get(LIFE, "").rpartition("/")
    if host != socket.gethostname() or not pid.isdigit() or boot_and_namespace != _boot_and_namespace():
        return "unknown"
    return owner.owner_state(int(pid), started)


def _boot_and_namespace() -> str | None:
    try:
        return f"{owner.boot_id()}/{owner.pid_namespace()}"
    except OSError:
        return None
