"""The recorded sessions as tasks of agents; standard library only, because each library's own environment loads it.

The model of each variant is scripted: it writes the recorded blocks, one at a time, and ends with `END`.
"""

import asyncio
import gzip
import json
import random
import time
import warnings
from pathlib import Path

from . import processor_time

DATA = Path(__file__).parents[3] / "shared/data/mint"
END = "That is all."
NEXT = "Go on."
TRIES = 3
TASK_TIMEOUT_S = 150


class WrongOutput(Exception):
    """A block's output is not the recorded one."""


def tasks(count, seed=0):
    """Return some recorded sessions, in random order: {"id", "prompt", "blocks": [{"code", "kind", "expect"}]}.

    A session is left out if a block shows the value of its last line, which only some of the executors do, if it may print a set,
    if newer versions of Python warn about its code, or if a name is expected to be missing, because smolagents imports
    modules for its user.
    """
    with gzip.open(DATA / "golden.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    with gzip.open(DATA / "sessions.jsonl.gz", "rt", encoding="utf-8") as lines:
        prompts = {_key(row): row["prompt"] for row in map(json.loads, lines)}
    fit = [
        {
            "id": "/".join(map(str, _key(row))),
            "prompt": prompts[_key(row)],
            "blocks": [
                {"code": step["code"], "kind": step["kind"], "expect": (step["expect"] or "").rstrip("\n")}
                for step in row["steps"]
            ],
        }
        for row in rows
        if not any(step["value_echo"] or "set(" in step["code"] or _differs(step) for step in row["steps"])
    ]
    random.Random(seed).shuffle(fit)
    return fit[:count]


def _differs(step):
    """Return whether a block has another output by the version of Python, or by the modules that a library imports for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            compile(step["code"], "<block>", "exec")
        except SyntaxError as error:  # what a warning becomes as an error
            return "escape" in str(error)
    return "NameError" in (step["expect"] or "")


def _key(row):
    return row["model"], row["set"], row["task_id"]


def fenced(code):
    """Return a message of a model with one block."""
    return f"```python\n{code}\n```"


def scripts(blocks):
    """Return the code that each block becomes where nothing is kept between blocks: it runs all earlier ones again.

    An earlier block that failed runs again up to where it failed.
    """
    found, earlier = [], []
    for block in blocks:
        found.append("\n".join([*earlier, block["code"]]))
        failed = block["kind"] == "error"
        earlier.append(
            f"try:\n    exec({block['code']!r}, globals())\nexcept BaseException:\n    pass"
            if failed
            else block["code"]
        )
    return found


def check(blocks, outputs, *, repeats=False):
    """Check what the blocks of a session have written.

    Args:
        blocks: The recorded ones.
        outputs: Text for each.
        repeats: Whether an output begins with those of earlier blocks.

    Raises:
        WrongOutput: It differs from the recording.
    """
    if len(outputs) != len(blocks):
        raise WrongOutput(f"{len(outputs)} blocks ran instead of {len(blocks)}")
    for number, (block, output) in enumerate(zip(blocks, outputs, strict=True), 1):
        text, expect = output.replace("\r\n", "\n").rstrip("\n"), block["expect"]
        right = {
            "value": text.endswith(expect) if repeats else text == expect,
            "empty": repeats or text == "",
            "error": expect in text,
            "none": True,
        }[block["kind"]]
        if not right:
            raise WrongOutput(f"block {number}: {text[-200:]!r} instead of {expect[-200:]!r}")


def check_answer(answer):
    """Check how an agent has ended.

    Raises:
        WrongOutput: The answer is not the scripted one.
    """
    if answer != END:
        raise WrongOutput(f"the answer was {answer!r}")


async def run_all(run_one, some_tasks, concurrency):
    """Run tasks, a number of them at the same time, each in up to three attempts.

    Args:
        run_one: Runs a task; the outputs of its blocks are checked there.
        some_tasks: Which ones.
        concurrency: How many at the same time.

    Returns:
        "tasks": id, seconds, errors of failed attempts, and `wrong` for each. "seconds": the wall-clock time of all.
        "processor": the processor time of all.
    """
    waiting = iter(some_tasks)

    async def slot():
        return [await _attempts(run_one, task) for task in waiting]

    before, began = processor_time.read(), time.perf_counter()
    slots = await asyncio.gather(*(slot() for _ in range(concurrency)))
    figures = {"seconds": time.perf_counter() - began, "processor": processor_time.since(before)}
    return {**figures, "tasks": [task for tasks in slots for task in tasks]}


async def _attempts(run_one, task):
    began, errors, wrong = time.perf_counter(), [], None
    for _ in range(TRIES):
        try:
            async with asyncio.timeout(TASK_TIMEOUT_S):
                await run_one(task)
            break
        except WrongOutput as error:
            wrong = f"{task['id']}: {error}"
            break
        except Exception as error:  # noqa: BLE001 - whatever a library raises is a failed attempt of it
            errors.append(f"{type(error).__name__}: {error}"[:300])
    failed = len(errors) == TRIES
    return {
        "id": task["id"],
        "seconds": time.perf_counter() - began,
        "errors": errors,
        "wrong": wrong,
        "failed": failed,
    }
