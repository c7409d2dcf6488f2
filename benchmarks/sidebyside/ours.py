"""Our executors with different options."""

import os

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.executors import (
    BubblewrapCommandLineCodeExecutor,
    DockerCommandLineCodeExecutor,
    ExecutorPool,
    Limits,
)

from . import probes
from .autogen_executor import Executor, turn

MAKERS = {"docker": DockerCommandLineCodeExecutor, "bubblewrap": BubblewrapCommandLineCodeExecutor}
# The libraries' containers may use every processor. By default ours may use one, and many blocks at once would wait for it.
ALL_CPUS = os.cpu_count() or 1


class Pooled(Executor):
    """One of our executors, with its sandbox from a pool.

    Args:
        options: Arguments of the pool.
    """

    def __init__(self, **options):
        super().__init__(None)
        self.options = options

    async def prepare(self):
        self.pool = ExecutorPool(2, **self.options)
        await self.pool.start()
        await self.pool.ready()

    async def made(self):
        return self.pool.executor(work_dir=self.folder.name)

    async def clear(self):
        await super().clear()
        await self.pool.stop()


def _variant(kind, make=Executor, **options):
    options = {"limits": Limits(cpus=ALL_CPUS), **options}
    if make is Pooled:
        return lambda: Pooled(backend=kind, **options)
    return lambda: make(lambda folder: MAKERS[kind](work_dir=folder, **options))


VARIANTS = {
    f"{kind}, {name}": _variant(kind, **options)
    for kind in MAKERS
    for name, options in {
        "process": {},
        "session": {"mode": "session"},
        "session, no checkpoint": {"mode": "session", "checkpoint": False},
        "process, from the pool": {"make": Pooled},
        "session, from the pool": {"make": Pooled, "mode": "session"},
    }.items()
} | {f"docker with {name}, session": _variant("docker", mode="session", runtime=name) for name in ("crun", "runsc")}


async def agent_turn(variant):
    """Return the seconds of a turn of our agent with a started variant."""
    return await turn(CodeExecutorAgent, variant.executor)


PROBES = {
    "agent turn": agent_turn,
    "idle memory": probes.idle_memory,
    "tool call": probes.tool_call,
    "recovery": probes.recovery,
}
