"""Choosing where code runs: Docker, bubblewrap or, only when asked for by name, no sandbox at all."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any, Literal

from autogen_core.code_executor import CodeExecutor
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from autogen_codeact.executors.bubblewrap import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.docker import DockerCommandLineCodeExecutor
from autogen_codeact.sandbox.backends.bubblewrap.launcher import check_bubblewrap
from autogen_codeact.sandbox.backends.docker.engine import connect
from autogen_codeact.sandbox.errors import SandboxUnavailable

SandboxName = Literal["auto", "docker", "bubblewrap", "none"]
UNSANDBOXED = "sandbox='none': code runs on this machine with your rights, and nothing holds it back"


async def choose_executor(sandbox: str = "auto", **options: Any) -> CodeExecutor:
    """Make an executor, not started, that this machine can run.

    Args:
        sandbox: "auto" (the default): Docker where an engine answers, else bubblewrap. "docker", "bubblewrap": that one.
            "none": AutoGen's local executor, which is no sandbox; a warning says so.
        options: Arguments of that executor. With "auto", one that only Docker has means Docker.

    Returns:
        The executor.

    Raises:
        ValueError: `sandbox` is none of these, or an option is not for it, or can't be right.
        SandboxUnavailable: There is no such sandbox here; the message says how to get one.
    """
    makers: dict[str, Callable[..., CodeExecutor]] = {
        "docker": DockerCommandLineCodeExecutor,
        "bubblewrap": BubblewrapCommandLineCodeExecutor,
        "none": _local,
    }
    if sandbox == "auto":
        sandbox = await asyncio.to_thread(find_sandbox, _only_for_docker(options))
    if sandbox not in makers:
        raise ValueError(f"sandbox must be 'auto', 'docker', 'bubblewrap' or 'none', not {sandbox!r}")
    make = makers[sandbox]
    for name in options:
        if name not in inspect.signature(make).parameters:
            raise ValueError(f"{name}= is not for sandbox={sandbox!r}: leave it out, or choose another sandbox")
    return make(**options)


def find_sandbox(only_for_docker: str | None = None) -> Literal["docker", "bubblewrap"]:
    """Find out what this machine has; blocks for some milliseconds.

    Args:
        only_for_docker: An option that rules bubblewrap out, or None.

    Returns:
        "docker" where an engine answers, else "bubblewrap".

    Raises:
        SandboxUnavailable: Neither can be used.
    """
    try:
        with contextlib.closing(connect()):
            return "docker"
    except SandboxUnavailable as error:
        without_docker = error
    if only_for_docker is not None:
        raise SandboxUnavailable(f"{only_for_docker}= needs Docker. {without_docker}") from without_docker
    try:
        check_bubblewrap()
    except SandboxUnavailable as error:
        raise SandboxUnavailable(
            f"There is no sandbox on this machine. Docker: {without_docker} Or bubblewrap: {error}."
        ) from error
    return "bubblewrap"


def _only_for_docker(options: dict[str, Any]) -> str | None:
    bubblewraps = inspect.signature(BubblewrapCommandLineCodeExecutor).parameters
    dockers = inspect.signature(DockerCommandLineCodeExecutor).parameters
    return next((name for name in options if name in dockers and name not in bubblewraps), None)


def _local(*, timeout: float = 60, work_dir: Any = None, mode: str = "process") -> LocalCommandLineCodeExecutor:
    if mode != "process":
        raise ValueError("mode='session' is not for sandbox='none': choose another sandbox")
    warnings.warn(UNSANDBOXED, stacklevel=3)
    with warnings.catch_warnings():
        # It says much the same.
        warnings.simplefilter("ignore", UserWarning)
        return LocalCommandLineCodeExecutor(timeout=max(1, math.ceil(timeout)), work_dir=work_dir)
