"""The sandboxes of a batch: pools, from which each attempt takes its executors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from autogen_codeact.executors import SandboxPool
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.executors.pool import EXECUTORS
from autogen_codeact.sandbox.backend_selection import choose_backend

SandboxKind = Literal["auto", "docker", "bubblewrap"]
MAX_READY = 8
MAX_READY_AGAIN = 2
ACQUIRE_TIMEOUT_S = 600.0
"""Seconds that an attempt waits for a sandbox: others may use all that are allowed."""


@dataclass(frozen=True)
class SandboxSpec:
    """Which sandboxes there are; it can be sent to another process.

    Args:
        kind: "auto": Docker if an engine answers, else bubblewrap.
        options: Options of the executors. Default of `mode`: "session".
        concurrency: Attempts that run at the same time.
        max_sandboxes: Sandboxes that exist at the same time. Default: as many as are needed.
        uses: How often one is used, with a reset after each use. Default 1.
    """

    kind: SandboxKind = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    concurrency: int = 4
    max_sandboxes: int | None = None
    uses: int = 1

    def pool(
        self, kind: Literal["docker", "bubblewrap"], options: Mapping[str, Any], expected: Callable[[], int | None]
    ) -> SandboxPool:
        """Make a pool, not started.

        Args:
            kind: Its backend.
            options: Options of its executors.
            expected: Returns how many more sandboxes will be requested, if that is known (`SandboxPool.expected`).
        """
        # A sandbox is ready again some milliseconds after its use; a start takes a hundred times as long.
        ready = min(self.concurrency, MAX_READY if self.uses == 1 else MAX_READY_AGAIN)
        most = self.max_sandboxes or self.concurrency + ready
        pool = SandboxPool(
            min(ready, most),
            sandbox=kind,
            max_alive=most,
            acquire_timeout=ACQUIRE_TIMEOUT_S,
            max_uses=self.uses,
            **{"mode": "session", **options},
        )
        pool.expected = expected
        return pool


class Sandboxes:
    """Makes executors, each for one attempt.

    Args:
        spec: Which sandboxes there are.
        pool: A pool of the caller's own, which is running, in place of `spec`. Default: one that is made here.
        expected: Returns how many more executors will be made, if that is known.
    """

    def __init__(
        self,
        spec: SandboxSpec,
        pool: SandboxPool | None = None,
        expected: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._spec = spec
        self._expected = expected
        self._own_pool = pool
        self._pool = pool
        self._pools: dict[str, SandboxPool] = {}
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Find out which sandboxes this machine has; the pools begin to start theirs when they are first used.

        Raises:
            SandboxUnavailable: There is none.
            ValueError: An option is invalid.
        """
        if self._pool is None:
            kind: Any = self._spec.kind
            options = dict(self._spec.options)
            if kind not in {"auto", *EXECUTORS}:
                raise ValueError(f"sandbox must be 'auto', 'docker' or 'bubblewrap', not {kind!r}")
            if kind == "auto":
                kind = await asyncio.to_thread(choose_backend, options)
            self._pool = self._spec.pool(kind, options, self._expected)

    async def stop(self) -> None:
        """Stop all sandboxes, also those in use; a pool of the caller's own stays."""
        pools = [*self._pools.values(), *([self._pool] if self._pool is not None and self._own_pool is None else [])]
        self._pools = {}
        await asyncio.gather(*(pool.stop() for pool in pools), return_exceptions=True)

    async def executor(self, *, data: list[str] | None = None, **options: Any) -> SandboxCodeExecutor:
        """Make an executor, not started.

        Args:
            data: Files and folders that the code can read. Then the sandbox is not from the pool, which has none of them.
            options: Options that may differ between the executors of a pool, such as `work_dir`.
        """
        async with self._starting:
            if self._pool is None:
                await self.start()
        assert self._pool is not None
        return await _executor(self._pool, data, options)

    async def like(
        self, kind: Any, options: Mapping[str, Any], *, data: list[str] | None = None, **own: Any
    ) -> SandboxCodeExecutor:
        """Make an executor with given options from a pool of its own kind.

        Args:
            kind: Its backend.
            options: Its options; those with the same ones share a pool.
            data: As for `executor`.
            own: Options that may differ, such as `work_dir`.
        """
        key = f"{kind} {sorted((name, repr(value)) for name, value in options.items())}"
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = self._spec.pool(kind, options, self._expected)
        return await _executor(pool, data, own)


async def _executor(pool: SandboxPool, data: list[str] | None, options: dict[str, Any]) -> SandboxCodeExecutor:
    if not data:
        await pool.start()
        return pool.executor(**options)
    pooled = pool.executor(**options)
    values = pooled.sandbox.options.values()
    return type(pooled)(**{**values, "data": [*(values.get("data") or ()), *data]})
