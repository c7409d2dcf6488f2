"""Starting a runner in bubblewrap namespaces, without a daemon."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Hashable, Mapping
from functools import cache
from pathlib import Path

from codeact_sandbox.backends.bubblewrap.cgroups import Cgroup
from codeact_sandbox.backends.bubblewrap.interpreter import find_interpreter, host_user
from codeact_sandbox.backends.bubblewrap.mounts import (
    ETC_FILES,
    NOBODY,
    proc_arguments,
    shown_arguments,
    system_arguments,
)
from codeact_sandbox.backends.bubblewrap.stream import Diagnostics, InheritedFiles, PipeStream
from codeact_sandbox.backends.seccomp import bpf_program
from codeact_sandbox.files.data import data_sources
from codeact_sandbox.types.errors import SandboxStartError, SandboxUnavailable
from codeact_sandbox.types.limits import Limits, parse_size
from codeact_sandbox.types.options import BubblewrapOptions
from codeact_sandbox.types.paths import ENVIRONMENT, PACKAGES, WORKSPACE
from codeact_sandbox.types.protected_names import ProtectedNames

logger = logging.getLogger("codeact_sandbox")

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 5.0
# At the end of its stream it nearly always ends within this time.
GRACE_S = 0.5
MOUNT_FAILED = 97
TOOLS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
REFUSALS = (
    "namespace",
    "uid map",
    "gid map",
    "operation not permitted",
    "permission denied",
    "setgroups",
    "no space left",
)
ISOLATION = ("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL")
# The writable folders and their modes. They are mounted below /dev/pts, where no user's files are, in a mount namespace of
# its own and not by bwrap, whose tmpfs have no limit on the number of files. All in one call, because each takes milliseconds.
WRITABLE = {"tmp": "1777", "packages": "1777", "shm": "1777", "workspace": "0755"}
MOUNT_SCRIPT = f"""\
mount --all --fstab "/proc/self/fd/$1" || exit {MOUNT_FAILED}
shift && exec "$@"
"""


class _NoMountsError(Exception):
    """Folders with a limited number of files can't be mounted on this machine."""


class _EndedError(Exception):
    """bwrap has ended before the runner was started."""


