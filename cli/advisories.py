"""Published vulnerabilities in the software under a sandbox, recognised by version numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from autogen_codeact.cli.check import Check

Version = tuple[int, ...]


@dataclass(frozen=True)
class Advisory:
    """Vulnerabilities by which code can escape from a container, and the releases that fix them.

    Args:
        component: Software that has them: `runc`, `Docker`, `Docker Desktop` or `Linux`.
        names: Their CVE numbers.
        fixed: First fixed version of each release line, ascending. All versions after the last one are fixed.
        advice: What to do, in a sentence.
        mitigation: Why our sandbox is not affected, or empty if it may be.
    """

    component: str
    names: tuple[str, ...]
    fixed: tuple[Version, ...]
    advice: str
    mitigation: str = ""


ADVISORIES = (
    Advisory("runc", ("CVE-2024-21626",), ((1, 1, 12),), "Update runc (with Docker's own packages: containerd.io)."),
    Advisory(
        "runc",
        ("CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"),
        ((1, 2, 8), (1, 3, 3)),
        "Update runc to 1.2.8, 1.3.3 or later (with Docker's own packages: containerd.io).",
    ),
    Advisory(
        "Docker Desktop",
        ("CVE-2025-9074",),
        ((4, 44, 3),),
        "Update Docker Desktop to 4.44.3 or later: in earlier ones, containers with a network reach the engine itself.",
        "it has no network; with network= it is affected",
    ),
    Advisory(
        "Docker",
        ("CVE-2026-41567", "CVE-2026-42306"),
        ((29, 5, 1),),
        "Update Docker to 29.5.1 or later for your other containers, and don't `docker cp` into or out of a sandbox.",
        "files are copied over its stream, and the engine unpacks no archive",
    ),
    Advisory(
        "Linux",
        ("CVE-2026-31431",),
        ((5, 10, 254), (5, 15, 204), (6, 1, 170), (6, 6, 137), (6, 12, 85), (6, 18, 22), (6, 19, 12), (7, 0)),
        "Update the kernel; until then don't use seccomp='engine' with Docker before 29.4.3.",
        "its seccomp list refuses AF_ALG sockets",
    ),
)


def component_versions(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of the software under a container.

    Args:
        answer: The engine's answer to `GET /version`.

    Returns:
        Versions by component, as the engine writes them, of those that the answer contains.
    """
    components = {str(item.get("Name")): item for item in answer.get("Components") or ()}
    found = {"Docker": str(answer.get("Version", "")), "Linux": str(answer.get("KernelVersion", ""))}
    if "runc" in components:
        details = components["runc"].get("Details") or {}
        # Only this field has the patch level of a distribution's package.
        full, short = str(details.get("GitCommit", "")), str(components["runc"].get("Version", ""))
        found["runc"] = full if full.startswith(short) else short
    platform = str((answer.get("Platform") or {}).get("Name", ""))
    if platform.startswith("Docker Desktop"):
        found["Docker Desktop"] = platform.removeprefix("Docker Desktop").split("(")[0].strip()
    return {component: version for component, version in found.items() if version}


def is_vulnerable(version: str, fixed: tuple[Version, ...]) -> bool | None:
    """Compare a version with the fixed ones.

    Args:
        version: The version, possibly with a distribution's suffix.
        fixed: As in `Advisory`.

    Returns:
        None if the number does not show it, as with kernels whose third figure is the distribution's own.
    """
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    if match is None:
        return None
    numbers = tuple(int(figure or 0) for figure in match.groups())
    if numbers >= fixed[-1] or any(fix[:2] == numbers[:2] and numbers >= fix for fix in fixed):
        return False
    # 6.1.0-35-amd64, 5.15.0-139-generic, 5.14.0-570.el9: the suffix says which fixes are included.
    return None if numbers[2] == 0 and re.search(r"-\d+", version) else True


def is_distribution_package(version: str) -> bool:
    """Return whether a distribution built it, so that it may include fixes which its number does not show."""
    return re.search(r"[+~]|deb|ubuntu|\.(el|fc|amzn)\d", version) is not None


def advisory_checks(versions: Mapping[str, str]) -> Iterable[Check]:
    """Report the known vulnerabilities, in one check for each component that has some.

    Args:
        versions: Versions by component.
    """
    vulnerable = False
    for component, version in versions.items():
        # A version that does not show it (None) gets no check: it would be a guess.
        found = [each for each in ADVISORIES if each.component == component and is_vulnerable(version, each.fixed)]
        if found:
            vulnerable = True
            yield _check(component, version, found)
    if versions and not vulnerable:
        names = ", ".join(f"{component} {version}" for component, version in versions.items())
        yield Check("vulnerabilities", "ok", f"none known in {names}")


def _check(component: str, version: str, found: list[Advisory]) -> Check:
    names = ", ".join(name for advisory in found for name in advisory.names)
    mitigations = [advisory.mitigation for advisory in found if advisory.mitigation]
    advice = found[-1].advice  # its releases are the newest and contain the earlier fixes
    if len(mitigations) == len(found):
        detail = f"{version} has {names}; the sandbox is not affected: {'; '.join(mitigations)}"
        return Check(component, "ok", detail, advice)
    if is_distribution_package(version):
        advice += " Your distribution may have included the fixes in this version: see its changelog."
    return Check(component, "note", f"{version} has known vulnerabilities: {names}", advice)
