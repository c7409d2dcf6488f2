"""The tasks that a command runs: those of a file, or the first of them, with a check for those that have none."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import get_args

from autogen_codeact.batch.reading import read_tasks
from autogen_codeact.batch.tasks import BadTask, Check, CheckKind, Task
from autogen_codeact.cli.exit import CommandError

COMPARING = tuple(kind for kind in get_args(CheckKind) if kind != "python")


class ChosenTasks:
    """Iterates the tasks, each time from the first one.

    Args:
        source: Their file.
        limit: How many; None for all.
        check: How answers are checked if a task does not say: a kind, or a file of Python code. None: as the task says.

    Raises:
        CommandError: The check can't be used.
    """

    is_repeatable = True

    def __init__(self, source: Path, limit: int | None = None, check: str | None = None) -> None:
        self._source, self._limit = source, limit
        self._check = _default_check(check) if check is not None else None
        self.total: int | None = None
        """How many there are, each repetition counted, when `count` was called."""
        self.bad = 0
        """How many can't be used, when `count` was called."""

    async def check(self) -> None:
        """Read the first task, so that what is wrong with the file as a whole is said before anything is started.

        Raises:
            BatchError: It can't be read, or has no tasks.
        """
        async with aclosing(self._read()) as tasks:
            await anext(tasks, None)

    async def count(self, repeat: int) -> int:
        """Return how many there are.

        Args:
            repeat: How often each is run.
        """
        number = bad = 0
        async with aclosing(self._read()) as tasks:
            async for task in tasks:
                number += 1
                bad += isinstance(task, BadTask)
        self.bad = bad
        self.total = number * repeat
        return self.total

    def __aiter__(self) -> AsyncIterator[Task | BadTask]:
        return self._read()

    async def _read(self) -> AsyncGenerator[Task | BadTask, None]:
        number = 0
        async with aclosing(read_tasks(self._source)) as tasks:
            async for task in tasks:
                number += 1
                if self._limit is not None and number > self._limit:
                    return
                yield self._with_check(task)

    def _with_check(self, task: Task | BadTask) -> Task | BadTask:
        check = self._check
        if not isinstance(task, Task) or check is None or task.check is not None:
            return task
        if check.kind != "python" and task.expected is None:
            return task
        return task.model_copy(update={"check": check})


def _default_check(text: str) -> Check:
    if text in COMPARING:
        return Check(kind=text)  # type: ignore[arg-type]
    if not text.endswith(".py"):
        raise CommandError(
            f"--check {text}: give {', '.join(COMPARING)}, or a file of Python code whose name ends in .py."
        )
    try:
        return Check(kind="python", code=Path(text).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise CommandError(f"--check {text} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"--check {text} is not UTF-8 text.") from error