class BubblewrapLauncher:
    def __init__(self, options: BubblewrapOptions, name: str, limits: Limits) -> None:
        self._options = options
        self._name = name
        self._limits = limits
        self._bind_dir = Path(options.bind_dir).resolve() if options.bind_dir is not None else None
        self._user = host_user(self._bind_dir)
        self.python: Hashable | None = None  # the path of its interpreter and the file that is there now
        self._process: subprocess.Popen[bytes] | None = None
        self._pid_one: int | None = None
        self._status: int | None = None
        self._cgroup: Cgroup | None = None

    @property
    def engine(self) -> str:
        return "bubblewrap"

    def launch(self, boot: str) -> PipeStream:
        bwrap = find_bubblewrap()
        python = find_interpreter(self._options.python, self._user)
        if python.note:
            _warn_once(python.note)
        with contextlib.suppress(OSError):  # without it nothing is kept
            self.python = ("bubblewrap", python.identity())
        shown = shown_arguments([python.path, *python.folders, *map(Path, self._options.readable)])
        for target, source in data_sources(self._options).items():
            shown += ["--ro-bind", str(source), target]
        self._cgroup = Cgroup.create(self._name, self._limits)
        _warn_of_missing_limits(self._cgroup)
        command = [bwrap, "--", str(python.path), "-I", "-S", "-c", boot]
        environment = _environment_arguments(python.path)
        try:
            try:
                return self._spawn(command, [*self._arguments(shown, mounted=True), *environment], mounted=True)
            except _NoMountsError as error:
                stream = self._spawn(command, [*self._arguments(shown, mounted=False), *environment], mounted=False)
                _warn_once(f"the number of files in a bubblewrap sandbox is not bounded on this machine ({error})")
                return stream
        except BaseException:
            self.close()
            raise

    def _spawn(self, command: list[str], arguments: list[str], *, mounted: bool) -> PipeStream:
        diagnostics = Diagnostics()
        try:
            with InheritedFiles() as inherited:
                self._start(command, arguments, inherited, diagnostics, mounted=mounted)
        except BaseException as error:
            self._kill_now()
            output = diagnostics.text()
            diagnostics.close()
            self._close_all()
            if isinstance(error, _EndedError):
                raise self._reason(output, mounted=mounted) from None
            if isinstance(error, OSError):
                raise SandboxStartError(f"bubblewrap could not be started: {error}") from error
            raise
        assert self._process is not None
        return PipeStream(self._process, diagnostics)

    def _start(
        self,
        command: list[str],
        arguments: list[str],
        inherited: InheritedFiles,
        diagnostics: Diagnostics,
        *,
        mounted: bool,
    ) -> None:
        # It stays open as long as bwrap may write to it: at its end bwrap writes how PID 1 has ended.
        self._status, status_write = inherited.pipe_from_child()
        gate, gate_read = inherited.gate()
        every: list[str] = []
        for name, content in ETC_FILES.items():
            every += ["--perms", "0644", "--file", str(inherited.file(content.encode())), f"/etc/{name}"]
        every += [*arguments, "--seccomp", str(inherited.file(bpf_program()))]
        every += ["--json-status-fd", str(status_write), "--block-fd", str(gate_read)]
        # Not on the command line, which every user of this machine can read.
        listed = inherited.file(b"".join(os.fsencode(part) + b"\0" for part in every))
        prefix = self._mount_command(inherited) if mounted else []
        self._process = subprocess.Popen(
            [*prefix, command[0], "--args", str(listed), *command[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            stderr=diagnostics.write_fd,
            pass_fds=inherited.fds,
            cwd="/",
            env={"PATH": TOOLS, "LANG": "C"},
            start_new_session=True,
            **self._user.popen_options(),
        )
        inherited.close_child_ends()
        diagnostics.close_write_end()
        until = time.monotonic() + START_TIMEOUT_S
        pid = _child_pid(self._status, until)
        try:
            self._pid_one = os.pidfd_open(pid)
            if self._cgroup is not None:
                self._cgroup.add(pid)
            os.write(gate, b"g")
        except (ProcessLookupError, BrokenPipeError):
            raise _EndedError from None
        # When it reads this, bwrap has set up everything and starts the runner.
        ended = os.pidfd_open(self._process.pid)
        try:
            ready = _ready({gate: select.POLLOUT, ended: select.POLLIN}, until)
        finally:
            os.close(ended)
        if not ready.get(gate, 0) & select.POLLOUT:
            raise _EndedError

    def _reason(self, output: str, *, mounted: bool) -> Exception:
        process = self._process
        if mounted and process is not None and (process.returncode == MOUNT_FAILED or output.startswith("unshare: ")):
            return _NoMountsError(output)
        return explain(output)

    def _sizes(self) -> dict[str, int]:
        limits = self._limits
        tmp = parse_size(limits.tmp)
        return {"tmp": tmp, "packages": tmp, "shm": limits.shm_bytes, "workspace": parse_size(limits.workspace)}

    def _mount_command(self, inherited: InheritedFiles) -> list[str]:
        """Return the command that mounts the writable folders, with a limited number of files, and then becomes bwrap."""
        tools = [shutil.which(name, path=TOOLS) for name in ("unshare", "sh", "mount")]
        if None in tools:
            raise _NoMountsError("unshare, sh and mount are needed")
        lines = ["codeact /dev/pts tmpfs size=64k,mode=0755 0 0\n"]
        for name, size in self._sizes().items():
            options = f"nosuid,nodev,size={size},nr_inodes={self._limits.files},mode={WRITABLE[name]},X-mount.mkdir"
            lines.append(f"codeact /dev/pts/{name} tmpfs {options} 0 0\n")
        unshare = [str(tools[0]), "--user", "--map-root-user", "--mount", "--propagation", "private"]
        fstab = inherited.file("".join(lines).encode())
        return [*unshare, "--", str(tools[1]), "-c", MOUNT_SCRIPT, "sh", str(fstab)]

    def _arguments(self, shown: list[str], *, mounted: bool) -> list[str]:
        sizes, bind_dir = self._sizes(), self._bind_dir
        groups = self._cgroup.folders if self._cgroup is not None else {}

        def writable(name: str, path: str) -> list[str]:
            if mounted:
                return ["--bind", f"/dev/pts/{name}", path]
            return ["--perms", WRITABLE[name], "--size", str(sizes[name]), "--tmpfs", path]

        return [
            *(*ISOLATION, "--as-pid-1", "--new-session"),
            *("--hostname", "sandbox", "--uid", str(NOBODY), "--gid", str(NOBODY)),
            *system_arguments(),
            *proc_arguments(),
            *(*writable("shm", "/dev/shm"), "--mqueue", "/dev/mqueue", "--remount-ro", "/dev"),  # noqa: S108 - a path in the sandbox
            *writable("tmp", "/tmp"),  # noqa: S108 - as above
            *writable("packages", PACKAGES),
            *shown,
            *(["--bind", str(bind_dir), WORKSPACE] if bind_dir is not None else writable("workspace", WORKSPACE)),
            *self._read_only(),
            # The group's own limits and counters.
            *(part for path, folder in groups.items() for part in ("--ro-bind", str(folder), path)),
            *("--remount-ro", "/", "--chdir", WORKSPACE),
        ]

    def _read_only(self) -> list[str]:
        folder = self._bind_dir
        names = ProtectedNames(self._options.write_back).existing(folder) if folder is not None else []
        return [part for name in names for part in ("--ro-bind-try", f"{folder}/{name}", f"{WORKSPACE}/{name}")]

    def cancel(self) -> None:
        """Do nothing: no start takes long."""

    def kill(self) -> None:
        """End PID 1 of the namespaces, and with it every process in them."""
        if self._process is None:
            return
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._kill_now()

    def _kill_now(self) -> None:
        process = self._process
        if process is None:
            return
        # First PID 1, which bwrap waits for.
        for end, timeout in ((self._kill_pid_one, GRACE_S), (process.kill, STOP_TIMEOUT_S)):
            if process.poll() is None:
                end()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout)
        if process.poll() is None:
            logger.warning("the process %d of the sandbox %s can't be ended", process.pid, self._name)

    def _kill_pid_one(self) -> None:
        if self._pid_one is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pid_one, signal.SIGKILL)

    def close(self) -> None:
        cgroup, self._cgroup = self._cgroup, None
        if cgroup is not None:
            cgroup.remove()
        self._close_all()

    def _close_all(self) -> None:
        """Close the descriptors, after a failed start also those that a stream would have closed."""
        fds, self._pid_one, self._status = (self._pid_one, self._status), None, None
        for fd in fds:
            if fd is not None:
                os.close(fd)
        for pipe in (self._process.stdin, self._process.stdout) if self._process is not None else ():
            if pipe is not None:
                pipe.close()


