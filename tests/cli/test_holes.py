"""Known ways out by version: what the numbers that engines give are taken for."""

import json

import pytest

from autogen_codeact.cli.check import Check
from autogen_codeact.cli.holes import HOLES, hole_checks, is_open, is_packaged, versions

# As Docker 20.10 of Debian 12 answers `docker version`, shortened.
DEBIAN = """{"Platform": {"Name": ""}, "Components": [
    {"Name": "Engine", "Version": "20.10.24+dfsg1", "Details": {"KernelVersion": "6.1.0-35-amd64", "MinAPIVersion": "1.12"}},
    {"Name": "containerd", "Version": "1.6.20~ds1", "Details": {"GitCommit": "1.6.20~ds1-1+deb12u3"}},
    {"Name": "runc", "Version": "1.1.5+ds1", "Details": {"GitCommit": "1.1.5+ds1-1+deb12u1"}},
    {"Name": "docker-init", "Version": "0.19.0", "Details": {"GitCommit": ""}}],
    "Version": "20.10.24+dfsg1", "ApiVersion": "1.41", "KernelVersion": "6.1.0-35-amd64"}"""
# In the form of Docker's own packages and of Docker Desktop.
COMMUNITY = """{"Platform": {"Name": "Docker Engine - Community"}, "Components": [
    {"Name": "Engine", "Version": "%s", "Details": {}},
    {"Name": "runc", "Version": "%s", "Details": {"GitCommit": "v%s-0-g51d5e946"}}],
    "Version": "%s", "KernelVersion": "%s"}"""
DESKTOP = """{"Platform": {"Name": "Docker Desktop %s (201017)"}, "Components": [],
    "Version": "29.5.1", "KernelVersion": "7.0.2-linuxkit"}"""

AF_ALG = next(hole.closed for hole in HOLES if hole.names == ("CVE-2026-31431",))
RUNC = next(hole.closed for hole in HOLES if "CVE-2025-31133" in hole.names)


def said(answer: str) -> list[Check]:
    return list(hole_checks(versions(json.loads(answer))))


def test_debians_old_engine_gets_one_warning_and_one_reassurance() -> None:
    assert said(DEBIAN) == [
        Check(
            "Docker",
            "ok",
            "20.10.24+dfsg1 has CVE-2026-41567, CVE-2026-42306; the sandbox is not affected: files travel over its stream, no "
            "archive is unpacked by the engine",
            "Update Docker to 29.5.1 or later for what else it runs, and don't `docker cp` into or out of a sandbox.",
        ),
        Check(
            "runc",
            "note",
            "1.1.5+ds1-1+deb12u1 has known ways out: CVE-2024-21626, CVE-2025-31133, CVE-2025-52565, CVE-2025-52881",
            "Update runc to 1.2.8, 1.3.3 or later (with Docker's own packages: containerd.io). Your distribution may have put "
            "the fixes into this one: see its changelog.",
        ),
    ]


def test_with_everything_up_to_date_there_is_one_line() -> None:
    current = COMMUNITY % ("29.5.1", "1.3.3", "1.3.3", "29.5.1", "6.12.85")
    assert said(current) == [Check("known holes", "ok", "none in Docker 29.5.1, Linux 6.12.85, runc 1.3.3")]


def test_an_old_kernel_does_not_matter_here_and_the_reason_is_said() -> None:
    old = COMMUNITY % ("29.5.1", "1.2.8", "1.2.8", "29.5.1", "6.12.84")
    assert said(old) == [
        Check(
            "Linux",
            "ok",
            "6.12.84 has CVE-2026-31431; the sandbox is not affected: its seccomp list refuses AF_ALG sockets",
            "Update the kernel; until then keep off seccomp='engine' with Docker before 29.4.3.",
        )
    ]


def test_runc_of_dockers_own_packages_is_not_a_distributions() -> None:
    (check,) = said(COMMUNITY % ("29.5.1", "1.3.2", "1.3.2", "29.5.1", "7.0"))
    assert (check.name, check.status) == ("runc", "note")
    assert check.detail == "1.3.2 has known ways out: CVE-2025-31133, CVE-2025-52565, CVE-2025-52881"
    assert check.advice == "Update runc to 1.2.8, 1.3.3 or later (with Docker's own packages: containerd.io)."


def test_docker_desktop_has_a_number_of_its_own() -> None:
    (check,) = said(DESKTOP % "4.44.2")
    assert (check.name, check.status) == ("Docker Desktop", "ok")
    assert (
        check.detail == "4.44.2 has CVE-2025-9074; the sandbox is not affected: it has no network; with network= it is"
    )
    (check,) = said(DESKTOP % "4.44.3")
    assert (check.name, check.status) == ("known holes", "ok")


@pytest.mark.parametrize(
    ("number", "closed", "expected"),
    [
        *(("1.1.11", ((1, 1, 12),), True), ("1.1.12", ((1, 1, 12),), False), ("1.2.0", ((1, 1, 12),), False)),
        *(("1.1.15", RUNC, True), ("1.2.7", RUNC, True), ("1.2.8", RUNC, False), ("1.2.10", RUNC, False)),
        *(("1.3.0", RUNC, True), ("1.3.3", RUNC, False), ("1.4.0-rc.3", RUNC, False), ("v1.2.8-0-gab", RUNC, False)),
        *(("5.10.253", AF_ALG, True), ("5.10.254", AF_ALG, False), ("5.15.204", AF_ALG, False)),
        *(("6.2.16", AF_ALG, True), ("6.13.12", AF_ALG, True), ("6.18.44-fc-v669", AF_ALG, False)),
        *(("6.19.12", AF_ALG, False), ("7.0.0", AF_ALG, False), ("7.1", AF_ALG, False)),
        # What stands behind such a number can't be told from it.
        *(("6.1.0-35-amd64", AF_ALG, None), ("5.15.0-139-generic", AF_ALG, None), ("5.14.0-570.el9", AF_ALG, None)),
        *(("", AF_ALG, None), ("unknown", AF_ALG, None)),
    ],
)
def test_a_number_is_compared_with_the_fix_in_its_own_line(number: str, closed, expected: bool | None) -> None:
    assert is_open(number, closed) is expected


@pytest.mark.parametrize("number", ["1.1.5+ds1-1+deb12u1", "1.1.12-0ubuntu3.1", "5.14.0-570.el9", "1.6.20~ds1"])
def test_distributions_numbers_are_known(number: str) -> None:
    assert is_packaged(number)


@pytest.mark.parametrize("number", ["1.3.3", "29.5.1", "v1.2.8-0-g51d5e946", "1.4.0-rc.3"])
def test_plain_numbers_are_nobodys(number: str) -> None:
    assert not is_packaged(number)


def test_an_engine_that_says_nothing_of_its_parts_is_taken_as_it_is() -> None:
    assert said("{}") == []
    assert said('{"Version": "29.5.1", "Components": null, "Platform": null}') == [
        Check("known holes", "ok", "none in Docker 29.5.1")
    ]


def test_every_hole_says_what_to_do_in_a_line() -> None:
    for hole in HOLES:
        assert hole.advice.endswith(".")
        assert len(hole.advice) < 120
        assert list(hole.closed) == sorted(hole.closed)
