"""Batches in a real Ray cluster of two nodes: spread, lost nodes and workers, limits, and what is left behind."""

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.batch import BatchBudgetError, BatchSettings, Ray, Task, run_batch
from autogen_codeact.batch.errors import BatchError
from autogen_codeact.batch.progress import AttemptFailed
from autogen_codeact.batch.results import Row
from autogen_codeact.runs import load_run, summarize
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.leftovers import OWNER
from tests.batch.ray_cluster import Cluster, HoldingServer, running_cluster, wait_for
from tests.batch.served_agent import ServedAgent

pytestmark = [pytest.mark.more, pytest.mark.usefixtures("bubblewrap"), pytest.mark.timeout(900)]
WHOLE_NODE = {"num_cpus": 2}
"""Options of actors of which each takes a node of the cluster."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


def batch(server: HoldingServer, ray: Ray | None, out: Path, count: int, **options: Any) -> Any:
    given = out.with_name("given.txt")
    given.write_text("given, ")
    tasks = [Task(id=f"t{number}", task=str(number), files={"kept.txt": str(given)}) for number in range(count)]
    settings = BatchSettings(**{"concurrency": 2, "backoff_s": 0.1, **options.pop("settings", {})})
    same = {"configuration": {"model": "scripted"}, "sandbox": options.pop("sandbox", "bubblewrap")}
    return run_batch(ServedAgent(server.base_url), tasks, out=out, settings=settings, backend=ray, **same, **options)


def row_summaries(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted((row.id, row.outcome, row.answer, row.steps, row.model_calls) for row in rows)


def answers(count: int) -> list[tuple[Any, ...]]:
    return sorted((f"t{number}", "completed", f"{number * 2} given, kept", 2, 2) for number in range(count))


def logs_in(out: Path) -> list[str]:
    return [path.read_text() for path in out.glob("runs/*/events.jsonl")]


async def test_tasks_run_on_both_nodes_and_leave_rows_and_logs_at_the_driver(cluster: Cluster, tmp_path: Path) -> None:
    rows: list[Row] = []
    out = tmp_path / "out"
    async with HoldingServer() as server:
        server.holds = True
        ray = Ray(cluster.address, actors=2, actor_options=WHOLE_NODE)
        running = batch(server, ray, out, 4, settings={"max_tokens": 40})
        first = asyncio.ensure_future(anext(running))
        await wait_for(lambda: len(server.requests) == 4, "two tasks have asked for the second time, on a node each")
        server.released.set()
        rows.append(await first)
        with pytest.raises(BatchBudgetError, match=r"^The budget of 40 tokens is used up \("):
            await collect(running, rows)
        # Each call uses 10 tokens. A third task may have begun when the first of the two had ended.
        assert len(server.requests) in {4, 5}

    assert row_summaries(rows) == answers(2)
    assert len({row.node for row in rows}) == 2
    assert {row.attempts for row in rows} == {1}
    for row in rows:
        assert row.log is not None
        summary = summarize(load_run(out / row.log))
        assert (summary.outcome, summary.gaps, summary.steps) == ("completed", 0, 2)
    await wait_for(lambda: cluster.workers() == [], "no actor is left")


async def test_tasks_of_a_removed_node_and_of_a_killed_worker_go_on_where_they_were(
    cluster: Cluster, tmp_path: Path
) -> None:
    third = cluster.add("third")
    out, events = tmp_path / "out", list[Any]()
    async with HoldingServer() as server:
        server.holds = True
        ray = Ray(cluster.address, actors=3, actor_options=WHOLE_NODE)
        running = batch(server, ray, out, 6, settings={"concurrency": 3}, on_event=events.append)
        first = asyncio.ensure_future(anext(running))
        await wait_for(
            lambda: (
                sum(log.count('"model_call_started"') == 2 for log in logs_in(out)) == 3
                and len(server.requests) == 6  # a call begins before its request is sent
            ),
            "three tasks have asked for the second time",
        )
        (worker,) = cluster.workers(cluster.second)
        os.kill(worker, signal.SIGKILL)
        cluster.remove(third)
        await wait_for(lambda: len(failures(events)) == 2, "the node and the worker count as lost")
        server.released.set()
        rows = [await first, *[row async for row in running]]

    assert row_summaries(rows) == answers(6)
    again = [row for row in rows if row.attempts > 1]
    assert {row.id for row in again} == {event.id for event in failures(events)}
    assert [(row.attempts, row.resumed) for row in again] == [(2, 1)] * 2
    lost = {row.id for row in again}
    assert server.asked == {
        (str(number), step): 2 if step == 1 and f"t{number}" in lost else 1 for number in range(6) for step in (0, 1)
    }


async def collect(running: Any, rows: list[Row]) -> None:
    async for row in running:
        rows.append(row)  # noqa: PERF401 - those before an error count


def failures(events: list[Any]) -> list[AttemptFailed]:
    return [event for event in events if isinstance(event, AttemptFailed)]


async def test_closing_a_batch_ends_its_actors_and_its_tasks_go_on_on_another_backend(
    cluster: Cluster, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    async with HoldingServer() as server:
        server.holds = True
        async with aclosing(batch(server, Ray(cluster.address, actors=1), out, 1)) as running:
            first = asyncio.ensure_future(anext(running))
            await wait_for(lambda: len(server.requests) == 2, "the task has asked for the second time")
            assert len(cluster.workers()) == 1
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
        await wait_for(lambda: cluster.workers() == [], "no actor is left")
        server.released.set()
        rows = [row async for row in batch(server, None, out, 1)]

    assert row_summaries(rows) == answers(1)
    assert rows[0].resumed == 1
    assert server.asked == {("0", 0): 1, ("0", 1): 2}


def no_agent(executor: Any) -> None:
    raise AssertionError("no task begins")


async def test_what_can_not_be_sent_or_placed_ends_the_batch_with_an_error(cluster: Cluster, tmp_path: Path) -> None:
    lock = asyncio.Lock().acquire()  # a coroutine can't be pickled
    try:
        with pytest.raises(BatchError, match=r"^make_agent or an option of the sandboxes can't be sent to the"):
            await anext(run_batch(lambda executor: lock, ["1"], out=tmp_path / "1", backend=Ray(cluster.address)))
    finally:
        lock.close()
    nowhere = Ray(cluster.address, actors=1, actor_options={"resources": {"moon": 1}}, start_timeout=0.5)
    with pytest.raises(BatchError) as placed:
        await anext(run_batch(no_agent, ["1"], out=tmp_path / "2", backend=nowhere))
    assert re.fullmatch(
        r"no Ray actor was ready within 0\.5 s\. Each has the options {'num_cpus': 1, 'resources': {'moon': 1}}, and the "
        r"cluster has {.*}: change actor_options=, or give a longer start_timeout= if nodes are being added\.",
        str(placed.value),
    )
    no_sandbox = Ray(cluster.address, actors=1)
    refused = r"^a Ray actor can't be used: node \S+: ValueError: the backend must be"
    with pytest.raises(BatchError, match=refused):
        await anext(run_batch(no_agent, ["1"], out=tmp_path / "3", backend=no_sandbox, sandbox="chroot"))  # type: ignore[arg-type]
    await wait_for(lambda: cluster.workers() == [], "no actor is left")


WITHOUT_BATCHES = """
import sys
class Finder:
    def find_spec(self, name, *_):
        if name == "autogen_codeact.batch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Finder())