def find_bubblewrap() -> str:
    if sys.platform != "linux":
        raise SandboxUnavailable("bubblewrap runs on Linux only: install Docker, or run this in WSL 2")
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxUnavailable(
            "bubblewrap is not installed: apt-get install bubblewrap (or your system's package of that name)"
        )
    return found


def check_bubblewrap() -> None:
    """Check that bubblewrap can make a sandbox on this machine; takes some milliseconds."""
    user = host_user()
    command = [find_bubblewrap(), *ISOLATION, *system_arguments(), *proc_arguments(), "/bin/sh", "-c", ":"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=START_TIMEOUT_S,
            check=False,
            cwd="/",
            env={"PATH": TOOLS, "LANG": "C"},
            **user.popen_options(),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxUnavailable(f"bubblewrap does not run here: {error}") from error
    if done.returncode != 0:
        raise SandboxUnavailable(str(explain(done.stderr.decode("utf-8", "replace").strip())))


def explain(output: str) -> SandboxStartError | SandboxUnavailable:
    lowered = output.lower()
    if "can't find source path" in lowered or "execvp" in lowered:
        return SandboxStartError(
            f"bubblewrap did not start ({output}): the sandbox's user must be able to reach this path, and every folder above "
            "it; change its permissions, or leave it out of data=, readable=, bind_dir= or python="
        )
    if "unknown option" in lowered:
        return SandboxUnavailable(
            f"this bubblewrap is too old ({output}): version 0.8 or later is needed, or use Docker"
        )
    if any(text in lowered for text in REFUSALS):
        return SandboxUnavailable(
            f"this machine does not let bubblewrap make a sandbox ({output}): allow unprivileged user namespaces (sysctl "
            "kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, or the AppArmor setting of your "
            "distribution); a container must allow them too; or use Docker"
        )
    return SandboxStartError(
        f"bubblewrap did not start: {output or 'it printed no reason; run `codeact-sandbox doctor`'}"
    )


def _environment_arguments(python: Path) -> list[str]:
    """Return the environment of every process in the sandbox, without variables of the host or the user."""
    variables = {**ENVIRONMENT, "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin", "MPLBACKEND": "Agg"}
    return ["--clearenv", *(part for name, value in variables.items() for part in ("--setenv", name, value))]


def _ready(events: Mapping[int, int], until: float) -> dict[int, int]:
    waiting = select.poll()
    for fd, event in events.items():
        waiting.register(fd, event)
    return dict(waiting.poll(max(0.0, until - time.monotonic()) * 1000))


def _child_pid(fd: int, until: float) -> int:
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(fd, 1) if _ready({fd: select.POLLIN}, until) else b""
        if not piece:
            raise _EndedError
        line += piece
    return int(json.loads(line)["child-pid"])


def _warn_of_missing_limits(cgroup: Cgroup | None) -> None:
    if cgroup is None:
        _warn_once(
            "this process may make no control group: memory is bounded for each process of a bubblewrap sandbox, not for "
            "all together, and the use of the processor is not bounded"
        )
    elif cgroup.unlimited:
        _warn_once(f"there is no control group for {' and '.join(cgroup.unlimited)}: bubblewrap sandboxes go without")


@cache
def _warn_once(text: str) -> None:
    logger.warning("%s", text)
