"""A Docker engine of its own for tests that end it: in a network namespace, with a data folder and a socket of its own."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import docker.errors
import pytest

from autogen_codeact.executors import SandboxError
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.launcher import LOCALHOST_LABEL
from codeact_sandbox.types.options import DEFAULT_IMAGE

from .faults import processes_named
from .oracles import MEMORY_DISK
from .small_image import small_image

START_TIMEOUT_S = 120.0
"""A busy machine takes long to start an engine."""
END_TIMEOUT_S = 60.0
DISK = "600m"


def unavailable(reason: str) -> NoReturn:
    """Skip a test that needs an engine of its own, or fail it with REQUIRE_ENGINES=1."""
    if os.environ.get("REQUIRE_ENGINES") == "1":
        pytest.fail(f"REQUIRE_ENGINES=1, but {reason}")
    pytest.skip(reason)


class SecondEngine:
    """An engine that can be started and ended; the path of its folder must be short, for the socket's sake."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix://{folder}/s"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, live_restore: bool = False) -> None:
        """Start it and wait until it answers."""
        name = self.folder.name.encode().hex()  # a namespace may not end with an underscore
        own = {
            "host": self.address,
            "data-root": self.folder / "data",
            "exec-root": self.folder / "run",
            "pidfile": self.folder / "pid",
            "bridge": "none",
            "iptables": "false",
            "containerd-namespace": f"codeact-{name}",
            "containerd-plugins-namespace": f"codeact-plugins-{name}",
            "live-restore": str(live_restore).lower(),
        }
        # In this machine's network it would take the bridge of the other one away.
        command = ["unshare", "--net", "dockerd", *(f"--{name}={value}" for name, value in own.items())]
        with Path(self.folder, "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                connect(self.address, timeout=2).close()
            except SandboxError as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    said = Path(self.folder, "log").read_text(errors="replace")[-500:]
                    unavailable(f"no second Docker engine can be had here: {error} It said: {said}")
            else:
                return
            time.sleep(0.1)

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it with a signal; its containers may live on."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(END_TIMEOUT_S)
            self._process = None
            # The next one would take a containerd that is about to die for one that it can use.
            until = time.monotonic() + END_TIMEOUT_S
            while processes_named(f"{self.folder}/run/containerd/containerd.toml") and time.monotonic() < until:
                time.sleep(0.05)
            # Or one that is dead, where nobody reaps it.
            Path(self.folder, "run/containerd/containerd.pid").unlink(missing_ok=True)

    @property
    def running(self) -> bool:
        """Whether it has been started and not been ended."""
        return self._process is not None

    def import_image(self, files: bytes, image: str) -> None:
        """Give it an image."""
        repository, _, tag = image.partition(":")
        with closing(connect(self.address)) as client:
            label = f"LABEL {LOCALHOST_LABEL}=myhostname"
            client.import_image_from_data(files, repository=repository, tag=tag, changes=[label])

    def containers(self) -> set[str]:
        """Names of its containers, in whatever state."""
        with closing(connect(self.address)) as api:
            # One that is being removed has lost its name already.
            return {
                (item["Names"] or [item["Id"]])[0].lstrip("/")
                for item in api.containers(all=True)
                if item["State"] != "dead" or _exists(api, item["Id"])
            }

    def clear(self) -> None:
        """End all of it and remove what it has on the disk."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.end()
        if self._process is not None:
            self._process.kill()
            self._process.wait(END_TIMEOUT_S)
            self._process = None
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in processes_named(str(self.folder)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            until = time.monotonic() + 5
            while processes_named(str(self.folder)) and time.monotonic() < until:
                time.sleep(0.05)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            place = line.split()[1]
            if Path(place).is_relative_to(self.folder):
                subprocess.run(["umount", "-l", place], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def _exists(api: Any, container: str) -> bool:
    """Whether an engine has a container that it lists; one that was killed in a removal can list it until its next start."""
    try:
        api.inspect_container(container)
    except docker.errors.NotFound:
        return False
    return True


def new_engine() -> SecondEngine:
    """Make one without images that does not run; the test is skipped where this machine can't have it."""
    missing = [name for name in ("dockerd", "unshare", "mount", "umount") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        unavailable(f"a second Docker engine needs root and dockerd (missing: {missing})")
    engine = SecondEngine(Path(tempfile.mkdtemp(prefix="e", dir="/tmp")))
    # In memory, because it takes minutes to remove an image's files from a disk that discards each of their blocks.
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0711", MEMORY_DISK, str(engine.folder)]
    subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
    return engine


def make_second_engine() -> SecondEngine:
    """Make one that does not run, with a small image under the name of the default one.

    The test is skipped where this machine can't have it.
    """
    engine = new_engine()
    try:
        engine.start()
        # Every Python will do, and to copy the default image would take ten seconds of processor time.
        engine.import_image(small_image(), DEFAULT_IMAGE)
        engine.end()
    except BaseException:
        engine.clear()
        raise
    return engine
