"""Start Python programs as real processes, without each one importing AutoGen, typer and the Docker SDK again.

These imports take most of a second of processor time, and hundreds of tests start a program. `tests/fork_server.py` imports
them once and forks a process for each program: with its own number, standard streams, environment, folder, signals and exit
status. What can't be changed after the start of an interpreter (its options, the encoding, variables that imported modules have
read) makes a new interpreter necessary, and gets one.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import IO, TextIO

from tests.environment import PROXIES, is_removed

SERVER = Path(__file__).with_name("fork_server.py")
READ_LATE = {
    *("CODEACT_RUNS_SIZE", "COLUMNS", "DOCKER_HOST", "MY_KEY", "PATH", "TERM", "TMPDIR", "XDG_STATE_HOME"),
    *("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "LLAMA_API_KEY", "OLLAMA_API_KEY", "OPENAI_API_KEY"),
    *("ANTHROPIC_BASE_URL", "OLLAMA_HOST", "OPENAI_BASE_URL"),
    *("PYTEST_CURRENT_TEST", "PYTEST_VERSION", "PYTHONBREAKPOINT"),
    *("SSL_CERT_DIR", "SSL_CERT_FILE"),
    *PROXIES,
    *map(str.upper, PROXIES),
}
"""Variables that no module reads while it is imported."""
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in READ_LATE and name[:4] != "RAY_" and not is_removed(name)
}
"""The servers' environment, without what a test sets for itself."""


class Forked:
    """A running process of the fork server, with the methods of `subprocess.Popen`.

    Args:
        pid: Its number.
        status: Where the server writes its exit status.
        stdin: Where its input is written, if it has one.
        stdout: Where its output is read, if it is not written elsewhere.
        stderr: The same for its errors.
    """

    def __init__(
        self, pid: int, status: socket.socket, stdin: TextIO | None, stdout: TextIO | None, stderr: TextIO | None
    ) -> None:
        self.pid = pid
        self._status = status
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit status, which is -N after the signal N."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired([f"process {self.pid}"], timeout or 0)
            self.returncode = int(self._status.recv(64))
            self._status.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Send a signal to the process if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, text: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """Write the input, read output and errors to their end, and wait for the process."""
        deadline = None if timeout is None else time.monotonic() + timeout
        read: dict[str, str] = {}
        work = [Thread(target=self._feed, args=(text or "",), daemon=True)]
        streams = [(name, stream) for name, stream in (("stdout", self.stdout), ("stderr", self.stderr)) if stream]
        work += [Thread(target=_read, args=(stream, name, read), daemon=True) for name, stream in streams]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join(None if deadline is None else max(0, deadline - time.monotonic()))
            if thread.is_alive():
                raise subprocess.TimeoutExpired([f"process {self.pid}"], timeout or 0)
        self.wait(None if deadline is None else max(0, deadline - time.monotonic()))
        return read.get("stdout", ""), read.get("stderr", "")

    def _feed(self, text: str) -> None:
        if self.stdin:
            with suppress(BrokenPipeError), self.stdin:  # it may end without reading it
                self.stdin.write(text)

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr, self.stdin):
            if stream:
                with suppress(BrokenPipeError):
                    stream.close()
        self.wait()


Process = Forked | subprocess.Popen[str]


def _read(stream: TextIO, name: str, read: dict[str, str]) -> None:
    with stream:
        read[name] = stream.read()


class Server:
    """A process that has imported our dependencies, and forks.

    Args:
        options: Options of its interpreter.
        environment: What it may read while it imports.
    """

    def __init__(self, options: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *options, str(SERVER), str(theirs.fileno())],
                # Python asks at its start whether these can seek; the programs' pipes and terminals can't.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                pass_fds=[theirs.fileno()],
                env=environment,
            )
        atexit.register(self.stop)

    def stop(self) -> str:
        """End it, and return what it has complained of."""
        atexit.unregister(self.stop)
        self._requests.close()
        try:
            return self._process.communicate(timeout=10)[1]
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.communicate()[1]

    def fork(self, request: dict[str, object], streams: list[int]) -> tuple[int, socket.socket]:
        """Have it fork a process.

        Args:
            request: What `become` in `fork_server.py` reads.
            streams: The standard streams of the process.

        Returns:
            The process's number, and the socket where its exit status will arrive.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                socket.send_fds(self._requests, [json.dumps(request).encode()], [*streams, theirs.fileno()])
            pid = ours.recv(64)
        except OSError:
            pid = b""
        if not pid:
            ours.close()
        assert pid, f"the fork server has failed: {self.stop()}"
        return int(pid), ours


_servers: dict[tuple[str, ...], Server] = {}
_starting = Lock()


def stop_servers() -> None:
    """End all fork servers: tests of other modules look for processes that are left behind."""
    while _servers:
        _servers.popitem()[1].stop()


def start(
    arguments: list[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    options: tuple[str, ...] = (),
    stdin: int = subprocess.PIPE,
    stdout: int = subprocess.PIPE,
    new_interpreter: bool = False,
) -> Process:
    """Start a Python program and leave it running.

    Args:
        arguments: A program's path, or `-c` and its text; then its arguments.
        env: Its environment.
        cwd: Its folder; None: the current one.
        options: Options of the interpreter.
        stdin: `PIPE` or `DEVNULL`.
        stdout: `PIPE`, or a terminal's file descriptor for output and errors.
        new_interpreter: Start a new interpreter in any case.
    """
    if new_interpreter or _early(env) != ENVIRONMENT:
        return subprocess.Popen(
            [sys.executable, *options, *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE if stdout == subprocess.PIPE else subprocess.STDOUT,
            text=True,
            env=env,
            cwd=cwd,
        )
    with _starting:
        if (server := _servers.get(options)) is None:
            server = _servers[options] = Server(options, ENVIRONMENT)
    return _fork(server, arguments, dict(env), str(cwd or Path.cwd()), stdin, stdout)


def run(
    arguments: list[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    options: tuple[str, ...] = (),
    text: str = "",
    timeout: float = 100,
    new_interpreter: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end, and kill it after `timeout` seconds; the other arguments are those of `start`."""
    process = start(arguments, env=env, cwd=cwd, options=options, new_interpreter=new_interpreter)
    with process:
        try:
            out, err = process.communicate(text, timeout=timeout)
        finally:
            process.kill()
    assert process.returncode is not None
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    # The fork servers don't import Ray.
    return {name: value for name, value in environment.items() if name not in READ_LATE and name[:4] != "RAY_"}


def _fork(server: Server, arguments: list[str], env: dict[str, str], folder: str, stdin: int, stdout: int) -> Forked:
    theirs: list[int] = []
    ours: list[IO[str] | None] = [None, None, None]

    def pipe(number: int) -> None:
        reading, writing = os.pipe()
        theirs.append(writing if number else reading)
        ours[number] = open(reading) if number else open(writing, "w")  # noqa: SIM115 - as Popen's streams

    if stdin == subprocess.PIPE:
        pipe(0)
    else:
        theirs.append(os.open(os.devnull, os.O_RDONLY))
    if stdout == subprocess.PIPE:
        pipe(1)
        pipe(2)
    else:
        theirs += [os.dup(stdout), os.dup(stdout)]
    try:
        pid, status = server.fork({"arguments": arguments, "environment": env, "folder": folder}, theirs)
    finally:
        for each in theirs:
            os.close(each)
    return Forked(pid, status, *ours)
