"""Runs tasks with one library's agent, one after the other: `python -m live.solvers NAME URL MODEL`, in its environment.

Reads a task from each line of the input, and writes a line with the last message and the outputs of code for each.
"""

import asyncio
import contextlib
import importlib
import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

from .tasks import Task

SOLVERS = {
    "ours, retries": "ours",
    "ours, no retries": "ours",
    "ours, CodeAct": "ours",
    "AutoGen": "autogen",
    "smolagents": "smol",
    "LlamaIndex": "llama",
    "pydantic-ai": "pydantic",
}


def main():
    """Answer each line of the input."""
    name, url, model = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print
    solve = importlib.import_module(f"live.library_{SOLVERS[name]}").solver(name, url, model)
    for line in sys.stdin:
        task = Task(**json.loads(line))
        began, answer = time.monotonic(), {"text": "", "outputs": [], "error": None}
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            for file, content in task.files.items():
                Path(file).write_text(content)
            try:
                done = solve(task, folder)
                answer["text"], answer["outputs"] = asyncio.run(done) if asyncio.iscoroutine(done) else done
            except Exception as error:  # noqa: BLE001 - it is counted
                traceback.print_exc()
                answer["error"] = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps(answer | {"seconds": time.monotonic() - began}), file=answers)


def price_tool(task):
    """Return the task's host tool, or None."""
    if not task.prices:
        return None

    def price(item: str) -> int:
        """Return the price of an item.

        Args:
            item: Name of the item.
        """
        return task.prices[item]

    return price


if __name__ == "__main__":
    main()