"""
OTHER_VERSION = "import autogen_codeact; autogen_codeact.__version__ = '9.9'"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (WITHOUT_BATCHES, r".*No module named 'autogen_codeact\.batch'.*"),
        (OTHER_VERSION, r"node \S+: it has version 9\.9 of autogen-codeact, and the driver has 0\.2\.0"),
    ],
)
async def test_another_version_on_a_node_is_named(cluster: Cluster, tmp_path: Path, program: str, reason: str) -> None:
    await asyncio.to_thread(cluster.first_program.write_text, program)
    try:
        ray = Ray(cluster.address, actors=1, actor_options={"resources": {"second": 1}})
        with pytest.raises(BatchError) as raised:
            await anext(run_batch(no_agent, ["1"], out=tmp_path / "out", backend=ray))
    finally:
        await asyncio.to_thread(cluster.first_program.write_text, "")
    advice = r"\. Each node needs the same version of autogen-codeact, and Docker or bubblewrap \(docs/scaling\.md\)\."
    assert re.fullmatch(f"a Ray actor can't be used: {reason}{advice}", str(raised.value)), str(raised.value)


async def test_docker_sandboxes_run_on_nodes_and_end_with_their_worker(
    cluster: Cluster, docker_engine: str, tmp_path: Path
) -> None:
    """Also if it is killed, which another worker goes on from."""
    out, events = tmp_path / "out", list[Any]()
    async with HoldingServer() as server:
        server.holds = True
        ray = Ray(cluster.address, actors=1, actor_options={"resources": {"first": 1}})
        running = batch(server, ray, out, 2, settings={"concurrency": 1}, on_event=events.append, sandbox="docker")
        first = asyncio.ensure_future(anext(running))
        await wait_for(lambda: len(server.requests) == 2, "the first task has asked for the second time")
        (worker,) = cluster.workers()
        used = containers_of(worker)
        assert used
        os.kill(worker, signal.SIGKILL)
        await wait_for(lambda: len(failures(events)) == 1, "the worker counts as lost")
        await wait_for(lambda: not used & all_containers(), "its containers have ended")
        server.released.set()
        rows = [await first, *[row async for row in running]]

    assert row_summaries(rows) == answers(2)
    assert sorted((row.id, row.attempts, row.resumed) for row in rows) == [("t0", 2, 1), ("t1", 1, 0)]
    await wait_for(lambda: cluster.workers() == [], "no actor is left")


def containers_of(process: int) -> set[str]:
    """Return the running sandboxes that a process has started."""
    with closing(connect()) as client:
        found: Any = client.containers(filters={"label": OWNER})
    return {each["Id"] for each in found if each["Labels"][OWNER].endswith(f":{process}")}


def all_containers() -> set[str]:
    with closing(connect()) as client:
        found: Any = client.containers()
    return {each["Id"] for each in found}
