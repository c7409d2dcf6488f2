"""Choosing an executor: Docker, bubblewrap or, only by name, no sandbox at all."""

from __future__ import annotations

import asyncio
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from autogen_core.code_executor import CodeExecutor
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from autogen_codeact.executors.arguments import ExecutorKeywords
from autogen_codeact.executors.pool import EXECUTORS
from codeact_sandbox.backend_selection import choose_backend
from codeact_sandbox.types.keyword_model import check_names

UNSANDBOXED = "sandbox='none': code runs on this machine with your rights, and nothing holds it back"


async def choose_executor(sandbox: str = "auto", **options: Unpack[ExecutorKeywords]) -> CodeExecutor:
    """Make an executor, not started, that this machine can run.

    Args:
        sandbox: "auto" (the default): Docker if an engine answers, else bubblewrap. "docker", "bubblewrap": that one.
            "none": AutoGen's local executor, which is not a sandbox; a warning says so.
        options: Arguments of that executor. With "auto", one that only Docker has means Docker.

    Returns:
        The executor.

    Raises:
        ValueError: `sandbox` is none of these, or an option is not for it, or is invalid.
        SandboxUnavailable: There is no such sandbox here; the message says how to get one.
    """
    makers: dict[str, tuple[Callable[..., CodeExecutor], set[str]]] = {
        **EXECUTORS,
        "none": (_local, {"timeout", "work_dir", "mode"}),
    }
    if sandbox == "auto":
        sandbox = await asyncio.to_thread(choose_backend, options)
    if sandbox not in makers:
        raise ValueError(f"sandbox must be 'auto', 'docker', 'bubblewrap' or 'none', not {sandbox!r}")
    make, _ = makers[sandbox]
    given: Mapping[str, Any] = options
    check_names(choose_executor, given, {kind: known for kind, (_, known) in makers.items()}, sandbox)
    return make(**given)


def _local(*, timeout: float = 60, work_dir: Any = None, mode: str = "process") -> LocalCommandLineCodeExecutor:
    if mode != "process":
        raise ValueError("mode='session' is not for sandbox='none': choose another sandbox")
    warnings.warn(UNSANDBOXED, stacklevel=3)
    with warnings.catch_warnings():
        # AutoGen's own warning says the same.
        warnings.simplefilter("ignore", UserWarning)
        return LocalCommandLineCodeExecutor(timeout=max(1, math.ceil(timeout)), work_dir=work_dir)
