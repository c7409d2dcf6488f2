"""`codeact batch`: many tasks, solved by agents at the same time."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any, cast

from autogen_codeact.batch.errors import BatchBudgetError
from autogen_codeact.batch.results import Row, summarize
from autogen_codeact.batch.running import Batch, run_batch
from autogen_codeact.batch.settings import BatchSettings
from autogen_codeact.batch.tasks import BadTask, Task, read_tasks
from autogen_codeact.cli import batch_display
from autogen_codeact.cli.batch_input import AgentMaker, describe_job, read_settings
from autogen_codeact.cli.exit import (
    EXIT_INTERRUPTED,
    CommandError,
    LastJsonLine,
    run_until_interrupted,
    say,
    silence_libraries,
)
from autogen_codeact.cli.jobs import BatchJob
from autogen_codeact.cli.models import advice_for
from autogen_codeact.cli.sandbox import started
from autogen_codeact.cli.sandbox_choice import Kind, with_skills
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from codeact_sandbox.host.waiting import in_thread

EXIT_FAILED, EXIT_BUDGET = 1, 3
SAME_ERRORS = 10
"""Tasks that all fail with an error that only the user can mend, such as a wrong key, after which the batch stops."""
AGAIN = "the same command goes on from here"


def run_tasks(job: BatchJob, end: LastJsonLine) -> int:
    """Run the tasks, and show how far the batch is; return the exit status."""
    job.agent.check(job.sandbox)
    job = replace(job, sandbox=with_skills(job.sandbox))
    if job.sandbox.work_dir is not None:
        raise CommandError(
            "--work-dir is not for a batch: tasks would overwrite each other's files. Use `files` of a task, or --data for all; "
            "each run's folder keeps what its code has made."
        )
    job, settings = read_settings(job)
    silence_libraries()
    with batch_display.BatchDisplay(live=not (end.enabled and sys.stdout.isatty()), plain=not end.enabled) as display:
        running = _Running(job, settings, end, display)
        return run_until_interrupted(running.run(), end.cancelled, on_interrupt=running.finish)


class _Running:
    """One command, from the first look at the sandbox to the summary."""

    def __init__(
        self, job: BatchJob, settings: BatchSettings, end: LastJsonLine, display: batch_display.BatchDisplay
    ) -> None:
        self._job, self._settings, self._end, self._display = job, settings, end, display
        self._maker = AgentMaker(job)
        self._batch: Batch | None = None
        self._taken = 0
        self._finishing = False
        self._errors = list[str]()
        self._stopped_for: str | None = None

    def finish(self) -> bool:
        """Begin no further task, at the first Ctrl-C; return whether running tasks are finished first."""
        if self._batch is None or self._finishing:
            return False
        self._finishing = True
        self._batch.stop()
        running = self._batch.counts.running
        say(
            f"no further task begins; the {running} that run{'s' * (running == 1)} go{'es' * (running == 1)} on to the end "
            "(Ctrl-C again stops at once)"
        )
        return True

    async def run(self) -> int:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._maker.close)
            self._maker.open()
            # What is wrong with the file as a whole is said before anything is started.
            tasks = await in_thread(read_tasks, self._job.tasks)
            kind = await self._choose_sandbox()
            spent = await self._follow(kind, tasks)
        return await self._sum_up(spent)

    async def _choose_sandbox(self) -> Kind:
        """Return the kind of sandbox.

        One sandbox is started and stopped first: it builds an image once, and an error of all tasks is found before they begin.
        """
        async with started(self._job.sandbox) as executor:
            return "bubblewrap" if isinstance(executor, BubblewrapCommandLineCodeExecutor) else "docker"

    async def _follow(self, kind: Kind, tasks: list[Task | BadTask]) -> str | None:
        options = {"delete_tmp_files": True, **self._job.sandbox.options()}
        del options["work_dir"]
        batch = self._batch = run_batch(
            self._maker,
            tasks,
            out=self._job.out,
            settings=self._settings,
            sandbox=cast("Any", kind),
            on_event=self._display.on_event,
            accept_changes=self._job.accept_changes,
            configuration=await asyncio.to_thread(describe_job, self._job),
            **options,
        )
        self._display.follow(lambda: batch.counts)
        self._end.advice = AGAIN
        try:
            async with aclosing(batch) as rows:
                async for row in rows:
                    self._take(row)
        except BatchBudgetError as error:
            return str(error)
        return None

    def _take(self, row: Row) -> None:
        self._taken += 1
        self._display.take(row)
        if row.outcome != "invalid":
            self._errors.append(row.error_class or "")
        if len(self._errors) == SAME_ERRORS and (advice := self._advice()) is not None and self._batch is not None:
            self._stopped_for = advice
            self._batch.stop()

    def _advice(self) -> str | None:
        """Return what the user can do if all tasks so far have failed with the same error."""
        return advice_for(self._errors[0], self._job.model) if len(set(self._errors)) == 1 else None

    async def _sum_up(self, spent: str | None) -> int:
        job = self._job
        self._display.close()
        assert self._batch is not None
        counts, ended = self._batch.counts, self._batch.ended
        if ended == "stopped" and counts.done == counts.total and not counts.failed:
            ended = "complete"  # the tasks that ran were the last ones
        summary = await asyncio.to_thread(summarize, job.out)
        if self._end.enabled:
            fields = {"ended": ended, "ended_by": spent, "folder": str(job.out.absolute())}
            self._end.end_with({"type": "summary", **fields, **summary.model_dump(mode="json")})
        else:
            batch_display.print_summary(summary, job.out)
            if ended == "complete" and not self._taken:
                say("all tasks had results, so none was run: give another --out to do them again")
        if spent is not None:
            say(spent)
            return EXIT_BUDGET
        advice = self._stopped_for or self._advice()
        if advice is not None:
            say(f"{advice} Then {AGAIN}")
        if ended == "stopped" and self._stopped_for is None:
            say(f"interrupted, {batch_display.describe_progress(counts)[0]}; {AGAIN}")
            return EXIT_INTERRUPTED
        return EXIT_FAILED if summary.failed or summary.invalid else 0
