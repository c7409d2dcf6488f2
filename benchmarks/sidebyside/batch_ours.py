"""`run_batch` with our `CodeActAgent` on recorded sessions: rows and run logs are written, each task has a sandbox of its own."""

import asyncio
import os
import tempfile
import time
from pathlib import Path

from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.batch import BatchSettings, run_batch
from autogen_codeact.executors import Limits
from autogen_codeact.runs import load_run

from . import processor_time, recorded
from .autogen_executor import INFO

VARIANTS = {}
OPTIONS = {"mode": "session", "limits": Limits(cpus=os.cpu_count() or 1)}


def agent_for(executor, task):
    """Make an agent whose model writes the blocks of a recorded session."""
    replies = [*map(recorded.fenced, task.metadata["codes"]), recorded.END]
    return CodeActAgent("coder", executor, model_client=ReplayChatCompletionClient(replies, model_info=INFO))


def as_batch_task(task):
    """Return a recorded session as a task of a batch."""
    codes = [block["code"] for block in task["blocks"]]
    return {"id": task["id"], "task": task["prompt"], "metadata": {"codes": codes}}


async def batch(tasks, concurrency, sandbox, **options):
    """Run tasks; the start and the end of the pool count.

    Afterwards the outputs in the run logs are compared with the recording.

    Args:
        tasks: Recorded sessions.
        concurrency: How many at the same time.
        sandbox: "docker" or "bubblewrap".
        options: Options of the sandboxes, in addition to `OPTIONS`.
    """
    known = {task["id"]: task for task in tasks}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "batch")
        before, began = processor_time.read(), time.perf_counter()
        rows = run_batch(
            agent_for,
            map(as_batch_task, tasks),
            out=out,
            settings=BatchSettings(concurrency=concurrency),
            sandbox=sandbox,
            **OPTIONS,
            **options,
        )
        done = [row async for row in rows]
        figures = {"seconds": time.perf_counter() - began, "processor": processor_time.since(before)}
        figures["tasks"] = await asyncio.to_thread(lambda: [_checked(out, row, known[row.id]) for row in done])
    return figures


def _checked(out, row, task):
    wrong = None
    try:
        if row.outcome == "completed":
            events = [event for event in load_run(out / row.log) if event.type == "block_finished"]
            recorded.check(task["blocks"], [event.result.output for event in events])
            recorded.check_answer(row.answer)
    except recorded.WrongOutput as error:
        wrong = f"{row.id}: {error}"
    errors = [f"{failure.error_class}: {failure.error}"[:300] for failure in row.failures]
    if failed := row.outcome != "completed":
        errors.append(f"{row.error_class}: {row.error}"[:300])
    return {"id": row.id, "seconds": row.seconds, "errors": errors, "wrong": wrong, "failed": failed}


PROBES = {"batch, ours": batch}
