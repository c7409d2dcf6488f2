"""Who a container belongs to, told so exactly that its death can be judged from the outside.

A container carries two labels: the machine's name and the process id, for people, and what tells that process from every other
one: the kernel's boot id, the PID namespace, and when the process started. A process id alone comes round again, and the
containers of a remote engine may belong to other machines.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

LABEL = "org.autogen-codeact"
KIND = f"{LABEL}.kind"
OWNER = f"{LABEL}.owner"
LIFE = f"{LABEL}.owner-life"
TICKET = f"{LABEL}.ticket"
"""Label whose value is unique to a container: its id is not known where the answer of the engine is lost."""
SANDBOX = "sandbox"

Fate = Literal["alive", "dead", "unknown"]
"""What became of an owner; `unknown` for one of another machine, of before a restart, or of an older version."""

ENDED = ("Z", "X", "x")
"""How /proc writes the state of a process that has ended."""

_PROC = Path("/proc")


def labels() -> dict[str, str]:
    """What a container of this process is marked with."""
    return {KIND: SANDBOX, OWNER: f"{socket.gethostname()}:{os.getpid()}", LIFE: _life(os.getpid()) or "unknown"}


def fate(found: Mapping[str, str]) -> Fate:
    """Judge whether the owner of a container still lives.

    Args:
        found: The container's labels.

    Returns:
        `dead` only where this machine can tell for certain.
    """
    host, _, number = found.get(OWNER, "").rpartition(":")
    life = found.get(LIFE, "")
    here = _place()
    if here is None or host != socket.gethostname() or not number.isdigit() or not life.startswith(f"{here}/"):
        return "unknown"
    now = _life(int(number))
    if now is None:
        return "unknown" if exists(int(number)) else "dead"
    return "alive" if now == life else "dead"


def exists(pid: int) -> bool:
    """Whether there is such a process, also where /proc does not show it, as for other users' with `hidepid`."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _place() -> str | None:
    """This boot of this machine, and this PID namespace; None where there is no /proc (macOS, Windows)."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat(_PROC / 'self/ns/pid').st_ino}"
    except OSError:
        return None


def _life(pid: int) -> str | None:
    """What tells a living process from every other one; None where /proc shows none of that number."""
    place = _place()
    try:
        # The name may hold spaces and brackets, so count from its last bracket.
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    if place is None or len(fields) < 20:
        return None
    return f"{place}/{'ended' if fields[0] in ENDED else fields[19]}"
