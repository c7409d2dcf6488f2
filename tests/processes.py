"""Start Python programs as processes of their own, as a user does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

Process = subprocess.Popen[str]


def start(
    arguments: list[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    options: tuple[str, ...] = (),
    stdin: int = subprocess.PIPE,
    stdout: int = subprocess.PIPE,
) -> Process:
    """Start a Python program and leave it running; `options` are those of the interpreter."""
    return subprocess.Popen(
        [sys.executable, *options, *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE if stdout == subprocess.PIPE else subprocess.STDOUT,
        text=True,
        env=env,
        cwd=cwd,
    )


def run(
    arguments: list[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    options: tuple[str, ...] = (),
    text: str = "",
    timeout: float = 100,
) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end, and kill it after `timeout` seconds; the other arguments are those of `start`."""
    with start(arguments, env=env, cwd=cwd, options=options) as process:
        try:
            out, err = process.communicate(text, timeout=timeout)
        finally:
            process.kill()
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)
