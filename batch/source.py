"""The source of the tasks of a batch; they are read when they are needed, maybe several times."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

from pydantic import TypeAdapter

from autogen_codeact.batch.reading import Tasks, read_tasks
from autogen_codeact.batch.tasks import BadTask, Task

_EITHER: TypeAdapter[Task | BadTask] = TypeAdapter(Task | BadTask)


class TaskSource:
    """The tasks of a batch.

    Args:
        tasks: As the caller has given them.
        spool: File in which tasks are kept that can be read only once; made if they are needed again.
    """

    def __init__(self, tasks: Tasks, spool: Path) -> None:
        self._tasks = tasks
        self._spool = spool
        self._spooled = False
        self.is_repeatable = isinstance(tasks, str | Path | Sequence) or getattr(tasks, "is_repeatable", False)
        """Whether reading them once does not use them up."""

    async def read(self, *, again: bool) -> AsyncGenerator[Task | BadTask, None]:
        """Yield the tasks.

        Args:
            again: Whether they are needed once more after this.

        Raises:
            BatchTasksError: There are none, or they can't be read at all.
            Exception: What the caller's iterable raised.
        """
        if self._spooled:
            with self._spool.open("rb") as file:
                for line in file:
                    yield _EITHER.validate_json(line)
            return
        async with aclosing(read_tasks(self._tasks)) as tasks:
            if self.is_repeatable or not again:
                async for task in tasks:
                    yield task
                return
            with self._spool.open("wb") as file:
                async for task in tasks:
                    file.write(_EITHER.dump_json(task) + b"\n")
                    yield task
        self._spooled = True

    def close(self) -> None:
        """Remove what was kept."""
        self._spool.unlink(missing_ok=True)
