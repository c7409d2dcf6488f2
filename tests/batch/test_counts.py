"""What a batch says of itself while it runs: its counts."""

from contextlib import aclosing
from pathlib import Path

from tests.batch.support import MakeAgent, batch, double, rows_of


async def test_rows_of_tasks_that_are_gone_are_part_of_the_total(make: MakeAgent, tmp_path: Path) -> None:
    """Else six of five tasks would be done at the end."""
    await rows_of(make, [double(1), double(2)], tmp_path, repeat=2)
    running = batch(make, [double(2), double(3)], tmp_path)
    async with aclosing(running) as rows:
        [row async for row in rows]
    assert (running.counts.done, running.counts.total) == (5, 5)
