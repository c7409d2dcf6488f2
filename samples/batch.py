"""A batch: several tasks at the same time, each in a sandbox of its own, with checked answers.

python samples/batch.py     the model is made of recorded answers, no key needed; the code in them really runs
"""

import asyncio
from pathlib import Path

from autogen_core.code_executor import CodeExecutor
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.batch import BatchSettings, Task, run_batch

TASKS = Path(__file__).with_name("batch_tasks.jsonl")
COUNT_PRIMES = """\
```python
def is_prime(n):
    return all(n % k for k in range(2, int(n**0.5) + 1))


final_answer(sum(map(is_prime, range(2, {limit}))))
```
"""


def make_agent(executor: CodeExecutor, task: Task) -> CodeActAgent:
    # With a real model, make one client outside of this function, for all tasks.
    model = ReplayChatCompletionClient([COUNT_PRIMES.format(limit=task.metadata["limit"])])
    return CodeActAgent("coder", executor, model_client=model)


async def main() -> None:
    rows = [row async for row in run_batch(make_agent, TASKS, settings=BatchSettings(concurrency=2))]
    for row in sorted(rows, key=lambda row: row.metadata["limit"]):
        print(f"{row.id}: {row.answer}, {'right' if row.passed else 'wrong'}, after {row.steps} step")
    print(f"{sum(row.passed is True for row in rows)} of {len(rows)} passed")


asyncio.run(main())
