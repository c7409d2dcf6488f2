"""Choosing an executor, Docker or bubblewrap, and a pool of sandboxes for executors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Unpack

from autogen_codeact.executors.arguments import ExecutorKeywords, PoolKeywords
from autogen_codeact.executors.bubblewrap import BubblewrapArguments, BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.docker import DockerArguments, DockerCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox import SandboxPool
from codeact_sandbox.backends.selection import choose_backend
from codeact_sandbox.types.keyword_model import check_names
from codeact_sandbox.types.option_parsing import merge_options
from codeact_sandbox.types.options import BackendName

Executor = type[DockerCommandLineCodeExecutor] | type[BubblewrapCommandLineCodeExecutor]
EXECUTORS: dict[str, tuple[Executor, set[str]]] = {
    "docker": (DockerCommandLineCodeExecutor, DockerArguments.names()),
    "bubblewrap": (BubblewrapCommandLineCodeExecutor, BubblewrapArguments.names()),
}


def executor_class(caller: Callable[..., Any], sandbox: str, options: Collection[str], *without: str) -> Executor:
    """Return the class of executors with a sandbox, whose options have the right names; blocks for some milliseconds."""
    if sandbox == "auto":
        sandbox = choose_backend(options)
    if sandbox not in EXECUTORS:
        raise ValueError(f"the backend must be 'auto', 'docker' or 'bubblewrap', not {sandbox!r}")
    check_names(caller, options, {kind: known.difference(without) for kind, (_, known) in EXECUTORS.items()}, sandbox)
    return EXECUTORS[sandbox][0]


async def choose_executor(sandbox: str = "auto", **options: Unpack[ExecutorKeywords]) -> SandboxCodeExecutor:
    """Make an executor, not started, that this machine can run.

    Args:
        sandbox: "auto" (the default): Docker if an engine answers, else bubblewrap. "docker", "bubblewrap": that one.
        options: Arguments of that executor. With "auto", one that only Docker has means Docker.

    Raises:
        ValueError: `sandbox` is unknown, or an option is invalid or not for it.
        SandboxUnavailable: There is no such sandbox here; the message says how to get one.
    """
    given: Mapping[str, Any] = options  # which class takes them is known at run time only
    chosen = await asyncio.to_thread(executor_class, choose_executor, sandbox, given)
    return chosen(**given)


class ExecutorPool(SandboxPool):
    """Keeps sandboxes started, each for one executor and one use.

    An executor that was made with `pool=` takes a started sandbox instead of starting one. When the executor stops, its sandbox
    ends; the pool has started another one in the background.
    Use it with `async with`, or with `start` and `stop`. It serves several event loops and threads.

    Args:
        size: Sandboxes that are started in advance. Default 2. With 0 each is started when it is requested.
        backend: "docker", "bubblewrap", or "auto" (the default): Docker if an engine answers, else bubblewrap.
        max_alive: Sandboxes that exist at the same time, those in use included. Further requests wait. Default 32.
        acquire_timeout: Seconds that an executor waits for a sandbox. Default 60.
        options: Arguments of the executors: of `DockerCommandLineCodeExecutor` or `BubblewrapCommandLineCodeExecutor`.

    Raises:
        ValueError: An argument is invalid; the message says which.
    """

    def __init__(
        self,
        size: int = 2,
        *,
        backend: BackendName = "auto",
        max_alive: int = 32,
        acquire_timeout: float = 60,
        **options: Unpack[PoolKeywords],
    ) -> None:
        self._executor = executor_class(type(self), backend, options, "pool")
        self._arguments: dict[str, Any] = {**options}
        template = self._executor(**self._arguments).sandbox
        super().__init__(
            size,
            backend=template.options,
            tools=template.tools,
            max_alive=max_alive,
            acquire_timeout=acquire_timeout,
            progress=options.get("progress"),
        )

    def executor(self, **options: Unpack[PoolKeywords]) -> SandboxCodeExecutor:
        """Make an executor, not started, that takes its sandbox from here.

        Args:
            options: Arguments of the executor beside the pool's own, such as `work_dir` and `timeout`.

        Raises:
            ValueError: An option differs from the pool's in what shapes the sandbox itself.
        """
        return self._executor(**merge_options(self._arguments, options), pool=self)
