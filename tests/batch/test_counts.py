"""What a batch says of itself while it runs: its counts."""

import itertools
import time
from contextlib import aclosing
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from autogen_codeact.batch import attempt, folder, scheduler
from autogen_codeact.batch.rows import Row
from autogen_codeact.batch.running import Batch
from tests.batch.support import MakeAgent, batch, double, rows_of
from tests.openai_server import OpenAIServer, Reply


async def _all(running: Batch) -> list[Row]:
    return sorted([row async for row in running], key=lambda row: row.id)


async def test_rows_of_tasks_that_are_gone_are_part_of_the_total(make: MakeAgent, tmp_path: Path) -> None:
    """Else six of five tasks would be done at the end."""
    await rows_of(make, [double(1), double(2)], tmp_path, repeat=2)
    running = batch(make, [double(2), double(3)], tmp_path)
    async with aclosing(running) as rows:
        [row async for row in rows]
    assert (running.counts.done, running.counts.total) == (5, 5)


class Jumping(datetime):
    """A clock that is set an hour forward each time it is read."""

    reads = itertools.count()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(hours=next(cls.reads))


async def test_clock_that_is_set_changes_no_duration(
    bubblewrap: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those in rows, nor pauses, limits and the time left."""
    wall = time.time
    for module in (scheduler, attempt, folder):
        monkeypatch.setattr(module, "datetime", Jumping)
    monkeypatch.setattr(time, "time", lambda: wall() + 3600 * next(Jumping.reads))
    replies = [Reply("no", status=500), *[f"```python\nfinal_answer({number})\n```" for number in range(4)]]
    async with OpenAIServer(replies) as server:
        limits = {"model_calls_per_minute": 6000, "max_seconds": 600, "task_timeout": 500}
        make = MakeAgent(server.client(max_retries=0))
        running = batch(make, [double(number) for number in range(4)], tmp_path, concurrency=1, **limits)
        rows = await _all(running)
    assert [row.outcome for row in rows] == ["completed"] * 4
    assert sum(row.attempts for row in rows) == 5
    counts = running.counts
    durations = [counts.seconds_left, *(row.seconds for row in rows)]
    assert all(0 <= (seconds if seconds is not None else -1) < 1800 for seconds in durations), durations
