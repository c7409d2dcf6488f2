"""Start Python programs as real processes, without each one importing AutoGen, typer and the Docker SDK again.

These imports take most of a second of processor time, and hundreds of tests start a program. `tests/fork_server.py` imports
them once for all test workers and forks a process for each program: with its own number, standard streams, environment, folder,
filters of warnings, signals and exit status. What can't be changed after the start of an interpreter (its other options, the
encoding, variables that imported modules have read) makes a new interpreter necessary, and gets one.
"""

from __future__ import annotations

import errno
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
from threading import Thread
from typing import IO, TextIO

from tests.environment import PROXIES, is_removed

SERVER = Path(__file__).with_name("fork_server.py")
READ_LATE = {
    *("CODEACT_RUNS_SIZE", "COLUMNS", "DOCKER_HOST", "PATH", "TERM", "TMPDIR", "XDG_STATE_HOME"),
    *("MY_KEY", "MY_SETTING"),
    *("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "LLAMA_API_KEY", "OLLAMA_API_KEY", "OPENAI_API_KEY"),
    "BROWSER",
    *("ANTHROPIC_BASE_URL", "OLLAMA_HOST", "OPENAI_BASE_URL"),
    *("FROM_HERE", "PIP_CONFIG_FILE", "PIP_FIND_LINKS", "PIP_NO_INDEX"),
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
"""The server's environment, without what a test sets for itself."""
OWNER = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
"""The process that runs the tests or, if several do, has started them. The server is theirs together, and ends with it."""
ADDRESS = f"\0codeact-tests-fork-server-{OWNER}"
"""Where the server listens: a name without a file."""
START_S = 60
"""Seconds that its imports may take on a busy machine."""


class Forked:
    """A running process of the fork server, with the methods of `subprocess.Popen`."""

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


def start_server(address: str, environment: Mapping[str, str]) -> None:
    """Start a process that has imported our dependencies, and forks; do nothing if another worker has started it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return
            raise
        listener.listen(1000)
        # It leaves the server running when it ends.
        done = subprocess.run(
            [sys.executable, "-W", "error", str(SERVER), str(listener.fileno()), str(OWNER)],
            # Python asks at its start whether these can seek; the programs' pipes and terminals can't.
            input="",
            capture_output=True,
            text=True,
            pass_fds=[listener.fileno()],
            env=environment,
            timeout=START_S,
            check=False,
        )
    assert done.returncode == 0, f"the fork server has failed: {done.stderr}"


def address() -> str:
    """Return where the server listens; it is started if there is none."""
    _connect().close()
    return ADDRESS


def _connect() -> socket.socket:
    """Connect with the server, which is started if there is none."""
    until = time.monotonic() + START_S
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(ADDRESS)
        except ConnectionRefusedError:
            connection.close()
            assert time.monotonic() < until, "the fork server does not listen"
            start_server(ADDRESS, ENVIRONMENT)
            time.sleep(0.01)  # another worker has its address, but does not listen yet
        else:
            return connection


def _request(request: dict[str, object], streams: list[int]) -> tuple[int, socket.socket]:
    """Have the server fork a process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with _connect() as connection, theirs:
        socket.send_fds(connection, [json.dumps(request).encode()], [*streams, theirs.fileno()])
    ours.settimeout(START_S)
    pid = ours.recv(64)
    if not pid:
        ours.close()
    assert pid, "the fork server has ended"
    return int(pid), ours


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
    """Start a Python program and leave it running."""
    warnings = options[1::2] if set(options[::2]) <= {"-W"} else None
    if new_interpreter or warnings is None or _early(env) != ENVIRONMENT:
        return subprocess.Popen(
            [sys.executable, *options, *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE if stdout == subprocess.PIPE else subprocess.STDOUT,
            text=True,
            env=env,
            cwd=cwd,
        )
    request = {"arguments": arguments, "environment": dict(env), "folder": str(cwd or Path.cwd()), "warnings": warnings}
    return _fork(request, stdin, stdout)


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
    # The fork server doesn't import Ray.
    return {name: value for name, value in environment.items() if name not in READ_LATE and name[:4] != "RAY_"}


def _fork(request: dict[str, object], stdin: int, stdout: int) -> Forked:
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
        pid, status = _request(request, theirs)
    finally:
        for each in theirs:
            os.close(each)
    return Forked(pid, status, *ours)
