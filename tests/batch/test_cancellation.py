"""Batches that are left at any moment, and attempts that do not end."""

import asyncio
import gc
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.batch import folder
from autogen_codeact.batch.folder import BatchFolder
from autogen_codeact.batch.settings import BatchSettings, LocalGate
from tests.batch.support import MakeAgent, double, lines, rows_of
from tests.openai_server import OpenAIServer


def children() -> set[str]:
    """Processes that this one has started."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError):
            found |= set(Path(f"/proc/self/task/{task}/children").read_text().split())
    return found


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


async def wait_until(condition: Any, interval_s: float = 0.01) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, condition
        await asyncio.sleep(interval_s)


def run_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith(("run-log", "codeact-pool"))}


async def test_repeated_cancellation_while_the_folder_is_opened_frees_its_lock(
    make: MakeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, end, index = threading.Event(), threading.Event(), folder.Results

    def index_slowly(path: Path, **options: Any) -> folder.Results:
        begun.set()
        assert end.wait(30)
        return index(path, **options)

    monkeypatch.setattr(folder, "Results", index_slowly)
    work = asyncio.create_task(rows_of(make, [double(1)], tmp_path))
    await wait_until(begun.is_set)
    for _ in range(3):
        work.cancel()
        await asyncio.sleep(0.01)
    end.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    BatchFolder.open(tmp_path, {}).close()


@pytest.mark.timeout(180)  # nine batches
async def test_batch_cancelled_at_any_moment_leaves_nothing_behind(
    server: OpenAIServer, make: MakeAgent, tmp_path: Path
) -> None:
    tasks = [double(number) for number in range(3)]
    await rows_of(make, tasks[:1], tmp_path / "first")
    await server.close_clients()
    before, threads, open_files = children(), run_threads(), descriptors()  # other tests' pools may live
    make = MakeAgent(server.client())
    # After so many rounds of the event loop.
    for moment in (1, 3, 10, 30, 60, 100, 200, 400):
        work = asyncio.create_task(rows_of(make, tasks, tmp_path / "out", concurrency=2))
        for _ in range(moment):
            await asyncio.sleep(0.002 if moment > 30 else 0)
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        assert len(asyncio.all_tasks()) == 1
        BatchFolder.open(tmp_path / "out", {}).close()  # nobody holds its lock
        await wait_until(lambda: run_threads() <= threads)
        await wait_until(lambda: children() <= before)
    await rows_of(make, tasks, tmp_path / "out")
    assert sorted(row["answer"] for row in lines(tmp_path / "out")) == ["0", "2", "4"]
    await server.close_clients()  # each keeps as many connections as it had at the same time
    await wait_until(lambda: descriptors() <= open_files, interval_s=0.2)  # each look collects garbage


async def test_what_may_begin_is_spread_evenly_in_the_order_of_asking() -> None:
    pace, began, order = LocalGate(BatchSettings(model_calls_per_minute=60 / 0.02)), time.monotonic(), list[int]()

    async def enter(number: int) -> None:
        await pace.enter()
        order.append(number)

    waiting = [asyncio.create_task(enter(number)) for number in range(6)]
    await asyncio.sleep(0)
    waiting[3].cancel()
    await asyncio.wait(waiting)
    assert order == [0, 1, 2, 4, 5]
    assert time.monotonic() - began >= 4 * 0.02
