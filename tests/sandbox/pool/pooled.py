"""What the tests of pools share."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from autogen_codeact.executors import DockerCommandLineCodeExecutor, ExecutorPool
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.backends.docker.engine import connect
from tests.abuse import oracles
from tests.abuse.oracles import containers
from tests.sandbox.bubblewrapped import pid_one, supervisors
from tests.sandbox.sandboxes import pause_container

KINDS = ("docker", "bubblewrap")
MOST_PAUSE_S = 0.3
"""Between two looks, which take processor time that what is waited for may need."""
WATCHED = ("containers", "threads", "children", "descriptors", "control groups")


def left() -> dict[str, set[str]]:
    """What of ours there is on this machine."""
    found = oracles.leftovers()
    return {name: found[name] for name in WATCHED}


def what_is_new(before: dict[str, set[str]]) -> dict[str, set[str]]:
    """What of ours there is more than before, once time for clearing up is over."""
    return oracles.empty_in_time(
        lambda: {name: found - before[name] for name, found in left().items() if found - before[name]}, 20
    )


def alive(kind: str) -> int:
    """How many sandboxes of this process there are."""
    if kind == "docker":
        return len(containers())
    return len(supervisors(os.getpid()))


def signal_idle(kind: str, number: signal.Signals) -> None:
    """Send a signal to the only sandbox that this process has, from outside."""
    if kind == "docker":
        (name,) = containers()
        with closing(connect()) as client:
            if number == signal.SIGSTOP:
                pause_container(client, name)
            else:
                client.kill(name, int(number))
    else:
        os.kill(pid_one(os.getpid()), number)


async def until(condition: Callable[[], Any], seconds: float = 30) -> None:
    """Wait for something."""
    deadline, pause = time.monotonic() + seconds, 0.02
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(pause)
        pause = min(1.5 * pause, MOST_PAUSE_S)


def name_of(executor: SandboxCodeExecutor) -> str:
    """Name of the sandbox that it is in."""
    assert executor.sandbox.client is not None
    if isinstance(executor, DockerCommandLineCodeExecutor):
        assert executor.container_name == executor.sandbox.client.name
    return executor.sandbox.client.name


def ready_names(pool: ExecutorPool) -> set[str]:
    """Names of the sandboxes that are ready."""
    assert pool._sandboxes is not None
    return {client.name for client in pool._sandboxes.idle}
