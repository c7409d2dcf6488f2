"""`run_batch` with real sandboxes and a scripted model."""

import json
from pathlib import Path
from typing import Any

from autogen_core.code_executor import CodeExecutor

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.batch import BatchSettings, Row, Task, run_batch
from tests.agents.support import scripted


def make_agent(executor: CodeExecutor, task: Task) -> CodeActAgent:
    model = scripted(f"```python\nx = {task.task}\n```", "```python\nfinal_answer(x * 2)\n```")
    return CodeActAgent("coder", executor, model_client=model)


async def rows_of(*args: Any, **options: Any) -> list[Row]:
    return [row async for row in run_batch(*args, sandbox="bubblewrap", **options)]


async def test_tasks_are_run_and_kept(tmp_path: Path) -> None:
    tasks = [Task(id=f"task/{number}", task=str(number)) for number in range(5)]

    rows = await rows_of(make_agent, tasks, out=tmp_path / "out", settings=BatchSettings(concurrency=2))

    assert sorted((row.id, row.outcome, row.answer, row.steps, row.model_calls) for row in rows) == [
        (f"task/{number}", "completed", str(number * 2), 2, 2) for number in range(5)
    ]
    lines = [json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [row.id for row in rows]
    assert await rows_of(make_agent, tasks, out=tmp_path / "out") == []
