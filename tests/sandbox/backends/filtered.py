"""Running Python source in a sandbox, and beside it without the filter of system calls."""

import functools
import json
import platform
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from docker import APIClient

from codeact_sandbox import Sandbox
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.seccomp import PROFILE, SYSCALLS
from codeact_sandbox.types.options import DEFAULT_IMAGE

MACHINE = platform.machine()
NUMBERS = SYSCALLS.get(MACHINE, {})
LISTED = {name for entry in json.loads(PROFILE.read_text())["syscalls"] for name in entry["names"]}
UNLISTED = [name for name in NUMBERS if name not in LISTED]
# Not ALL: an engine that lacks one itself can't give it.
CAPABILITIES = (
    *("DAC_READ_SEARCH", "MKNOD", "NET_ADMIN", "NET_RAW", "SYSLOG", "SYS_ADMIN", "SYS_BOOT", "SYS_CHROOT"),
    *("SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO", "SYS_TIME", "SYS_TTY_CONFIG"),
)


def machine() -> list[str]:
    """Options that show this machine's folders, without those where other tests mount and unmount at the same time."""
    options = []
    for folder in Path("/").iterdir():
        if folder.is_symlink():
            options += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.name not in ("proc", "run", "tmp", "var"):
            options += ["--dev-bind-try", str(folder), str(folder)]
    return options


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


def run_in_bare_bubblewrap(code: str) -> str:
    """Run code in namespaces without a filter, with the capabilities that the calls ask for."""
    command = ["bwrap", *machine(), "--proc", "/proc", "--tmpfs", "/tmp", "--chdir", "/tmp"]
    for folder in {sys.prefix, sys.base_prefix}:  # a checkout may lie in /tmp
        command += ["--ro-bind", folder, folder]
    command += ["--unshare-all", "--cap-add", "ALL", sys.executable, "-I", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(place: str, code: str, *, filtered: bool) -> str:
    """Run Python source in a sandbox, or without its filter."""
    if not filtered:
        return run_in_bare_container(code) if place == "docker" else run_in_bare_bubblewrap(code)
    with Sandbox(place, mode="process", timeout=50) as box:
        return box.run(code).check().output


def probe() -> str:
    """Python source that makes every call, each in a process of its own, and prints what came of each."""
    source = (Path(__file__).parent / "syscall_probe.py").read_text()
    return f"NUMBERS = {NUMBERS}\nTRIED = {UNLISTED}\n{source}\nmain()\n"


@functools.cache
def outcomes(place: str, *, filtered: bool) -> dict[str, str]:
    """What came of each call in one of the places, under the filter or without one."""
    found: dict[str, str] = json.loads(run(place, probe(), filtered=filtered))
    return found
