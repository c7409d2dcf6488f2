"""The sandboxes of a batch: a pool, from which each attempt takes its executor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from autogen_codeact.executors import ExecutorPool
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.executors.pool import EXECUTORS
from codeact_sandbox.backend_selection import choose_backend

SandboxKind = Literal["auto", "docker", "bubblewrap"]
MAX_READY = 8
MAX_READY_AGAIN = 2
ACQUIRE_TIMEOUT_S = 600.0
"""Seconds that an attempt waits for a sandbox: others may use all that are allowed."""


@dataclass(frozen=True)
class SandboxSpec:
    """Which sandboxes there are, as the arguments of `run_batch` say; it can be sent to another process."""

    kind: SandboxKind = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    concurrency: int = 4
    max_sandboxes: int | None = None
    uses: int = 1


class Sandboxes:
    """Makes executors, each for one attempt."""

    def __init__(self, spec: SandboxSpec, expected: Callable[[], int | None] = lambda: None) -> None:
        self._spec = spec
        self._expected = expected
        self._pool: ExecutorPool | None = None

    async def start(self) -> None:
        """Find out which sandboxes this machine has; the pool begins to start them when the first one is used."""
        spec, kind = self._spec, str(self._spec.kind)
        if kind not in {"auto", *EXECUTORS}:
            raise ValueError(f"sandbox must be 'auto', 'docker' or 'bubblewrap', not {kind!r}")
        if kind == "auto":
            kind = await asyncio.to_thread(choose_backend, dict(spec.options))
        # A sandbox is ready again some milliseconds after its use; a start takes a hundred times as long.
        ready = min(spec.concurrency, MAX_READY if spec.uses == 1 else MAX_READY_AGAIN)
        most = spec.max_sandboxes or spec.concurrency + ready
        options: dict[str, Any] = {"mode": "session", **spec.options, "sandbox": kind}
        self._pool = ExecutorPool(
            min(ready, most), max_alive=most, acquire_timeout=ACQUIRE_TIMEOUT_S, max_uses=spec.uses, **options
        )
        self._pool.expected = self._expected

    async def stop(self) -> None:
        """Stop all sandboxes, also those in use."""
        if self._pool is not None:
            await asyncio.gather(self._pool.stop(), return_exceptions=True)

    async def executor(self, *, data: list[str] | None = None, **options: Any) -> SandboxCodeExecutor:
        """Make an executor, not started."""
        assert self._pool is not None, "start() first"
        if not data:
            await self._pool.start()
        pooled = self._pool.executor(**options)
        if not data:
            return pooled
        values = pooled.sandbox.options.values()
        return type(pooled)(**{**values, "data": [*(values.get("data") or ()), *data]})
