"""Run a batch of very many tasks, and see whether the memory and the descriptors of its process stay as they are.

    python benchmarks/batch_many.py --tasks 10000 --sandbox bubblewrap
    python benchmarks/batch_many.py --tasks 10000 --sandbox docker --uses 50     # with sandboxes that are reset and reused

The tasks are recorded sessions, again and again, with a scripted model; run logs and rows are written. The figures are part of
docs/benchmarks.md, which `python benchmarks/batch.py --page` writes.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from sidebyside import recorded
from sidebyside.batch_ours import OPTIONS, agent_for, as_batch_task
from sidebyside.environments import WHERE

from autogen_codeact.batch import BatchSettings, run_batch

SAMPLES = 100


def sample(done, began):
    """Return what this process uses now."""
    rss = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "done": done,
        "seconds": time.perf_counter() - began,
        "rss": rss,
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def endless(count):
    """Return that many tasks, made when they are asked for."""
    sessions = [as_batch_task(task) for task in recorded.tasks(300)]
    for number in range(count):
        task = sessions[number % len(sessions)]
        yield {**task, "id": f"{number}/{task['id']}"}


async def measure(count, concurrency, sandbox, folder, keep=lambda found: None):
    """Run the tasks and return samples of this process.

    Args:
        count: How many.
        concurrency: How many at the same time.
        sandbox: "docker" or "bubblewrap".
        folder: For the batch.
        keep: Called with what there is at each sample, so that a run that is stopped has figures, too.
    """
    samples, outcomes, errors = [], {}, []
    every = max(1, count // SAMPLES)
    found = {"samples": samples, "outcomes": outcomes, "errors": errors, "concurrency": concurrency, "sandbox": sandbox}
    rows = run_batch(
        agent_for,
        endless(count),
        out=Path(folder, "batch"),
        settings=BatchSettings(concurrency=concurrency),
        sandbox=sandbox,
        **OPTIONS,
    )
    began, done, found["failed_attempts"] = time.perf_counter(), 0, 0
    async for row in rows:
        done += 1
        outcomes[row.outcome] = outcomes.get(row.outcome, 0) + 1
        found["failed_attempts"] += len(row.failures)
        if row.error is not None and len(errors) < 5:
            errors.append(f"{row.error_class}: {row.error}"[:300])
        # Only the last row's log stays on the disk: 10,000 of them would be measured as its cache.
        await asyncio.to_thread(shutil.rmtree, Path(folder, "batch", row.log), ignore_errors=True)
        if done % every == 0 or done == count:
            samples.append(sample(done, began))
            print(f"{time.strftime('%H:%M:%S')} {samples[-1]}", file=sys.stderr)
            keep(found | {"tasks": done})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--sandbox", choices=["docker", "bubblewrap"], default="bubblewrap")
    parser.add_argument("--out", type=Path, help="file for the figures; default: where batch.py --page looks for them")
    options = parser.parse_args()
    out = options.out or WHERE / f"batch-many-{options.sandbox}.json"
    out.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(
            measure(
                options.tasks,
                options.concurrency,
                options.sandbox,
                folder,
                lambda figures: out.write_text(json.dumps(figures)),
            )
        )
    print(found["outcomes"], f"{found['failed_attempts']} failed attempts", *found["errors"], sep="\n")
    sys.exit(0 if found["outcomes"] == {"completed": options.tasks} else 1)


if __name__ == "__main__":
    main()
