"""Running the installed command, as a user does."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import os
import pty
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import pytest

from autogen_codeact.cli.main import main
from autogen_codeact.cli.output import _printer
from codeact_sandbox.backends.docker.engine import connect
from tests import processes
from tests.processes import Process

COMMAND = Path(sys.executable).with_name("codeact")
_SECRETS = (
    *(
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "GEMINI_API_KEY",
        "LLAMA_API_KEY",
    ),
    *("OLLAMA_API_KEY", "OLLAMA_HOST"),
    *("CODEACT_MODEL", "CODEACT_BASE_URL"),
)


@dataclass(frozen=True)
class Finished:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Its output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of the tests, without keys of models and with a fixed width.

    A folder without certificates is named: no server of the tests has one, and to load those of all authorities takes each
    client of a model 30 ms of processor time.
    """
    kept = {name: value for name, value in os.environ.items() if name not in {*_SECRETS, "SSL_CERT_FILE"}}
    kept["SSL_CERT_DIR"] = kept["XDG_CONFIG_HOME"] = str(Path(__file__).parent)
    return {**kept, "COLUMNS": "100", "TERM": "xterm-256color", **(more or {})}


def start(
    *arguments: object,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    terminal: int | None = None,
) -> Process:
    """Start the command and leave it running."""
    streams = {} if terminal is None else {"stdin": subprocess.DEVNULL, "stdout": terminal}
    command = [str(COMMAND), *map(str, arguments)]
    return processes.start(command, env=environment(env), cwd=cwd, **streams)


def codeact(
    *arguments: object,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Finished:
    """Run the command to its end, and assert that it leaves no container and prints no traceback.

    In this process, where everything is imported already; in one of its own if it waits for what a person types, has other
    modules, or an event loop runs here.
    """
    own = arguments[:1] == ("chat",) or (stdin and arguments[:1] != ("exec",)) or "PYTHONPATH" in (env or {})
    if own or _has_loop():
        return _in_own_process(arguments, stdin, env, cwd)
    before = containers_of(os.getpid())
    encoding = (env or {}).get("PYTHONIOENCODING", "utf-8")
    streams = [io.TextIOWrapper(io.BytesIO(data), encoding=encoding) for data in (stdin.encode(), b"", b"")]
    with _process_state(environment(env), cwd, streams):
        sys.argv = [str(COMMAND), *map(str, arguments)]
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        gc.collect()  # what the end of a process would close
    assert set(containers_of(os.getpid())) <= set(before)
    out, err = (stream.detach().getvalue().decode() for stream in streams[1:])
    assert "Traceback" not in err
    return Finished(status, out, err)


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def _process_state(env: Mapping[str, str], cwd: Path | None, streams: Sequence[TextIO]) -> Iterator[None]:
    """Let the command have what a process has of its own."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    loggers = [logging.getLogger(name) for name in ("autogen_codeact", "codeact_sandbox")]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in os.environ.keys() - env.keys():
            patch.delenv(name)
        for name, value in env.items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        patch.setattr(sys, "argv", sys.argv)
        patch.setattr(tempfile, "tempdir", env.get("TMPDIR"))
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        try:
            yield
        finally:
            for stream in streams:
                stream.flush()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for logger in loggers:
                logger.removeHandler(_printer)


def _in_own_process(
    arguments: Sequence[object], stdin: str, env: Mapping[str, str] | None, cwd: Path | None
) -> Finished:
    with start(*arguments, env=env, cwd=cwd) as process:
        try:
            out, err = process.communicate(stdin, timeout=100)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert "Traceback" not in err
    assert containers_of(process.pid) == []
    assert process.returncode is not None
    return Finished(process.returncode, out, err)


def in_bubblewrap(*arguments: object, **more: Any) -> Finished:
    """Run a command in bubblewrap, which starts faster than a container; what it says about its Python is left out.

    For tests of what the command does, which is the same in any sandbox. Tests that run `codeact` check the containers.
    """
    done = codeact(*arguments, "--sandbox", "bubblewrap", **more)
    said = [line for line in done.err.splitlines(keepends=True) if not line.startswith("codeact: the sandbox runs ")]
    return replace(done, err="".join(said))


def on_terminal(*arguments: object, cwd: Path | None = None) -> str:
    """Run the command on a terminal and return its output."""
    ours, theirs = pty.openpty()
    process = start(*arguments, cwd=cwd, terminal=theirs)
    os.close(theirs)
    written = b""
    with process, open(ours, "rb", buffering=0) as terminal:
        try:
            while piece := terminal.read(65536):
                written += piece
        except OSError:
            pass  # this is how a terminal ends
    assert process.returncode == 0, written.decode()
    return written.decode().replace("\r\n", "\n")


def containers_of(pid: int) -> list[str]:
    """Return the names of the containers that a process has started and not removed."""
    owner = f"org.autogen-codeact.owner={socket.gethostname()}:{pid}"
    try:
        with closing(connect()) as client:
            return [entry["Names"][0] for entry in client.containers(all=True, filters={"label": owner})]
    except ConnectionError:
        return []


def wait_until(condition: Any, what: str, seconds: float = 45) -> None:
    """Wait until a condition is true."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what} did not happen within {seconds} s"
        time.sleep(0.02)


def replay(folder: Path, *answers: object) -> str:
    """Write a recording and return the value of --model for it."""
    file = folder / "answers.json"
    file.write_text(json.dumps(answers), encoding="utf-8")
    return f"replay:{file}"


def code(*lines: str, language: str = "python") -> str:
    """Return a model's answer that is one block of code."""
    return "\n".join((f"```{language}", *lines, "```"))


def decision(retry: bool, reason: str = "use 2") -> str:
    """Return a model's decision."""
    return json.dumps({"reason": reason, "retry": retry})
