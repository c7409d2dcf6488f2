"""llama.cpp's server in a child process: started at the first use, shared, and started again after a crash."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

START_TIMEOUT_S = 600.0  # A model of many gigabytes on a slow disk takes minutes
_SLOW_START_S = 2.0
_SERVE = Path(__file__).with_name("serve.py")
_servers_lock = threading.Lock()


class LocalModelError(Exception):
    """A local model can't be fetched or loaded."""


@dataclass(frozen=True)
class Address:
    """Where a server listens, the key that it wants, and how many tokens a request and its answer may have."""

    url: str
    key: str
    context: int


class ModelServer:
    """A server of one model."""

    def __init__(self, path: Path, context: int) -> None:
        self.path = path
        self.context = context
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._address = Address("", "", context)

    @property
    def pid(self) -> int | None:
        """The process that runs now, or None."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def address(self, tell: Callable[[str], None]) -> Address:
        """Return where the server listens; start it if it does not run. This blocks."""
        with self._lock:
            if self.pid is None:
                self._start(tell)
            return self._address

    def has_ended(self) -> bool:
        """Return whether the process has ended; it is asked after a connection broke. This blocks for up to a second."""
        process = self._process
        with contextlib.suppress(subprocess.TimeoutExpired):
            if process is not None:
                process.wait(1)
        return self.pid is None

    def stop(self) -> None:
        """End the server."""
        with self._lock:
            self._end()

    def _start(self, tell: Callable[[str], None]) -> None:
        self._end()
        check_installed()
        check_file(self.path)
        key = secrets.token_urlsafe(32)
        settings = {"path": str(self.path), "name": self.path.stem, "context": self.context, "key": key}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - read if the child ends
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_SERVE)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for the program, which ends it
        )
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{json.dumps(settings)}\n".encode())
            self._process.stdin.flush()
            self._address = Address(**json.loads(self._first_line(self._process, tell)))
        except BaseException as error:
            reason = self._end()
            if isinstance(error, OSError | ValueError | TypeError):
                raise LocalModelError(f"the model {self.path.name} can't be loaded: {reason}") from None
            raise

    def _first_line(self, process: subprocess.Popen[bytes], tell: Callable[[str], None]) -> bytes:
        assert process.stdout is not None
        began, told, line = time.monotonic(), False, b""
        while not line.endswith(b"\n"):
            if select.select([process.stdout], [], [], 0.1)[0]:
                if not (piece := os.read(process.stdout.fileno(), 4096)):
                    raise BrokenPipeError
                line += piece
            waited = time.monotonic() - began
            if waited > START_TIMEOUT_S:
                raise LocalModelError(f"the model {self.path.name} was not loaded within {START_TIMEOUT_S:g} s")
            if waited > _SLOW_START_S and not told:
                told = True
                tell(f"Loading the model {self.path.name} ({self.path.stat().st_size / 1e9:.1f} GB) …")
        return line

    def _end(self) -> str:
        """Kill the process and close what belongs to it; return the last line that it wrote."""
        process, errors, self._process, self._errors = self._process, self._errors, None, None
        if process is None or errors is None:
            return ""
        process.kill()
        process.wait()
        for file in (process.stdin, process.stdout):
            if file is not None:
                file.close()
        errors.seek(0, 2)
        errors.seek(max(0, errors.tell() - 4096))
        lines = errors.read().decode(errors="replace").strip().splitlines()
        errors.close()
        return lines[-1][:300] if lines else f"its process ended with status {process.returncode}"


def check_file(path: Path) -> None:
    """Raise `LocalModelError` if a file is missing or is no GGUF file."""
    if not path.is_file():
        raise LocalModelError(
            f"{path} is a folder: name a GGUF file in it" if path.is_dir() else f"there is no file {path}"
        )
    try:
        with path.open("rb") as file:
            begins = file.read(4)
    except OSError as error:
        raise LocalModelError(f"{path} can't be read: {error.strerror}") from None
    if begins != b"GGUF":
        raise LocalModelError(f"{path} is no GGUF file: its first four bytes are not GGUF")


def check_installed() -> None:
    """Raise `LocalModelError` if llama.cpp is not installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise LocalModelError("Local models need the package xllamacpp: pip install 'autogen-codeact[local]'")


_servers: dict[tuple[Path, int], ModelServer] = {}


def server_of(path: Path, context: int) -> ModelServer:
    """Return the server of a model; all clients of this process share it."""
    with _servers_lock:
        return _servers.setdefault((path.resolve(), context), ModelServer(path.resolve(), context))
