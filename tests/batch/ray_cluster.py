"""A Ray cluster of real nodes on this machine, and a model server for its workers."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.openai_server import OpenAIServer, Reply

OBJECT_STORE = 80 * 1024 * 1024


class Cluster:
    """Two nodes, of which the first one is the head; each takes the resource of its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._options: dict[str, Any] = {"object_store_memory": OBJECT_STORE, "include_log_monitor": False}
        self._cluster = import_module("ray.cluster_utils").Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 2,
                "include_dashboard": False,
                "no_monitor": True,  # nothing adds nodes by itself
                "dashboard_agent_listen_port": 0,
                "temp_dir": str(folder / "ray"),
                "resources": {"first": 100},
                **self._options,
            },
        )
        self.first_program = folder / "second" / "sitecustomize.py"
        """What each new process of the second node runs first."""
        self.first_program.parent.mkdir()
        self.first_program.touch()
        with pytest.MonkeyPatch.context() as changed:
            changed.setenv("PYTHONPATH", str(self.first_program.parent))
            self.second = self.add("second")

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, resource: str) -> Any:
        """Add a node with a resource of a name of its own."""
        return self._cluster.add_node(num_cpus=2, resources={resource: 100}, **self._options)

    def remove(self, node: Any) -> None:
        """Kill a node as if its machine had failed."""
        self._cluster.remove_node(node, allow_graceful=False)

    def workers(self, node: Any = None) -> list[int]:
        """Return the processes of actors, of one node or of all."""
        nodes = [node] if node is not None else [self._cluster.head_node, *self._cluster.worker_nodes]
        parents = {info.process.pid for node in nodes for info in node.all_processes.get("raylet", [])}
        return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and _is_actor(each, parents)]

    def stop(self) -> None:
        self._cluster.shutdown()


def _is_actor(process: Path, parents: set[int]) -> bool:
    try:
        parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        return parent in parents and "RayWorker" in (process / "cmdline").read_text()
    except (OSError, ValueError, IndexError):
        return False


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Start a cluster whose files are in a folder of its own; remove all that it leaves."""
    before = set(os.listdir("/dev/shm"))
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # the names of sockets in it may have 107 bytes only
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Else each node starts as many Python processes as it has processors, before one is needed.
        patch.setenv("RAY_enable_worker_prestart", "0")
        patch.setenv("RAY_prestart_worker_first_driver", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("TMPDIR", str(folder))  # a killed worker leaves its files there
        (folder / "ray").mkdir()
        cluster = Cluster(folder)
        try:
            yield cluster
        finally:
            cluster.stop()
            shutil.rmtree(folder, ignore_errors=True)
    assert not {name for name in set(os.listdir("/dev/shm")) - before if "plasma" in name}


class HoldingServer(OpenAIServer):
    """A model server for `ServedAgent`, which lets the second request of each task wait while `holds` is set.

    The task is a number; the agent keeps it in a variable, and answers with twice as much.
    """

    def __init__(self) -> None:
        super().__init__(_say)
        self.holds = False
        self.released = threading.Event()
        self.asked: Counter[tuple[str, int]] = Counter()
        """Requests by task and by the number of answers that it had before."""

    def stop(self) -> None:
        self.released.set()
        super().stop()

    def take(self, request: dict[str, Any]) -> Reply:
        reply = super().take(request)
        key = (_task_of(request["messages"]), _answers(request["messages"]))
        self.asked[key] += 1
        if self.holds and key[1] == 1:
            assert self.released.wait(150)
        return reply


def _texts(messages: list[dict[str, Any]]) -> list[str]:
    return [each["content"] for each in messages if isinstance(each["content"], str)]


def _task_of(messages: list[dict[str, Any]]) -> str:
    return next(text for text in _texts(messages) if text.isdecimal())


def _answers(messages: list[dict[str, Any]]) -> int:
    return sum(message["role"] == "assistant" for message in messages)


def _say(messages: list[dict[str, Any]]) -> str:
    if _answers(messages):
        return "```python\nfinal_answer(f'{int(x) * 2} {open(\"kept.txt\").read()}')\n```"
    return f"```python\nx = {_task_of(messages)}\nopen('kept.txt', 'a').write('kept')\n```"


async def wait_for(condition: Callable[[], Any], what: str, seconds: float = 300) -> None:
    """Wait until a condition is true; on a busy core Ray takes minutes to start a worker."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, what
        await asyncio.sleep(0.05)
