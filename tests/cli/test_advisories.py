"""Known vulnerabilities by version: how the version numbers of engines are judged."""

import json

import pytest

from autogen_codeact.cli.advisories import (
    ADVISORIES,
    advisory_checks,
    component_versions,
    is_distribution_package,
    is_vulnerable,
)
from autogen_codeact.cli.check import Check

# Answer of Docker 20.10 of Debian 12 to `GET /version`, shortened.
DEBIAN = """{"Platform": {"Name": ""}, "Components": [
    {"Name": "Engine", "Version": "20.10.24+dfsg1", "Details": {"KernelVersion": "6.1.0-35-amd64", "MinAPIVersion": "1.12"}},
    {"Name": "containerd", "Version": "1.6.20~ds1", "Details": {"GitCommit": "1.6.20~ds1-1+deb12u3"}},
    {"Name": "runc", "Version": "1.1.5+ds1", "Details": {"GitCommit": "1.1.5+ds1-1+deb12u1"}},
    {"Name": "docker-init", "Version": "0.19.0", "Details": {"GitCommit": ""}}],
    "Version": "20.10.24+dfsg1", "ApiVersion": "1.41", "KernelVersion": "6.1.0-35-amd64"}"""
# The same of Docker's own packages and of Docker Desktop.
COMMUNITY = """{"Platform": {"Name": "Docker Engine - Community"}, "Components": [
    {"Name": "Engine", "Version": "%s", "Details": {}},
    {"Name": "runc", "Version": "%s", "Details": {"GitCommit": "v%s-0-g51d5e946"}}],
    "Version": "%s", "KernelVersion": "%s"}"""
DESKTOP = """{"Platform": {"Name": "Docker Desktop %s (201017)"}, "Components": [],
    "Version": "29.5.1", "KernelVersion": "7.0.2-linuxkit"}"""

AF_ALG = next(advisory.fixed for advisory in ADVISORIES if advisory.names == ("CVE-2026-31431",))
RUNC = next(advisory.fixed for advisory in ADVISORIES if "CVE-2025-31133" in advisory.names)


def checks(answer: str) -> list[Check]:
    return list(advisory_checks(component_versions(json.loads(answer))))


def test_old_engine_of_debian_has_one_note_and_one_vulnerability_without_effect() -> None:
    assert checks(DEBIAN) == [
        Check(
            "Docker",
            "ok",
            "20.10.24+dfsg1 has CVE-2026-41567, CVE-2026-42306; the sandbox is not affected: files are copied over its stream, "
            "and the engine unpacks no archive",
            "Update Docker to 29.5.1 or later for your other containers, and don't `docker cp` into or out of a sandbox.",
        ),
        Check(
            "runc",
            "note",
            "1.1.5+ds1-1+deb12u1 has known vulnerabilities: CVE-2024-21626, CVE-2025-31133, CVE-2025-52565, CVE-2025-52881",
            "Update runc to 1.2.8, 1.3.3 or later (with Docker's own packages: containerd.io). Your distribution may have "
            "included the fixes in this version: see its changelog.",
        ),
    ]


def test_current_versions_give_one_ok() -> None:
    current = COMMUNITY % ("29.5.1", "1.3.3", "1.3.3", "29.5.1", "6.12.85")
    assert checks(current) == [Check("vulnerabilities", "ok", "none known in Docker 29.5.1, Linux 6.12.85, runc 1.3.3")]


def test_old_kernel_is_ok_with_the_reason() -> None:
    old = COMMUNITY % ("29.5.1", "1.2.8", "1.2.8", "29.5.1", "6.12.84")
    assert checks(old) == [
        Check(
            "Linux",
            "ok",
            "6.12.84 has CVE-2026-31431; the sandbox is not affected: its seccomp list refuses AF_ALG sockets",
            "Update the kernel; until then don't use seccomp='engine' with Docker before 29.4.3.",
        )
    ]


def test_runc_of_dockers_own_packages_is_not_a_distribution_package() -> None:
    (check,) = checks(COMMUNITY % ("29.5.1", "1.3.2", "1.3.2", "29.5.1", "7.0"))
    assert (check.name, check.status) == ("runc", "note")
    assert check.detail == "1.3.2 has known vulnerabilities: CVE-2025-31133, CVE-2025-52565, CVE-2025-52881"
    assert check.advice == "Update runc to 1.2.8, 1.3.3 or later (with Docker's own packages: containerd.io)."


def test_docker_desktop_is_judged_by_its_own_version() -> None:
    (check,) = checks(DESKTOP % "4.44.2")
    assert (check.name, check.status) == ("Docker Desktop", "ok")
    assert (
        check.detail
        == "4.44.2 has CVE-2025-9074; the sandbox is not affected: it has no network; with network= it is affected"
    )
    (check,) = checks(DESKTOP % "4.44.3")
    assert (check.name, check.status) == ("vulnerabilities", "ok")


@pytest.mark.parametrize(
    ("version", "fixed", "expected"),
    [
        *(("1.1.11", ((1, 1, 12),), True), ("1.1.12", ((1, 1, 12),), False), ("1.2.0", ((1, 1, 12),), False)),
        *(("1.1.15", RUNC, True), ("1.2.7", RUNC, True), ("1.2.8", RUNC, False), ("1.2.10", RUNC, False)),
        *(("1.3.0", RUNC, True), ("1.3.3", RUNC, False), ("1.4.0-rc.3", RUNC, False), ("v1.2.8-0-gab", RUNC, False)),
        *(("5.10.253", AF_ALG, True), ("5.10.254", AF_ALG, False), ("5.15.204", AF_ALG, False)),
        *(("6.2.16", AF_ALG, True), ("6.13.12", AF_ALG, True), ("6.18.44-fc-v669", AF_ALG, False)),
        *(("6.19.12", AF_ALG, False), ("7.0.0", AF_ALG, False), ("7.1", AF_ALG, False)),
        # Which fixes these contain can't be derived from the number.
        *(("6.1.0-35-amd64", AF_ALG, None), ("5.15.0-139-generic", AF_ALG, None), ("5.14.0-570.el9", AF_ALG, None)),
        *(("", AF_ALG, None), ("unknown", AF_ALG, None)),
    ],
)
def test_version_is_compared_with_the_fix_of_its_release_line(version: str, fixed, expected: bool | None) -> None:
    assert is_vulnerable(version, fixed) is expected


@pytest.mark.parametrize("version", ["1.1.5+ds1-1+deb12u1", "1.1.12-0ubuntu3.1", "5.14.0-570.el9", "1.6.20~ds1"])
def test_distribution_packages_are_recognised(version: str) -> None:
    assert is_distribution_package(version)


@pytest.mark.parametrize("version", ["1.3.3", "29.5.1", "v1.2.8-0-g51d5e946", "1.4.0-rc.3"])
def test_plain_versions_belong_to_no_distribution(version: str) -> None:
    assert not is_distribution_package(version)


def test_missing_versions_are_accepted() -> None:
    assert checks("{}") == []
    assert checks('{"Version": "29.5.1", "Components": null, "Platform": null}') == [
        Check("vulnerabilities", "ok", "none known in Docker 29.5.1")
    ]


def test_every_advisory_has_one_line_of_advice() -> None:
    for advisory in ADVISORIES:
        assert advisory.advice.endswith(".")
        assert len(advisory.advice) < 120
        assert list(advisory.fixed) == sorted(advisory.fixed)
