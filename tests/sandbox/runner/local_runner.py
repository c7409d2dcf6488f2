"""The runner as a process of this machine, PID 1 of a namespace of its own, spoken to over pipes: no container."""

import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from codeact_sandbox.host import protocol, runner_modules
from codeact_sandbox.host.protocol import RunnerSettings
from codeact_sandbox.runner.shared import wire
from codeact_sandbox.types.environment import interpreter_variables

DEADLINE_S = 30.0
NAMESPACES = ("unshare", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc")


def find_python(version: str) -> str | None:
    """An interpreter of that version, on the path or where pyenv puts it."""
    found = shutil.which(f"python{version}")
    if found and "shims" not in found:
        return found
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    return next((str(path) for path in sorted(root.glob(f"versions/{version}.*/bin/python{version}"))), None)


class LocalRunner:
    """A runner to which frames can be sent, well-formed or not."""

    def __init__(self, python: str, folder: Path, *, cgroup: Path | None = None, **config: Any) -> None:
        workspace = folder / "workspace"
        workspace.mkdir(parents=True, exist_ok=True)
        settings = RunnerSettings("process", str(workspace), (), 1 << 20, True, None)
        self.config = {**vars(settings), **config}
        self.modules = runner_modules.compiled_frame()
        """The frame with compiled modules that it gets."""
        self.compiled: bytes | None = None
        """The modules that it has compiled, or None."""
        self._parser = wire.Parser()
        self._frames: list[tuple[bytes, int, bytes]] = []
        self._ident = 0
        boot = runner_modules.boot(interpreter_variables(self.config["environment"]))
        show = [] if cgroup is None else ["sh", "-c", 'mount --bind "$0" /sys/fs/cgroup && exec "$@"', str(cgroup)]
        self._process = subprocess.Popen(
            [*NAMESPACES, *show, python, "-I", "-S", "-c", boot],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder / "home"), "LANG": "C.UTF-8"},
            cwd=workspace,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def greet(self) -> dict[str, Any]:
        """Start it; gives its first message."""
        self.send(self.modules + protocol.pack(b"C", 0, self.config))
        kind, _, payload = self.receive()
        if kind == b"B":
            self.send(runner_modules.sources_frame())
            kind, _, payload = self.receive()
            assert kind == b"M", payload
            self.compiled = payload
            kind, _, payload = self.receive()
        assert kind == b"H", payload
        return protocol.unpack(payload)[0]

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def receive(self) -> tuple[bytes, int, bytes]:
        """The next frame."""
        assert self._process.stdout is not None
        until = time.monotonic() + DEADLINE_S
        while not self._frames:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0, until - time.monotonic()))
            assert ready, "the runner says nothing"
            data = os.read(self._process.stdout.fileno(), 1 << 20)
            if not data:
                raise EOFError(self.end()[1])
            self._frames += self._parser.feed(data)
        return self._frames.pop(0)

    def end(self) -> tuple[int, str]:
        """Hang up; gives the exit code and the standard error."""
        _, said = self._process.communicate(timeout=DEADLINE_S)
        return self._process.returncode, said.decode()

    def request(self, kind: bytes, message: dict[str, Any], data: bytes = b"") -> tuple[dict[str, Any], bytes, bytes]:
        """Send a request; gives the answer's message, its bytes, and the output that came before it."""
        self._ident += 1
        self.send(protocol.pack(kind, self._ident, message, data))
        output = b""
        while True:
            got, ident, payload = self.receive()
            if got == b"!":
                raise AssertionError(protocol.unpack(payload)[0]["error"])
            if ident != self._ident or got == b"V":
                continue
            if got in (b"O", b"E"):
                output += payload
                continue
            return (*protocol.unpack(payload), output)

    def run(self, code: str, *, timeout: float = 10, **request: Any) -> tuple[dict[str, Any], str]:
        """Run a block; gives the result's message and the output."""
        path = str(Path(self.config["workspace"]) / "block.py") if self.config["mode"] == "process" else None
        message = {"path": path, "command": None, "timeout": timeout, "scan": True, **request}
        result, _, output = self.request(b"X", message, code.encode())
        return result, output.decode()
