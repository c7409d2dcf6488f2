"""Starting a runner in bubblewrap namespaces, without a daemon."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .cgroups import Cgroup
from .errors import SandboxStartError, SandboxUnavailable
from .limits import Limits, parse_size
from .pipe_stream import PipeStream
from .seccomp import bpf_program

WORKSPACE = "/workspace"
HOME = "/tmp/home"  # noqa: S108 - a path in the sandbox
NOBODY = 65534
STOP_TIMEOUT_S = 5.0
SHM_BYTES = 64 * 1024**2
# Of the host's /etc only what programs need and what says nothing about its users.
ETC = (
    "alternatives", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic", "mime.types", "os-release",
    "pki/tls/certs", "protocols", "python3", "R", "services", "ssl/certs",
)  # fmt: skip
SYSTEM = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")


@dataclass(frozen=True)
class BubblewrapOptions:
    """What the namespaces are made from.

    Args:
        name: Name of the sandbox.
        limits: What it may use.
        python: The interpreter.
        environment: Variables, resolved; the host's own are not passed on.
        readable: Further folders of the host that can be read.
        bind_dir: Host folder mounted at /workspace, or None.
    """

    name: str
    limits: Limits
    python: Path
    environment: Mapping[str, str]
    readable: tuple[Path, ...]
    bind_dir: Path | None


class BubblewrapLauncher:
    """Starts one bubblewrap process.

    Args:
        options: What it is made from.
    """

    def __init__(self, options: BubblewrapOptions) -> None:
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._pid_one: int | None = None
        self._cgroup: Cgroup | None = None

    def launch(self, boot: str) -> PipeStream:
        """Start the namespaces and the runner in them.

        Args:
            boot: Python source that it runs first.

        Returns:
            The pipes to it.

        Raises:
            SandboxUnavailable: This machine can't do it.
            SandboxStartError: It did not come up; nothing is left of it.
        """
        bwrap = find_bubblewrap()
        diagnostics = tempfile.TemporaryFile()  # noqa: SIM115 - the stream closes it
        try:
            self._cgroup = Cgroup.create(self._options.name, self._options.limits)
            self._process = self._spawn(bwrap, boot, diagnostics)
        except BaseException:
            diagnostics.close()
            self.kill()
            self.close()
            raise
        return PipeStream(self._process, diagnostics)

    def _spawn(self, bwrap: str, boot: str, diagnostics: IO[bytes]) -> subprocess.Popen[bytes]:
        status_read, status_write = os.pipe()
        gate_read, gate_write = os.pipe()
        filter_fd = _readable_file(bpf_program())
        command = [
            bwrap,
            *self._arguments(),
            *("--seccomp", str(filter_fd), "--json-status-fd", str(status_write), "--block-fd", str(gate_read)),
            *("--", str(self._options.python), "-S", "-c", boot),
        ]
        root = os.geteuid() == 0
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=diagnostics,
                pass_fds=(filter_fd, status_write, gate_read),
                cwd="/",
                env=self._environment(),
                # As root, user id 0 of the namespace would still be the host's root: files of mode 0600 were readable.
                user=NOBODY if root else None,
                group=NOBODY if root else None,
                extra_groups=[] if root else None,
                start_new_session=True,
            )
            self._process = process
        finally:
            for fd in (status_write, gate_read, filter_fd):
                os.close(fd)
        try:
            self._pid_one = _child_pid(status_read)
            if self._pid_one is not None and self._cgroup is not None:
                self._cgroup.add(self._pid_one)
        finally:
            os.close(status_read)
            os.close(gate_write)
        if self._pid_one is None:
            process.wait(STOP_TIMEOUT_S)
            diagnostics.seek(0)
            said = diagnostics.read().decode("utf-8", "replace").strip()
            raise _explain(said)
        return process

    def _environment(self) -> dict[str, str]:
        path = f"{self._options.python.parent}:/usr/local/bin:/usr/bin:/bin"
        return {
            "PATH": path,
            "HOME": HOME,
            "LANG": "C.UTF-8",
            "MPLBACKEND": "Agg",
            "PIP_BREAK_SYSTEM_PACKAGES": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            **self._options.environment,
        }

    def _arguments(self) -> list[str]:
        options, limits = self._options, self._options.limits
        arguments = [
            "--unshare-all",
            "--unshare-user",
            "--disable-userns",
            "--cap-drop",
            "ALL",
            "--as-pid-1",
            "--new-session",
        ]
        arguments += ["--hostname", "sandbox", "--uid", str(NOBODY), "--gid", str(NOBODY)]
        arguments += ["--ro-bind", "/usr", "/usr"]
        for name in SYSTEM:
            arguments += _system_folder(name)
        for name in ETC:
            arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        for folder in _python_folders(options.python) + list(options.readable):
            if not folder.is_relative_to("/usr"):
                arguments += ["--ro-bind", str(folder), str(folder)]
        arguments += ["--proc", "/proc", "--dev", "/dev"]
        arguments += ["--size", str(SHM_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
        arguments += ["--size", str(parse_size(limits.tmp)), "--tmpfs", "/tmp"]  # noqa: S108
        if options.bind_dir is not None:
            arguments += ["--bind", str(options.bind_dir), WORKSPACE]
        else:
            arguments += ["--size", str(parse_size(limits.workspace)), "--tmpfs", WORKSPACE]
        if self._cgroup is not None:
            arguments += self._cgroup.counter_mount()
        return [*arguments, "--remount-ro", "/", "--chdir", WORKSPACE]

    def kill(self) -> None:
        """End PID 1 of the namespaces, and with it every process in them."""
        process = self._process
        if process is None:
            return
        try:
            # Having read the end of its stream, it is nearly always gone by now.
            process.wait(0.5)
        except subprocess.TimeoutExpired:
            for pid in (self._pid_one, process.pid):
                with contextlib.suppress(ProcessLookupError, TypeError):
                    os.kill(pid, 9)  # type: ignore[arg-type]
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)

    def close(self) -> None:
        """Remove the cgroup."""
        cgroup, self._cgroup = self._cgroup, None
        if cgroup is not None:
            cgroup.remove()


def find_bubblewrap() -> str:
    """Find the `bwrap` command.

    Raises:
        SandboxUnavailable: It is not installed, or this is not Linux.
    """
    if sys.platform != "linux":
        raise SandboxUnavailable("bubblewrap runs on Linux only: install Docker, or run this in WSL 2")
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxUnavailable(
            "bubblewrap is not installed: apt-get install bubblewrap (or your system's package of that name)"
        )
    return found


def find_python(asked: str | None) -> Path:
    """Find the interpreter for the sandbox: the one asked for, else the running one if the sandbox's user can reach it.

    Args:
        asked: Path of an interpreter, or None.

    Raises:
        SandboxUnavailable: There is none.
    """
    candidates = [asked] if asked is not None else [sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"]
    for candidate in filter(None, candidates):
        path = Path(candidate)
        if path.is_file() and _reachable(path.resolve()) and _reachable(path):
            return path
    wanted = asked if asked is not None else "python3"
    raise SandboxUnavailable(
        f"the sandbox's user can't run {wanted}: install python3, or pass python= with another one"
    )


def _reachable(path: Path) -> bool:
    """Whether an unprivileged user of this machine can read what is there."""
    if os.geteuid() != 0:
        return os.access(path, os.X_OK)
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


def _python_folders(python: Path) -> list[Path]:
    """The folders outside /usr that an interpreter needs: its installation, and its virtual environment if it has one."""
    folders = [python.resolve().parents[1]]
    environment = python.parent.parent
    if (environment / "pyvenv.cfg").is_file():
        folders.append(environment)
    return folders


def _system_folder(name: str) -> list[str]:
    path = Path("/", name)
    if path.is_symlink():
        return ["--symlink", os.readlink(path), str(path)]
    return ["--ro-bind-try", str(path), str(path)]


def _readable_file(content: bytes) -> int:
    """A descriptor to read the content from; it has no name, so nobody else can write to it."""
    fd = os.memfd_create("codeact-seccomp")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _child_pid(fd: int) -> int | None:
    """Read from bubblewrap's status which process it has started; None where it has given up."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(fd, 1)
        if not piece:
            return None
        line += piece
    return int(json.loads(line)["child-pid"])


def _explain(said: str) -> SandboxStartError | SandboxUnavailable:
    """Turn bubblewrap's complaint into a sentence that says what to do."""
    lowered = said.lower()
    if any(word in lowered for word in ("namespace", "uid map", "operation not permitted", "permission denied")):
        return SandboxUnavailable(
            f"this machine does not let bubblewrap make namespaces ({said}): allow unprivileged user namespaces "
            "(sysctl kernel.unprivileged_userns_clone=1, or the AppArmor setting of your distribution), or use Docker"
        )
    return SandboxStartError(f"bubblewrap did not start: {said}")
