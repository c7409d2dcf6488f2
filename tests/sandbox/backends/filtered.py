"""Running Python source under the list of system calls and without a filter: in Docker, on this kernel, in bubblewrap."""

import asyncio
import functools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from docker import APIClient

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.seccomp import PROFILE, SYSCALLS, bpf_program
from codeact_sandbox.types.options import DEFAULT_IMAGE

MACHINE = platform.machine()
NUMBERS = SYSCALLS.get(MACHINE, {})
LISTED = {name for entry in json.loads(PROFILE.read_text())["syscalls"] for name in entry["names"]}
UNLISTED = [name for name in NUMBERS if name not in LISTED]
PLACES = ("docker", "kernel", "bubblewrap")
# Not ALL: an engine that lacks one itself can't give it.
CAPABILITIES = (
    *("DAC_READ_SEARCH", "MKNOD", "NET_ADMIN", "NET_RAW", "SYSLOG", "SYS_ADMIN", "SYS_BOOT", "SYS_CHROOT"),
    *("SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO", "SYS_TIME", "SYS_TTY_CONFIG"),
)

INSTALL = """\
import ctypes
program = bytes.fromhex({program!r})
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
assert libc.syscall({seccomp}, 1, 0, ctypes.byref(Program(len(program) // 8, program))) == 0, ctypes.get_errno()
"""


def installed() -> str:
    """Python source that puts the process under the filter."""
    return INSTALL.format(program=bpf_program().hex(), seccomp=NUMBERS["seccomp"])


def machine() -> list[str]:
    """Options that show this machine's folders, without those where other tests mount and unmount at the same time."""
    options = []
    for folder in Path("/").iterdir():
        if folder.is_symlink():
            options += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.name not in ("proc", "run", "tmp", "var"):
            options += ["--dev-bind-try", str(folder), str(folder)]
    return options


@functools.cache
def lack_of_bubblewrap() -> str:
    """Why bubblewrap can't be used here; empty where it can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    tried = subprocess.run(["bwrap", *machine(), "--unshare-all", "true"], capture_output=True, text=True, check=False)
    return f"bubblewrap can't make namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


def require(request: pytest.FixtureRequest) -> str:
    """The place that a test is parametrised with; where there is none such, the test is skipped."""
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
    if request.param == "bubblewrap":
        lack = lack_of_bubblewrap()
        if lack and os.environ.get("REQUIRE_BUBBLEWRAP") == "1":
            pytest.fail(f"REQUIRE_BUBBLEWRAP=1, but {lack}")
        if lack:
            pytest.skip(lack)
    return str(request.param)


async def run_in_docker(code: str, **options):
    async with DockerCommandLineCodeExecutor(**options) as executor:
        result = await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())
    assert result.outcome == "ok", result
    return result.output


def run_in_bare_container(code: str) -> str:
    """Run code without a filter, as root with the capabilities that the calls ask for."""
    with closing(connect()) as client:
        host = client.create_host_config(
            cap_add=list(CAPABILITIES),
            network_mode="none",
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            tmpfs={"/tmp": "exec"},
        )
        return run_as_root(client, ["python3", "-c", code], host)


def run_as_root(client: APIClient, command: list[str], host: dict[str, Any]) -> str:
    """Run a command as root in a container of the default image; what it printed, once it has ended well."""
    container = client.create_container(DEFAULT_IMAGE, command, user="0:0", host_config=host)
    try:
        client.start(container)
        status = client.wait(container, timeout=50)["StatusCode"]
        said = client.logs(container).decode()
    finally:
        client.remove_container(container, force=True)
    assert status == 0, said
    return str(said)


def run_here(code: str, *command: str, fds: tuple[int, ...] = ()) -> str:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*command, sys.executable, "-I", "-c", code],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
            pass_fds=fds,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_in_bubblewrap(code: str, *, filtered: bool) -> str:
    fd = os.memfd_create("filter")
    try:
        os.write(fd, bpf_program())
        os.lseek(fd, 0, os.SEEK_SET)
        rule = ("--seccomp", str(fd)) if filtered else ()
        places = [*machine(), "--proc", "/proc", "--tmpfs", "/tmp", "--chdir", "/tmp"]
        for folder in {sys.prefix, sys.base_prefix}:  # a checkout may lie in /tmp
            places += ["--ro-bind", folder, folder]
        return run_here(code, "bwrap", *places, "--unshare-all", "--cap-add", "ALL", *rule, fds=(fd,))
    finally:
        os.close(fd)


def run(place: str, code: str, *, filtered: bool) -> str:
    """Run Python source in one of the places, under the filter or without one."""
    if place == "docker":
        return asyncio.run(run_in_docker(code)) if filtered else run_in_bare_container(code)
    if place == "kernel":
        return run_here(installed() + code if filtered else code)
    return run_in_bubblewrap(code, filtered=filtered)


def probe(names: Collection[str] | None = None) -> str:
    """Python source that makes these calls, each in a process of its own, or every one, and prints what came of each."""
    source = (Path(__file__).parent / "syscall_probe.py").read_text()
    return f"NUMBERS = {NUMBERS}\nTRIED = {UNLISTED}\n{source}\nmain({names and sorted(names)})\n"


@functools.cache
def outcomes(place: str, *, filtered: bool) -> dict[str, str]:
    """What came of each call in one of the places, under the filter or without one."""
    found: dict[str, str] = json.loads(run(place, probe(), filtered=filtered))
    return found
