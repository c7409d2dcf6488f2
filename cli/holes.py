"""Known ways out of a container in what a sandbox stands on, by version. A table and functions without side effects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from autogen_codeact.cli.check import Check

Version = tuple[int, ...]


@dataclass(frozen=True)
class Hole:
    """Known holes that were closed together; each was looked up in its advisory.

    Args:
        part: What has them: `runc`, `Docker`, `Docker Desktop` or `Linux`.
        names: Their names.
        closed: First versions without them: one of each line that got the fix, ascending. What is newer than the last has none.
        advice: What to do, in a sentence.
        harmless: Why a sandbox of ours is not affected, or empty where it may be.
    """

    part: str
    names: tuple[str, ...]
    closed: tuple[Version, ...]
    advice: str
    harmless: str = ""


HOLES = (
    Hole("runc", ("CVE-2024-21626",), ((1, 1, 12),), "Update runc (with Docker's own packages: containerd.io)."),
    Hole(
        "runc",
        ("CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"),
        ((1, 2, 8), (1, 3, 3)),
        "Update runc to 1.2.8, 1.3.3 or later (with Docker's own packages: containerd.io).",
    ),
    Hole(
        "Docker Desktop",
        ("CVE-2025-9074",),
        ((4, 44, 3),),
        "Update Docker Desktop to 4.44.3 or later: before, containers with a network reach the engine itself.",
        "it has no network; with network= it is",
    ),
    Hole(
        "Docker",
        ("CVE-2026-41567", "CVE-2026-42306"),
        ((29, 5, 1),),
        "Update Docker to 29.5.1 or later for what else it runs, and don't `docker cp` into or out of a sandbox.",
        "files travel over its stream, no archive is unpacked by the engine",
    ),
    Hole(
        "Linux",
        ("CVE-2026-31431",),
        ((5, 10, 254), (5, 15, 204), (6, 1, 170), (6, 6, 137), (6, 12, 85), (6, 18, 22), (6, 19, 12), (7, 0)),
        "Update the kernel; until then keep off seccomp='engine' with Docker before 29.4.3.",
        "its seccomp list refuses AF_ALG sockets",
    ),
)


def versions(version: Mapping[str, Any]) -> dict[str, str]:
    """Pick the versions of what a container stands on.

    Args:
        version: The engine's answer to `GET /version`.

    Returns:
        Versions by part, as the engine writes them; what it does not name is not there.
    """
    parts = {str(item.get("Name")): item for item in version.get("Components") or ()}
    found = {"Docker": str(version.get("Version", "")), "Linux": str(version.get("KernelVersion", ""))}
    if "runc" in parts:
        details = parts["runc"].get("Details") or {}
        # Distributions tell their own patches there only.
        full, short = str(details.get("GitCommit", "")), str(parts["runc"].get("Version", ""))
        found["runc"] = full if full.startswith(short) else short
    platform = str((version.get("Platform") or {}).get("Name", ""))
    if platform.startswith("Docker Desktop"):
        found["Docker Desktop"] = platform.removeprefix("Docker Desktop").split("(")[0].strip()
    return {part: number for part, number in found.items() if number}


def is_open(number: str, closed: tuple[Version, ...]) -> bool | None:
    """Judge by its number whether a version has a hole.

    Args:
        number: The version, perhaps with a distribution's additions.
        closed: As in `Hole`.

    Returns:
        None where the number does not tell, as with kernels whose third figure is the distribution's own.
    """
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", number)
    if match is None:
        return None
    here = tuple(int(figure or 0) for figure in match.groups())
    if here >= closed[-1]:
        return False
    same_line = [fix for fix in closed if fix[:2] == here[:2]]
    if same_line and here >= same_line[0]:
        return False
    # 6.1.0-35-amd64, 5.15.0-139-generic, 5.14.0-570.el9: the fixes are in what stands behind.
    return None if here[2] == 0 and re.search(r"-\d+", number) else True


def is_packaged(number: str) -> bool:
    """Whether a distribution built it, and so may have put fixes into it that its number does not show."""
    return re.search(r"[+~]|deb|ubuntu|\.(el|fc|amzn)\d", number) is not None


def hole_checks(found: Mapping[str, str]) -> Iterable[Check]:
    """Say which known holes are open, one line for each part that has some.

    Args:
        found: Versions by part.
    """
    affected = False
    for part, number in found.items():
        holes = [hole for hole in HOLES if hole.part == part]
        # What is certain not to matter is worth a line only where it is certainly there.
        open_ones = [hole for hole in holes if is_open(number, hole.closed)]
        if open_ones:
            affected = True
            yield _check(part, number, open_ones)
    if found and not affected:
        yield Check("known holes", "ok", f"none in {', '.join(f'{part} {number}' for part, number in found.items())}")


def _check(part: str, number: str, holes: list[Hole]) -> Check:
    names = ", ".join(name for hole in holes for name in hole.names)
    reasons = [hole.harmless for hole in holes if hole.harmless]
    # The last one's fix is the newest, and has those of before.
    advice = holes[-1].advice
    if len(reasons) == len(holes):
        detail = f"{number} has {names}; the sandbox is not affected: {'; '.join(reasons)}"
        return Check(part, "ok", detail, advice)
    if is_packaged(number):
        advice += " Your distribution may have put the fixes into this one: see its changelog."
    return Check(part, "note", f"{number} has known ways out: {names}", advice)
