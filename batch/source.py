"""Where the tasks of a batch come from; they are read as they are needed, maybe several times."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from autogen_codeact.batch.tasks import Task


class TaskSource:
    """The tasks of a batch.

    Args:
        tasks: As the caller has given them.
        spool: File in which tasks are kept that can be read only once; made if they are needed again.
    """

    def __init__(self, tasks: Any, spool: Path) -> None:
        self._tasks = tasks
        self._spool = spool
        self._spooled = False
        self.is_repeatable = isinstance(tasks, str | Path | Sequence)
        """Whether reading them once does not use them up."""

    async def read(self, *, again: bool) -> AsyncGenerator[Task, None]:
        """Yield the tasks.

        Args:
            again: Whether they are needed once more after this.

        Raises:
            Exception: What the caller's iterable raised.
        """
        if self.is_repeatable:
            async for task in as_tasks(self._tasks):
                yield task
        elif self._spooled:
            with self._spool.open("rb") as file:
                for line in file:
                    yield Task.model_validate_json(line)
        elif not again:
            async for task in as_tasks(self._tasks):
                yield task
        else:
            with self._spool.open("wb") as file:
                async for task in as_tasks(self._tasks):
                    file.write(task.model_dump_json().encode() + b"\n")
                    yield task
            self._spooled = True

    def close(self) -> None:
        """Remove what was kept."""
        self._spool.unlink(missing_ok=True)


async def as_tasks(source: Any) -> AsyncIterator[Task]:
    """Yield the tasks of a source; a text is a task with its number as id."""
    number = 0
    if isinstance(source, AsyncIterable):
        async for item in source:
            number += 1
            yield _as_task(item, number)
        return
    for item in source:
        number += 1
        yield _as_task(item, number)


def _as_task(item: Any, number: int) -> Task:
    if isinstance(item, Task):
        return item
    return Task(id=str(number), task=item) if isinstance(item, str) else Task.model_validate(item)
