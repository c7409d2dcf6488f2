"""Choosing an executor: Docker or bubblewrap."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Unpack

from autogen_codeact.executors.arguments import ExecutorKeywords
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.executors.pool import executor_class


async def choose_executor(sandbox: str = "auto", **options: Unpack[ExecutorKeywords]) -> SandboxCodeExecutor:
    """Make an executor, not started, that this machine can run.

    Args:
        sandbox: "auto" (the default): Docker if an engine answers, else bubblewrap. "docker", "bubblewrap": that one.
        options: Arguments of that executor. With "auto", one that only Docker has means Docker.

    Raises:
        ValueError: `sandbox` is none of these, or an option is not for it, or is invalid.
        SandboxUnavailable: There is no such sandbox here; the message says how to get one.
    """
    given: Mapping[str, Any] = options  # which class takes them is known at run time only
    chosen = await asyncio.to_thread(executor_class, choose_executor, sandbox, given)
    return chosen(**given)
